"""What a run looks like: both spaces in two dimensions, figures for papers, and a page to look at."""

from kedge.report.atlas import opening_command, require_pyarrow, write_atlas
from kedge.report.compared import write_compared
from kedge.report.contents import Comparison
from kedge.report.explorer import Explorer
from kedge.report.figures import FIGURES, draw_confidence, draw_convergence, draw_spaces
from kedge.report.flat import FlatSpaces, Sample, draw_sample, flatten
from kedge.report.page import require_page_target, require_plotly, write_report
from kedge.report.saving import FORMATS, require_figure_target, require_matplotlib, save_figure
from kedge.report.server import serve

__all__ = [
    "FIGURES",
    "FORMATS",
    "Comparison",
    "Explorer",
    "FlatSpaces",
    "Sample",
    "draw_confidence",
    "draw_convergence",
    "draw_sample",
    "draw_spaces",
    "flatten",
    "opening_command",
    "require_figure_target",
    "require_matplotlib",
    "require_page_target",
    "require_plotly",
    "require_pyarrow",
    "save_figure",
    "serve",
    "write_atlas",
    "write_compared",
    "write_report",
]

"""What a run looks like: both spaces in two dimensions, and figures for papers."""

from kedge.report.figures import FIGURES, draw_confidence, draw_convergence, draw_spaces
from kedge.report.flat import FlatSpaces, flatten
from kedge.report.saving import FORMATS, require_figure_target, require_matplotlib, save_figure

__all__ = [
    "FIGURES",
    "FORMATS",
    "FlatSpaces",
    "draw_confidence",
    "draw_convergence",
    "draw_spaces",
    "flatten",
    "require_figure_target",
    "require_matplotlib",
    "save_figure",
]

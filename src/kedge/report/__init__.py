"""Show a run: as a page, live or in a file, as figures for papers, and as a table for embedding-atlas.

Each has a package or module of its own (`page`, `live`, `figures`, `atlas`), on top of the picture of both spaces that
they share (`picture`); all public names are re-exported here. May import `kedge.tasks` and everything below it.
"""

from kedge.report.atlas import opening_command, require_pyarrow, write_atlas
from kedge.report.figures.drawing import FIGURES, draw_confidence, draw_convergence, draw_spaces
from kedge.report.figures.saving import FORMATS, require_figure_target, require_matplotlib, save_figure
from kedge.report.live.explorer import Explorer
from kedge.report.live.server import LOOPBACK, serve
from kedge.report.page.common_page import write_common_page
from kedge.report.page.comparison_page import write_comparison
from kedge.report.page.gold_section import GoldComparison
from kedge.report.page.rendering import require_page_target, require_plotly
from kedge.report.page.row_texts import RowTexts
from kedge.report.page.run_page import write_report
from kedge.report.picture.neighbourhoods import shared_columns
from kedge.report.picture.projection import PlaneProjection, Sample, draw_sample, project_to_plane
from kedge.report.picture.tsne import require_layout

__all__ = [
    "FIGURES",
    "FORMATS",
    "LOOPBACK",
    "Explorer",
    "GoldComparison",
    "PlaneProjection",
    "RowTexts",
    "Sample",
    "draw_confidence",
    "draw_convergence",
    "draw_sample",
    "draw_spaces",
    "opening_command",
    "project_to_plane",
    "require_figure_target",
    "require_layout",
    "require_matplotlib",
    "require_page_target",
    "require_plotly",
    "require_pyarrow",
    "save_figure",
    "serve",
    "shared_columns",
    "write_atlas",
    "write_common_page",
    "write_comparison",
    "write_report",
]

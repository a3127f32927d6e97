"""Several runs side by side, as a page."""

from __future__ import annotations

from pathlib import Path

from kedge import __version__
from kedge.report.page import render, require_page_target
from kedge.spaces.atomic import atomic_path
from kedge.tasks import SCORE_COLUMNS, RunsCompared, as_percent
from kedge.tasks.echoes import Echo

_SEALED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_compared(path: str | Path, compared: RunsCompared) -> None:
    """Write a page that shows runs side by side and needs neither network nor scripts nor any other file."""
    path = Path(path)
    require_page_target(path)
    page = render(
        "compared.html",
        version=__version__,
        policy=_SEALED,
        compared=compared,
        scored=compared.runs[0].score is not None,
        score_columns=SCORE_COLUMNS,
        percent=as_percent,
        shade=_shade,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _shade(echo: Echo) -> str:
    """How dark a cell is, in percent: the share that is the same."""
    return f"{100 * (echo.share or 0):.1f}%"

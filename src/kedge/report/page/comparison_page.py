"""Several runs side by side, as a page."""

from __future__ import annotations

from pathlib import Path

from kedge import __version__
from kedge.report.page.rendering import render, require_page_target
from kedge.spaces.writing.atomic import atomic_path
from kedge.tasks import GOLD_COLUMNS, RunComparison, as_percent
from kedge.tasks.run_comparison import PairAgreement

_SEALED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_comparison(path: str | Path, comparison: RunComparison) -> None:
    """Write a self-contained page, without scripts, that shows runs side by side."""
    path = Path(path)
    require_page_target(path)
    page = render(
        "comparison.html",
        version=__version__,
        policy=_SEALED,
        comparison=comparison,
        gold_columns=GOLD_COLUMNS if comparison.runs[0].gold else (),
        percent=as_percent,
        shade=_shade,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _shade(agreement: PairAgreement) -> str:
    """The shade of a cell, in percent: the share of pairs that are the same."""
    return f"{100 * (agreement.share or 0):.1f}%"

"""The page of a run, as one self-contained HTML file or for a server to send."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kedge.estimators import AnchorDiscovery
from kedge.report.page.gold_section import GoldComparison
from kedge.report.page.rendering import as_json, asset, plotly_script, render, require_page_target, require_plotly
from kedge.report.page.row_texts import RowTexts
from kedge.report.page.run_data import data_of, layout_view, neighbours_of
from kedge.report.page.run_words import words_of
from kedge.report.picture.neighbourhoods import Neighbourhoods
from kedge.report.picture.projection import draw_sample
from kedge.report.picture.tsne import lay_out
from kedge.spaces.conversion import SpaceLike
from kedge.spaces.writing.atomic import atomic_path
from kedge.tasks import Rehearsal

MAX_ROWS = 20_000
"""The page shows at most this many rows of a space."""

_SCRIPTS = (
    "source.js",
    "keys.js",
    "charts.js",
    "colours.js",
    "sketch.js",
    "landmarks.js",
    "selection.js",
    "spaces.js",
    "movers.js",
    "morph.js",
    "search.js",
    "table.js",
    "look.js",
    "main.js",
)
# Nothing may be fetched from anywhere; Plotly compiles functions from strings for WebGL, and adds its own styles.
_SEALED = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"


def write_report(
    path: str | Path,
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    *,
    gold: GoldComparison | None = None,
    rehearsal: Rehearsal | None = None,
    labels: Mapping[str, str] | None = None,
    texts: RowTexts | None = None,
    layout: bool = False,
    run: str = "RUN",
    max_rows: int = MAX_ROWS,
) -> None:
    """Write a self-contained page that shows a run.

    Parameters
    ----------
    path : path
        File to write, atomically.
    discovery, x, y
        A fitted discovery and the spaces it was fitted on.
    gold : GoldComparison, optional
        The evaluation of the run against gold pairs.
    rehearsal : Rehearsal, optional
        What searches would lose if X's model replaced Y's.
    labels : mapping, optional
        Labels by key, of rows of X, Y or both, by which points can be coloured.
    texts : RowTexts, optional
        The texts of rows, shown next to their keys.
    layout : bool
        Whether to show a t-SNE layout of both spaces too, which takes a minute or more for many rows.
    run : str
        The run folder, for the commands that the page suggests.
    max_rows : int
        The page shows at most this many rows of a space; larger spaces are sampled at random.
    """
    path = Path(path)
    require_page_target(path)
    discovery, x, y = discovery.in_texts(x, y)
    sample = draw_sample(discovery, x, y, max_rows)
    data = data_of(discovery, x, y, sample, gold, labels, texts)
    drawn_x, drawn_y = x.take(sample.rows_x), y.take(sample.rows_y)
    if layout:
        data["views"].append(layout_view(lay_out(discovery, drawn_x, drawn_y)))
    near = neighbours_of(Neighbourhoods(discovery, drawn_x, drawn_y), (len(drawn_x), len(drawn_y)))
    page = _render(
        words_of(discovery, x, y, sample, gold, run, rehearsal, texts),
        live=False,
        policy=_SEALED,
        contents=_packed(as_json(data)),
        packages=[
            {"name": "plotly", "text": _packed(plotly_script())},
            {"name": "near", "text": _packed(as_json(near))},
        ],
        addresses=[],
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def live_page(words: dict[str, Any]) -> str:
    """The page for a server that serves the library at `/plotly.js` and the data at `/contents.json`."""
    policy = _SEALED.replace("script-src", "connect-src 'self'; script-src 'self'")
    if words["images"]:
        policy = policy.replace("img-src", "img-src 'self'")
    return _render(words, live=True, policy=policy, contents=None, packages=[], addresses=["/plotly.js"])


def _render(words: dict[str, Any], **technical: Any) -> str:
    """Render the page of a run with our scripts."""
    require_plotly()
    from markupsafe import Markup

    scripts = [Markup(asset(name)) for name in _SCRIPTS]
    return render("page.html", **words, **technical, scripts=scripts)


def _packed(text: str) -> str:
    """Compress text deterministically, and encode it in base64 so that it is safe in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()

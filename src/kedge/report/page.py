"""The page: one HTML file that needs nothing else, or what a server sends piece by piece."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.extras import needing
from kedge.report.contents import Comparison, data_of, layout_view, neighbours_of, words_of
from kedge.report.flat import draw_sample
from kedge.report.layout import lay_out
from kedge.report.neighbourhoods import Neighbourhoods
from kedge.runs.description import holds_run
from kedge.spaces.atomic import atomic_path, require_target
from kedge.spaces.conversion import SpaceLike
from kedge.tasks import Rehearsal

MOST_ROWS = 20_000
"""So many rows of a space the page shows at most."""

_SCRIPTS = (
    "source.js",
    "keys.js",
    "charts.js",
    "colours.js",
    "sketch.js",
    "landmarks.js",
    "selection.js",
    "spaces.js",
    "search.js",
    "table.js",
    "look.js",
    "main.js",
)
# Nothing may be fetched from anywhere; Plotly makes functions of strings for WebGL, and styles for itself.
_SEALED = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"


def require_page_target(path: Path) -> None:
    """Refuse at the start of the work what `write_report` would refuse at its end."""
    require_plotly()
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path}: the page is HTML; give it the suffix .html")
    require_target(path)
    if holds_run(path.absolute().parent):
        raise InputError(f"{path}: is inside a run folder, which holds nothing else; put the page beside it")


def require_plotly() -> None:
    """Say how to get what the page is made with, where it is not there."""
    with needing("the page needs", "plotly", "jinja2", install="kedge[report]"):
        import jinja2  # noqa: F401
        import plotly.offline  # noqa: F401


def write_report(
    path: str | Path,
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    *,
    gold: Comparison | None = None,
    rehearsal: Rehearsal | None = None,
    labels: Mapping[str, str] | None = None,
    layout: bool = False,
    run: str = "RUN",
    most: int = MOST_ROWS,
) -> None:
    """Write a page that shows a run and needs neither network nor any other file.

    Parameters
    ----------
    path : path
        File to write; complete or not at all.
    discovery, x, y
        A fitted discovery and the spaces it was fitted on.
    gold : Comparison, optional
        How the run compares with the truth.
    rehearsal : Rehearsal, optional
        What searches would lose if X's model took the place of Y's.
    labels : mapping, optional
        Labels by key, of rows of X, Y or both, that points can be coloured by.
    layout : bool
        Whether both spaces are shown by t-SNE too, which takes a minute or more where rows are many.
    run : str
        The run folder, for the commands that the page proposes.
    most : int
        Rows of a space that the page shows at most; of larger spaces it shows a random part.
    """
    path = Path(path)
    require_page_target(path)
    discovery, x, y = discovery.in_texts(x, y)
    sample = draw_sample(discovery, x, y, most)
    data = data_of(discovery, x, y, sample, gold, labels)
    drawn_x, drawn_y = x.take(sample.rows_x), y.take(sample.rows_y)
    if layout:
        data["views"].append(layout_view(lay_out(discovery, drawn_x, drawn_y)))
    near = neighbours_of(Neighbourhoods(discovery, drawn_x, drawn_y), (len(drawn_x), len(drawn_y)))
    page = _render(
        words_of(discovery, x, y, sample, gold, run, rehearsal),
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
    """The page for a server that has the library at `/plotly.js` and the data at `/contents.json`."""
    policy = _SEALED.replace("script-src", "connect-src 'self'; script-src 'self'")
    if words["images"]:
        policy = policy.replace("img-src", "img-src 'self'")
    return _render(words, live=True, policy=policy, contents=None, packages=[], addresses=["/plotly.js"])


def as_json(value: Any) -> str:
    """As short as it gets."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@cache
def plotly_script() -> str:
    """The library that draws the charts, as its Python package carries it."""
    require_plotly()
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


def _render(words: dict[str, Any], **technical: Any) -> str:
    """The page of a run, with our own scripts."""
    require_plotly()
    from markupsafe import Markup

    scripts = [Markup(_asset(name)) for name in _SCRIPTS]
    return render("page.html", **words, **technical, scripts=scripts)


def render(template: str, **values: Any) -> str:
    """A template of ours filled in, with our own style. Everything else is escaped, unless it is `Markup`."""
    require_plotly()
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("kedge.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values, style=Markup(_asset("page.css")))


def _asset(name: str) -> str:
    return (resources.files("kedge.report") / "assets" / name).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Compressed, in letters that mean nothing to HTML; the same text gives the same letters."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()

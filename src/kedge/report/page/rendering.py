"""Fill in templates with words and data, and check where the page may be written."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from kedge.errors import InputError
from kedge.extras import needing
from kedge.runs.description import holds_run
from kedge.spaces.writing.atomic import require_target


def require_page_target(path: Path) -> None:
    """Raise early if the page could not be written to this path."""
    require_plotly()
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path}: the page is HTML; give it the suffix .html")
    require_target(path)
    if holds_run(path.absolute().parent):
        raise InputError(f"{path}: is inside a run folder, which may hold nothing else; put the page next to it")


def require_plotly() -> None:
    """Raise with installation advice if the packages that make the page are missing."""
    with needing("the page needs", "plotly", "jinja2", install="kedge[report]"):
        import jinja2  # noqa: F401
        import plotly.offline  # noqa: F401


def as_json(value: Any) -> str:
    """Serialise to compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


@cache
def plotly_script() -> str:
    """The plotly.js library, from its Python package."""
    require_plotly()
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


def render(template: str, **values: Any) -> str:
    """Fill in one of our templates and add our style. Values are escaped unless they are `Markup`."""
    require_plotly()
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("kedge.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values, style=Markup(asset("page.css")))


def asset(name: str) -> str:
    """The text of one of our scripts or styles."""
    return (resources.files("kedge.report") / "assets" / name).read_text(encoding="utf-8")

"""Write Matplotlib figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kedge.errors import InputError
from kedge.extras import needing
from kedge.spaces.writing.atomic import atomic_path, require_target

FORMATS = (".pdf", ".png", ".svg")
# No dates, so that the same figure gives the same file.
_METADATA: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def require_matplotlib(otherwise: str = "") -> None:
    """Raise with installation advice, and the alternative `otherwise`, if Matplotlib is missing."""
    with needing("figures need", "matplotlib", install="kedge[plot]", otherwise=otherwise):
        import matplotlib  # noqa: F401


def require_figure_target(path: Path) -> None:
    """Raise early if `save_figure` could not write to this path."""
    require_matplotlib()
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: figures cannot be written as {path.suffix!r}; use {', '.join(FORMATS)}")
    require_target(path)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure atomically to a file whose suffix names its format."""
    require_figure_target(path)
    from matplotlib import rc_context

    suffix = path.suffix.lower()
    with rc_context({"svg.hashsalt": "kedge", "svg.fonttype": "none"}), atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150, format=suffix[1:], metadata=_METADATA.get(suffix))

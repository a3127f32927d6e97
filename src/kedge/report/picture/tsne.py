"""A nonlinear layout that shows structure: t-SNE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.extras import needing
from kedge.report.picture.neighbourhoods import shared_directions
from kedge.report.picture.projection import Places
from kedge.spaces import Embeddings

LAYOUT = "t-SNE"
LAYOUT_DESCRIPTION = (
    "t-SNE of the shared coordinates, both spaces together: close points are similar, long distances mean little."
)

_MIN_ROWS = 8  # fewer rows have no neighbourhoods to preserve
_PERPLEXITY = 30


def require_layout() -> None:
    """Raise with installation advice if the package that computes the layout is missing."""
    with needing("the layout needs", "openTSNE", install="kedge[layout]"):
        import openTSNE  # noqa: F401


def lay_out(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, random_state: int = 0) -> Places:
    """Positions (n, 2) and (m, 2) of all rows of X and Y, fitted to both at once so that partners lie close together.

    Takes minutes for many rows. The same `random_state` gives the same positions.
    """
    require_layout()
    from openTSNE import TSNE

    rows = shared_directions(discovery, x, y).numpy()
    if len(rows) < _MIN_ROWS:
        places = np.zeros((len(rows), 2), dtype=np.float32)
    else:
        perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
        fitted = TSNE(perplexity=perplexity, n_jobs=-1, random_state=random_state).fit(rows)
        places = _centered(np.asarray(fitted, dtype=np.float32))
    return places[: len(x)], places[len(x) :]


def _centered(places: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shift positions so that the middle of their extent is at the origin and they fill the picture."""
    middle = (places.min(axis=0) + places.max(axis=0)) / 2
    return places - middle

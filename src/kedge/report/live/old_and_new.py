"""Compare a search before and after a change of model: X's model is the new one, Y is the old index."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.matching import largest
from kedge.models.translator import unit_vectors
from kedge.report.picture.neighbourhoods import Near
from kedge.spaces import Embeddings
from kedge.tasks.row_transforms import transform_rows


class OldAndNew(NamedTuple):
    """The rows of X found by a query's own vector, and the rows of Y found by its translation, (1, k) each."""

    new: Near
    old: Near


def search_old_and_new(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, row: int, k: int) -> OldAndNew:
    """Search X with a row of X as it is, and Y with its translation; both by cosine, as an index does.

    Neither search leaves out the query itself: the first question about a change of model is whether the old index
    still finds it.
    """
    query = x.take([row])
    return OldAndNew(_nearest(query.vectors, x, k), _nearest(discovery.translate(query), y, k))


def _nearest(query: NDArray[np.float32], space: Embeddings, k: int) -> Near:
    """The k rows of a space nearest to a query (1, d) by cosine, without copying the space."""
    direction = unit_vectors(query).T
    cosines = transform_rows(lambda vectors: unit_vectors(vectors) @ direction, space.vectors)
    values, rows = largest(cosines.T, min(k, len(space)))
    return Near(rows.numpy(), values.clamp(-1, 1).numpy())

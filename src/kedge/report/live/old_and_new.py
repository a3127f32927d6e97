"""One search before and after a change of model: X's model is the new one, Y is the old index."""

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
    """The rows of X that a query's own vector finds, and those of Y that its translation finds, (1, k) each."""

    new: Near
    old: Near


def search_old_and_new(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, row: int, k: int) -> OldAndNew:
    """Search for a row of X with the new model among X, and translated in the index of Y, by cosine as indices do.

    Neither leaves out the query itself: whether the old index still finds it is what a change of model asks first.
    """
    query = x.take([row])
    return OldAndNew(_nearest(query.vectors, x, k), _nearest(discovery.translate(query), y, k))


def _nearest(query: NDArray[np.float32], space: Embeddings, k: int) -> Near:
    """The k rows of a space nearest to a query (1, d), as they are: no copy of the space is made."""
    direction = unit_vectors(query).T
    cosines = transform_rows(lambda vectors: unit_vectors(vectors) @ direction, space.vectors)
    values, rows = largest(cosines.T, min(k, len(space)))
    return Near(rows.numpy(), values.clamp(-1, 1).numpy())

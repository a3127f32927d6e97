"""Which rows are near each other, within a space and across both."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.estimators import AnchorDiscovery
from kedge.geometry import unit
from kedge.matching import top_k
from kedge.spaces import Embeddings
from kedge.tasks.key_search import rank
from kedge.tasks.row_transforms import transform_rows

Side = Literal["x", "y"]


class Near(NamedTuple):
    """The rows (q, k) nearest to each of q queries, nearest first, and their cosine similarities (q, k)."""

    rows: NDArray[np.int64]
    similarity: NDArray[np.float32]


class Neighbourhoods:
    """Both spaces, normalised and in shared coordinates, held in memory to look up neighbours."""

    def __init__(self, discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> None:
        self._spaces = {
            "x": transform_rows(discovery.x_.normalise, x.vectors),
            "y": transform_rows(discovery.y_.normalise, y.vectors),
        }
        self._shared = {
            "x": transform_rows(discovery.x_.shared, x.vectors),
            "y": transform_rows(discovery.y_.shared, y.vectors),
        }

    def within(self, side: Side, rows: NDArray[np.int64], k: int) -> Near:
        """The k nearest rows of the same space by cosine, without the row itself."""
        space = self._spaces[side]
        values, near = top_k(space[torch.from_numpy(rows)], space, k + 1)
        k = values.shape[1] - 1
        # The row itself is nearly always first, but among equal rows it may be anywhere, or missing.
        other = near != torch.from_numpy(rows)[:, None]
        order = (~other).int().argsort(dim=1, stable=True)[:, :k]
        return Near(near.gather(1, order).numpy(), values.gather(1, order).numpy())

    def across(self, side: Side, rows: NDArray[np.int64], k: int) -> Near:
        """The k rows of the other space that are most likely the same item as each row, ranked as by `kedge search`."""
        queries, others = self._shared[side], self._shared["y" if side == "x" else "x"]
        found = rank(queries[torch.from_numpy(rows)], others, k)
        return Near(found.rows.numpy(), found.similarity.numpy())


def shared_directions(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> Tensor:
    """Unit rows (n + m, c), X's followed by Y's: their directions in shared coordinates."""
    directions = len(discovery.model_.correlations)
    sides = ((discovery.x_.shared, x), (discovery.y_.shared, y))
    rows = [transform_rows(transform, space.vectors)[:, :directions] for transform, space in sides]
    return unit(torch.cat(rows))


def shared_columns(discovery: AnchorDiscovery) -> int:
    """The number of shared coordinates."""
    return len(discovery.model_.correlations) + 2

"""Who is near whom, within a space and across both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.discovery import AnchorDiscovery
from kedge.matching import top_k
from kedge.spaces import Embeddings

Side = Literal["x", "y"]

_ROWS = 65_536


class Near(NamedTuple):
    """The nearest rows (q, k) of each of q queries, and their cosine similarities (q, k), nearest first."""

    rows: NDArray[np.int64]
    similarity: NDArray[np.float32]


class Neighbourhoods:
    """Both spaces, and X once more in Y's, normalised and held in memory to look neighbours up in."""

    def __init__(self, discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> None:
        self._spaces = {
            "x": _in_blocks(discovery.normalise_x, x.vectors, x.dim),
            "y": _in_blocks(discovery.normalise_y, y.vectors, y.dim),
        }
        self._mapped_x = _in_blocks(discovery.map_x, x.vectors, y.dim)

    def within(self, side: Side, rows: NDArray[np.int64], k: int) -> Near:
        """The k nearest rows of the same space, without the row itself."""
        space = self._spaces[side]
        values, near = top_k(space[torch.from_numpy(rows)], space, k + 1)
        k = values.shape[1] - 1
        # The row itself is nearly always first; among equal rows it may be anywhere, or not be there at all.
        other = near != torch.from_numpy(rows)[:, None]
        order = (~other).int().argsort(dim=1, stable=True)[:, :k]
        return Near(near.gather(1, order).numpy(), values.gather(1, order).numpy())

    def across(self, side: Side, rows: NDArray[np.int64], k: int) -> Near:
        """The k nearest rows of the other space, X being carried into Y by the run's map."""
        index = torch.from_numpy(rows)
        queries, space = (self._mapped_x, self._spaces["y"]) if side == "x" else (self._spaces["y"], self._mapped_x)
        values, near = top_k(queries[index], space, k)
        return Near(near.numpy(), values.numpy())


def _in_blocks(
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]], vectors: NDArray[np.float32], dim: int
) -> Tensor:
    """What becomes of vectors (n, d), as (n, dim), with temporaries for some rows at a time."""
    changed = torch.empty(len(vectors), dim)
    for begin in range(0, len(vectors), _ROWS):
        block = change(vectors[begin : begin + _ROWS])
        changed[begin : begin + len(block)] = torch.from_numpy(block)
    return changed

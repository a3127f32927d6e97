"""Who is near whom, within a space and across both."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.discovery import AnchorDiscovery
from kedge.geometry import unit
from kedge.matching import top_k
from kedge.spaces import Embeddings

Side = Literal["x", "y"]


class Near(NamedTuple):
    """The nearest rows (q, k) of each of q queries, and their cosine similarities (q, k), nearest first."""

    rows: NDArray[np.int64]
    similarity: NDArray[np.float32]


class Neighbourhoods:
    """Both spaces, and X once more in Y's, normalised and held in memory to look neighbours up in."""

    def __init__(self, discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> None:
        self._spaces = {
            "x": torch.from_numpy(discovery.normalise_x(x)),
            "y": torch.from_numpy(discovery.normalise_y(y)),
        }
        self._map = torch.from_numpy(discovery.map_)

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

    @cached_property
    def _mapped_x(self) -> Tensor:
        """X in Y's space (n, dy)."""
        return unit(self._spaces["x"] @ self._map)

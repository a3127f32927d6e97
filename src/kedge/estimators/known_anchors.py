"""`KnownAnchors`: relative coordinates from known pairs, with nothing discovered."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import NotFittedError
from kedge.estimators.devices import load_rows, survey, to_numpy
from kedge.estimators.pair_inputs import PairsLike, as_seed_rows
from kedge.estimators.parameters import Parameters
from kedge.models.side import Side
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space


class KnownAnchors(Parameters):
    """Relative coordinates whose anchors are given: the GT and Seed rows of result tables.

    Parameters
    ----------
    center : bool
        Subtract the mean from both spaces, as `AnchorDiscovery` does.

    Attributes
    ----------
    anchors_x_, anchors_y_ : int arrays, shape (a,)
        The pairs as rows of X and Y, each pair once.
    anchor_keys_ : list of (x key, y key)
    x_, y_ : Side
        The two sides; `x_.relative` and `y_.relative` give comparable coordinates.

    Examples
    --------
    >>> known = KnownAnchors().fit(x, y, [("cat", "chat"), ...])
    >>> known.x_.relative(x).shape, known.y_.relative(y).shape
    ((20000, 300), (18000, 300))
    """

    def __init__(self, *, center: bool = True) -> None:
        self.center = center

    def fit(self, x: SpaceLike, y: SpaceLike, pairs: PairsLike) -> KnownAnchors:
        """Take the anchors from two spaces and their known pairs.

        Parameters
        ----------
        x, y : spaces (n, dx) and (m, dy)
            Embeddings, arrays, DataFrames, ...: see `AnchorDiscovery.fit`.
        pairs : pairs of keys or rows
            At least one, in any form that seeds may have there.
        """
        space_x, space_y = as_space(x, "x"), as_space(y, "y")
        rows = as_seed_rows(pairs, space_x, space_y, 1, "pairs")
        self.anchors_x_, self.anchors_y_ = rows[:, 0], rows[:, 1]
        self.anchor_keys_ = [(space_x.keys[left], space_y.keys[right]) for left, right in rows.tolist()]
        self.x_ = self._side("X", space_x, self.anchors_x_, space_y.dim)
        self.y_ = self._side("Y", space_y, self.anchors_y_, space_x.dim)
        return self

    def _side(self, name: Literal["X", "Y"], space: Embeddings, rows: NDArray[np.int64], other_dim: int) -> Side:
        seen = survey(space.vectors, torch.device("cpu"), name.lower())
        center = seen.center if self.center else None
        anchors = {"free": load_rows(space.vectors, rows, center)}
        return Side(name, space.dim, other_dim, to_numpy(center), seen.mean_norm, anchors)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "y_")

    def __getattr__(self, name: str) -> object:
        if name in ("x_", "y_"):
            raise NotFittedError("these KnownAnchors are not fitted yet; call fit first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

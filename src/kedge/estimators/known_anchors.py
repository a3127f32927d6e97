"""`KnownAnchors`: relative coordinates from pairs that are known, nothing discovered."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import NotFittedError
from kedge.estimators.devices import load_normalised, normalise_rows, refuse_one_direction, to_numpy
from kedge.estimators.inputs import as_vectors
from kedge.estimators.pair_inputs import PairsLike, as_seed_rows
from kedge.estimators.parameters import Parameters
from kedge.geometry import relative
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space


class KnownAnchors(Parameters):
    """Relative coordinates whose anchors are given: the GT and Seed rows of result tables.

    Parameters
    ----------
    center : bool
        Take the mean off both spaces, as `AnchorDiscovery` does.

    Attributes
    ----------
    anchors_x_, anchors_y_ : int arrays, shape (a,)
        The pairs as rows of X and Y, each pair once.
    anchor_keys_ : list of (x key, y key)
    anchor_vectors_x_, anchor_vectors_y_ : float arrays, shapes (a, dx) and (a, dy)
        The same rows, normalised.
    center_x_, center_y_ : float arrays, shapes (dx,) and (dy,), or None
        What was taken off.

    Examples
    --------
    >>> known = KnownAnchors().fit(x, y, [("cat", "chat"), ...])
    >>> known.transform_x(x).shape, known.transform_y(y).shape
    ((20000, 300), (18000, 300))
    """

    def __init__(self, *, center: bool = True) -> None:
        self.center = center

    def fit(self, x: SpaceLike, y: SpaceLike, pairs: PairsLike) -> KnownAnchors:
        """Take the anchors from two spaces.

        Parameters
        ----------
        x, y : spaces (n, dx) and (m, dy)
            Embeddings, arrays, DataFrames, ...: see `AnchorDiscovery.fit`.
        pairs : pairs of keys or rows
            In any of the forms that seeds have there; at least one.
        """
        space_x, space_y = as_space(x, "x"), as_space(y, "y")
        rows = as_seed_rows(pairs, space_x, space_y, 1, "pairs")
        self.anchors_x_, self.anchors_y_ = rows[:, 0], rows[:, 1]
        self.anchor_keys_ = [(space_x.keys[left], space_y.keys[right]) for left, right in rows.tolist()]
        self.anchor_vectors_x_, self.center_x_ = self._learn(space_x, self.anchors_x_, "x")
        self.anchor_vectors_y_, self.center_y_ = self._learn(space_y, self.anchors_y_, "y")
        return self

    def _learn(
        self, space: Embeddings, rows: NDArray[np.int64], name: str
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """The normalised anchors (a, d) of a space and its center (d,)."""
        loaded = load_normalised(space.vectors, torch.device("cpu"), center=self.center)
        refuse_one_direction(loaded.rows, name)
        return to_numpy(loaded.rows.take(torch.from_numpy(rows))), to_numpy(loaded.center)

    def transform_x(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dx) of X: cosines to the anchors."""
        self._check_fitted()
        rows = as_vectors(vectors, "X", self._dims)
        return relative(normalise_rows(rows, self.center_x_), self.anchor_vectors_x_)

    def transform_y(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dy) of Y, comparable with those of X."""
        self._check_fitted()
        rows = as_vectors(vectors, "Y", self._dims)
        return relative(normalise_rows(rows, self.center_y_), self.anchor_vectors_y_)

    @property
    def _dims(self) -> tuple[int, int]:
        return self.anchor_vectors_x_.shape[1], self.anchor_vectors_y_.shape[1]

    def _check_fitted(self) -> None:
        if not hasattr(self, "anchor_vectors_y_"):
            raise NotFittedError("these KnownAnchors are not fitted yet; call fit first")

"""One space as a fitted run sees it: how its vectors are normalised, whitened, and given coordinates. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.models.translator import Normaliser, unit_rows
from kedge.spaces.conversion import SpaceLike, as_matrix
from kedge.spaces.embeddings import Embeddings, Key

AnchorKind = Literal["free", "snapped", "seeds"]


@dataclass(frozen=True)
class Side:
    """One side of a fitted run, "X" or "Y", with d dimensions; rows with `unmatched_keys` have no match.

    `center` (d,) is what was subtracted from its unit rows (None if nothing was), `mean_norm` the mean length of its
    vectors, `whitening` (d, d) what the rows were multiplied by (None if they were not whitened). `anchors` are the
    reference points (a, d) of relative coordinates, by kind. `directions` (d, c) and `correlations` (c,) are those of
    the pair model, or None. `other_dim` is the dimension of the other side, for messages. If the d dimensions are the
    first of more, `prefix_of` says of how many, and methods take vectors of that length, too.
    """

    name: Literal["X", "Y"]
    dim: int
    other_dim: int
    center: NDArray[np.float32] | None
    mean_norm: float
    anchors: Mapping[str, NDArray[np.float32]]
    whitening: NDArray[np.float32] | None = None
    directions: NDArray[np.float32] | None = None
    correlations: NDArray[np.float32] | None = None
    unmatched_keys: tuple[Key, ...] = ()
    prefix_of: int | None = None

    @property
    def normaliser(self) -> Normaliser:
        """Unit norm and centering as in `fit`."""
        return Normaliser(np.zeros(self.dim, dtype=np.float32) if self.center is None else self.center)

    def normalise(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Vectors (k, d), or one (d,), with unit norm and centered as in `fit`."""
        given = self.as_vectors(vectors)
        return self.normaliser(given.reshape(-1, self.dim)).reshape(given.shape)

    def whiten(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Vectors (k, d) as anchors see them: normalised, and whitened if the run is."""
        normalised = self.normalise(vectors)
        if self.whitening is None:
            return normalised
        return unit_rows(normalised.reshape(-1, self.dim) @ self.whitening).reshape(normalised.shape)

    def relative(self, vectors: SpaceLike, *, anchors: AnchorKind = "free") -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, d): cosines to the anchors, comparable with the other side's.

        "free" anchors are those that were found (on side X, rows of X), "snapped" ones are rows of Y, and "seeds" are
        the known pairs alone.
        """
        if anchors not in self.anchors:
            raise InputError(f"anchors must be one of {', '.join(self.anchors)}, got {anchors!r}")
        return self.whiten(vectors) @ self.anchors[anchors].T

    def shared(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Shared coordinates (k, c + 2) of vectors (k, d).

        Their inner product with those of a vector of the other side is the log likelihood ratio of the pair model: how
        much likelier the two are one item than two. It is the best similarity for search in either direction, with an
        index that supports inner products.
        """
        if self.directions is None or self.correlations is None:
            raise InputError("shared coordinates need a pair model, and there is none here; fit an AnchorDiscovery")
        canonical = self.normalise(vectors) @ self.directions
        left_over = 1 - self.correlations**2
        lost = canonical**2 @ (self.correlations**2 / (2 * left_over))[:, None]
        weighted = canonical * np.sqrt(self.correlations / left_over)
        information = np.float32(-np.log1p(-(self.correlations.astype(np.float64) ** 2)).sum() / 2)
        ones = np.ones_like(lost)
        biases = (information - lost, ones) if self.name == "X" else (ones, -lost)
        return np.concatenate([weighted, *biases], axis=-1)

    def as_vectors(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Check vectors (k, d), or one (d,), in any form that a space may have, and convert them to float32."""
        source = vectors.source if isinstance(vectors, Embeddings) else "vectors"
        matrix = as_matrix(vectors, source)
        if matrix.ndim == 1:
            return self.as_vectors(matrix[None])[0]
        if not isinstance(vectors, Embeddings):
            vectors = Embeddings(range(len(matrix)) if matrix.ndim else (), matrix, source)
        if vectors.dim == self.prefix_of:
            vectors = vectors.first_dims(self.dim)
        if vectors.dim != self.dim:
            raise InputError(
                f"{source}: has {vectors.dim} dimensions, but {self.name} of this run has {self.dim}; give vectors of "
                f"{self.name}'s encoder{self._hint if vectors.dim == self.other_dim else ''}"
            )
        return vectors.vectors.astype(np.float32, copy=False)

    def prefix_hint(self, dim: int) -> str:
        """What to do with a space of this dimension, if this side has the first dimensions of such spaces."""
        if dim != self.prefix_of:
            return ""
        first = f"the first {self.dim} of its {dim} dimensions"
        return f"; the run uses {first}: shorten it with `kedge convert --dims {self.dim}`"

    @property
    def _hint(self) -> str:
        other, back = ("Y", "with back=True") if self.name == "X" else ("X", "without back")
        return f"; {other} has {self.other_dim}: use `{other.lower()}_` for its vectors, and `translate` {back}"

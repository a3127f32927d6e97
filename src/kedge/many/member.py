"""One space of a common space: how its vectors get there and back, and how they compare with others'. NumPy only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.models.side import Side
from kedge.models.translator import Normaliser
from kedge.spaces.conversion import SpaceLike, as_matrix
from kedge.spaces.embeddings import Embeddings

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Member:
    """A space of n `rows` with d dimensions, by its `name`.

    `center` (d,) is what was subtracted from its unit rows, `mean_norm` the mean length that they had, `checksum` that
    of its vectors. `into` (d, D) takes its normalised rows into the common space, `back` (D, d) out of it.
    `directions` (d, c) are those of the common factors, `loadings` (c,) say how far it knows each of them, and
    `usual` (c,) how far spaces knew them on average when the common space was made.
    """

    name: str
    rows: int
    center: Matrix
    mean_norm: float
    checksum: str
    into: Matrix
    back: Matrix
    directions: Matrix
    loadings: Matrix
    usual: Matrix

    @property
    def dim(self) -> int:
        """Dimensions d."""
        return len(self.center)

    @property
    def normaliser(self) -> Normaliser:
        """Unit norm and centering as in `fit`."""
        return Normaliser(self.center)

    def as_vectors(self, vectors: SpaceLike) -> Matrix:
        """Vectors (k, d), or one (d,), in any form that a space may have, checked."""
        source = vectors.source if isinstance(vectors, Embeddings) else "vectors"
        matrix = as_matrix(vectors, source)
        if matrix.ndim == 1:
            one: Matrix = self.as_vectors(matrix[None])[0]
            return one
        if not isinstance(vectors, Embeddings):
            vectors = Embeddings(range(len(matrix)) if matrix.ndim else (), matrix, source)
        if vectors.dim != self.dim:
            raise InputError(
                f"{source}: has {vectors.dim} dimensions, {self.name!r} of this common space has {self.dim}; give "
                "vectors of its encoder, or name the space they are of"
            )
        checked: Matrix = vectors.vectors.astype(np.float32, copy=False)
        return checked

    def project(self, vectors: SpaceLike, *, query: bool = False) -> Matrix:
        """Common coordinates (k, c + 2) of vectors (k, d), or those of one (d,).

        The inner product of those of a query and of a document, of whatever spaces, is the log of how much likelier
        they are one item than two: exactly so for spaces that know the factors equally well. What a vector has by
        itself stands in the last two coordinates, in the other order for queries.
        """
        given = self.as_vectors(vectors)
        canonical = self.normaliser(given.reshape(-1, self.dim)) @ self.directions
        loadings, correlations = self.loadings.astype(np.float64), self.loadings.astype(np.float64) * self.usual
        weights = np.sqrt(loadings**2 / (1 - loadings**4))
        left_over = 1 - correlations**2
        own = -(canonical.astype(np.float64) ** 2) @ (correlations**2 / (2 * left_over)) - np.log(left_over).sum() / 4
        ones = np.ones_like(own)
        last = (own, ones) if query else (ones, own)
        found = np.concatenate([canonical * weights, *(column[:, None] for column in last)], axis=1)
        return found.astype(np.float32).reshape(*given.shape[:-1], -1)

    def side(self, name: str, other: Member) -> Side:
        """The space as one side, "X" or "Y", of a pair with another: as the likelihood of just these two reads it."""
        correlations = self.loadings * other.loadings
        return Side(
            "X" if name == "X" else "Y",
            self.dim,
            other.dim,
            self.center,
            self.mean_norm,
            {},
            None,
            self.directions,
            correlations,
        )


@dataclass(frozen=True)
class PairOfMembers:
    """Two members: what `AnchorDiscovery` has as `x_` and `y_`, so that whatever needs just these can be done here."""

    source: Member
    target: Member

    @cached_property
    def x_(self) -> Side:
        """The source as side X."""
        return self.source.side("X", self.target)

    @cached_property
    def y_(self) -> Side:
        """The target as side Y."""
        return self.target.side("Y", self.source)

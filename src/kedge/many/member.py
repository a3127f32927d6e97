"""A member of a common space: how its vectors get there and back, and how they compare with others. NumPy only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.many.numerics.common_coordinates import by_distance, by_inner_product, from_distance
from kedge.models.side import Side
from kedge.models.translator import Normaliser
from kedge.spaces.conversion import SpaceLike, as_matrix
from kedge.spaces.embeddings import Embeddings

Matrix = NDArray[np.float32]
CommonMetric = Literal["ip", "l2"]
"""How common coordinates are compared: by inner product, or by distance."""


@dataclass(frozen=True)
class Member:
    """A space called `name` with n `rows` and d dimensions.

    `center` (d,) was subtracted from its unit rows, `mean_norm` is the mean length of its vectors, `checksum` is that
    of its vectors. `into` (d, D) maps its normalised rows into the common space, `back` (D, d) out of it.
    `directions` (d, c) are those of the common factors, `loadings` (c,) say how well the space knows each of them, and
    `usual` (c,) how well members knew them on average when the common space was made.
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
        """The number of dimensions d."""
        return len(self.center)

    @property
    def normaliser(self) -> Normaliser:
        """Scales to unit norm and centers as `fit` did."""
        return Normaliser(self.center)

    def as_vectors(self, vectors: SpaceLike) -> Matrix:
        """Check vectors (k, d), or one (d,), given in any form that a space may have."""
        source = vectors.source if isinstance(vectors, Embeddings) else "vectors"
        matrix = as_matrix(vectors, source)
        if matrix.ndim == 1:
            one: Matrix = self.as_vectors(matrix[None])[0]
            return one
        if not isinstance(vectors, Embeddings):
            vectors = Embeddings(range(len(matrix)) if matrix.ndim else (), matrix, source)
        if vectors.dim != self.dim:
            raise InputError(
                f"{source}: has {vectors.dim} dimensions, but {self.name!r} of this common space has {self.dim}; give "
                "vectors of its encoder, or name the space that they belong to"
            )
        checked: Matrix = vectors.vectors.astype(np.float32, copy=False)
        return checked

    def project(self, vectors: SpaceLike, *, query: bool = False, metric: CommonMetric = "ip") -> Matrix:
        """Common coordinates of vectors (k, d), or of one (d,), of documents or of queries.

        "ip" (k, c + 2): the inner product of a query's and a document's coordinates, of any two members, is the log
        likelihood ratio of their being one item rather than two; exactly so if both know the factors equally well. The
        last two coordinates hold the term of the vector itself and a 1, in reverse order for documents.

        "l2" (k, c + 1): the same order by distance, for indexes without inner product.
        """
        if metric not in ("ip", "l2"):
            raise InputError(f"metric must be 'ip' (inner product) or 'l2' (distance), got {metric!r}")
        given = self.as_vectors(vectors)
        canonical = self.normaliser(given.reshape(-1, self.dim)) @ self.directions
        transform = by_inner_product if metric == "ip" else by_distance
        parts = (part.astype(np.float64) for part in (canonical, self.loadings, self.usual))
        return transform(*parts, query=query).astype(np.float32).reshape(*given.shape[:-1], -1)

    def coordinates(self, metric: CommonMetric = "ip") -> int:
        """The number of common coordinates."""
        return len(self.loadings) + (2 if metric == "ip" else 1)

    def as_documents(self, space: Embeddings) -> Matrix:
        """Check common coordinates of documents: for inner products (m, c + 2), or for distances (m, c + 1), which are
        converted.
        """
        if space.dim == self.coordinates("l2"):
            return from_distance(space.vectors.astype(np.float64), self.usual.astype(np.float64)).astype(np.float32)
        if space.dim != self.coordinates("ip"):
            raise InputError(
                f"{space.source}: has {space.dim} numbers per row, but common coordinates of this run have "
                f"{self.coordinates('ip')}, or {self.coordinates('l2')} for distances; `kedge migrate` and `kedge "
                "project` write those; for the vectors of another space, name it with --to"
            )
        return np.ascontiguousarray(space.vectors, dtype=np.float32)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the projection: coordinates of two runs can be mixed if they share a member with this hash."""
        parts = (self.center, self.directions, self.loadings, self.usual)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()[:16]

    def side(self, name: str, other: Member) -> Side:
        """The space as side "X" or "Y" of a pair with another member, read by the likelihood of just these two."""
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
    """Two members with `x_` and `y_` like an `AnchorDiscovery`, for anything that needs only these."""

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

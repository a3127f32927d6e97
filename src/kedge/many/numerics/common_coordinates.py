"""Common coordinates, by which rows of any spaces are compared as log likelihood ratios. NumPy only.

For a row u (c,) of a space with loadings r and a row v of a space with loadings s, the log likelihood ratio of being
one item rather than two is sum(r s u v / (1 - r^2 s^2)) plus a term of each row alone. In both parts, each row uses the
`usual` loadings in place of the other space's, so that it has coordinates of its own; this is exact if all spaces know
the factors equally well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_LOADING = 0.98**0.5
"""Larger loadings are not believed: between two spaces this one already gives a correlation of 0.98."""

Vector = NDArray[np.float64]


class _Weights(NamedTuple):
    """Weights of the factors (c,) in products with other rows and in the row's own term, and its constant."""

    cross: Vector
    own: Vector
    constant: float


def by_inner_product(canonical: Vector, loadings: Vector, usual: Vector, *, query: bool) -> Vector:
    """Coordinates (n, c + 2) of rows (n, c): the inner product of a query's and a document's is the log ratio.

    The last two coordinates hold the row's own term and a 1, in reverse order for documents.
    """
    weights = _weights(loadings, usual)
    own = (weights.constant - canonical**2 @ (weights.own / 2))[:, None]
    ones = np.ones_like(own)
    return np.concatenate([canonical * weights.cross, *((own, ones) if query else (ones, own))], axis=1)


def by_distance(canonical: Vector, loadings: Vector, usual: Vector, *, query: bool) -> Vector:
    """Coordinates (n, c + 1) of rows (n, c): the higher the log ratio, the nearer a document is to a query.

    This is for indexes without inner product. Queries are stretched, and documents shrunk, until a document's squared
    length is below what its own term requires; one further coordinate makes up the difference. The stretch suffices for
    any loadings, so that coordinates of a space that joins later fit in.
    """
    weights, stretch = _weights(loadings, usual), _stretch(usual)
    if query:
        return np.concatenate([canonical * weights.cross * stretch, np.zeros((len(canonical), 1))], axis=1)
    cross = weights.cross / stretch
    rest = canonical**2 @ (weights.own - cross**2) + _room(usual) - 2 * weights.constant
    return np.concatenate([canonical * cross, np.sqrt(rest.clip(0))[:, None]], axis=1)


def from_distance(documents: Vector, usual: Vector) -> Vector:
    """Convert documents' coordinates for distances (n, c + 1) to those for inner products (n, c + 2)."""
    own = (_room(usual) - (documents**2).sum(axis=1, keepdims=True)) / 2
    return np.concatenate([documents[:, :-1] * _stretch(usual), np.ones_like(own), own], axis=1)


def _stretch(usual: Vector) -> Vector:
    """The factor (c,) by which queries are stretched along each axis: enough for the largest loading."""
    largest = MAX_LOADING**2
    return np.asarray(np.sqrt((1 - largest * usual**2) / (usual**2 * (1 - largest**2))))


def _room(usual: Vector) -> float:
    """An upper bound of twice the own term of any document of any space."""
    return float(-np.log(1 - MAX_LOADING**2 * usual**2).sum() / 2)


def _weights(loadings: Vector, usual: Vector) -> _Weights:
    known, correlations = loadings**2, (loadings * usual) ** 2
    own = correlations / (1 - correlations)
    return _Weights(np.sqrt(known / (1 - known**2)), own, float(-np.log(1 - correlations).sum() / 4))

"""Common coordinates: what a row is compared by with rows of any space, as a log likelihood ratio. NumPy only.

A row u (c,) of a space that knows the factors by loadings r, and one v of a space that knows them by s, are one item
rather than two by a log likelihood ratio of sum(r s u v / (1 - r^2 s^2)) plus what each has by itself. Both parts are
taken with what spaces `usually` know in the other's place, so that either row has coordinates of its own; that is exact
where all spaces know the factors equally well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_LOADING = 0.98**0.5
"""Larger loadings are not believed: of two spaces they make a correlation of .98."""

Vector = NDArray[np.float64]


class _Weights(NamedTuple):
    """Of a factor (c,) in products with others' rows, and in what a row has by itself; and what each row has."""

    cross: Vector
    own: Vector
    constant: float


def by_inner_product(canonical: Vector, loadings: Vector, usual: Vector, *, query: bool) -> Vector:
    """Coordinates (n, c + 2) of rows (n, c): the inner product of a query's and a document's is the ratio.

    What a row has by itself stands in the last two coordinates, in the other order for queries.
    """
    weights = _weights(loadings, usual)
    own = (weights.constant - canonical**2 @ (weights.own / 2))[:, None]
    ones = np.ones_like(own)
    return np.concatenate([canonical * weights.cross, *((own, ones) if query else (ones, own))], axis=1)


def by_distance(canonical: Vector, loadings: Vector, usual: Vector, *, query: bool) -> Vector:
    """Coordinates (n, c + 1) of rows (n, c): documents are as near to a query as the ratio is high.

    For indexes that know no inner product. Queries are stretched, and documents shrunk, until what a document has by
    itself is less than its squared length, which one further coordinate makes up for. The stretching is enough for any
    loadings, so that the coordinates of a space that joins later fit.
    """
    weights, stretch = _weights(loadings, usual), _stretch(usual)
    if query:
        return np.concatenate([canonical * weights.cross * stretch, np.zeros((len(canonical), 1))], axis=1)
    cross = weights.cross / stretch
    rest = canonical**2 @ (weights.own - cross**2) + _room(usual) - 2 * weights.constant
    return np.concatenate([canonical * cross, np.sqrt(rest.clip(0))[:, None]], axis=1)


def from_distance(documents: Vector, usual: Vector) -> Vector:
    """Coordinates (n, c + 2) by inner product of documents that have such by distance (n, c + 1)."""
    own = (_room(usual) - (documents**2).sum(axis=1, keepdims=True)) / 2
    return np.concatenate([documents[:, :-1] * _stretch(usual), np.ones_like(own), own], axis=1)


def _stretch(usual: Vector) -> Vector:
    """By how much queries are stretched along each factor (c,): enough for the largest loading."""
    largest = MAX_LOADING**2
    return np.asarray(np.sqrt((1 - largest * usual**2) / (usual**2 * (1 - largest**2))))


def _room(usual: Vector) -> float:
    """More than twice what a document of any space has, whatever its row."""
    return float(-np.log(1 - MAX_LOADING**2 * usual**2).sum() / 2)


def _weights(loadings: Vector, usual: Vector) -> _Weights:
    known, correlations = loadings**2, (loadings * usual) ** 2
    own = correlations / (1 - correlations)
    return _Weights(np.sqrt(known / (1 - known**2)), own, float(-np.log(1 - correlations).sum() / 4))

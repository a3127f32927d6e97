"""How alike the directions of two groups of vectors are: the invariant behind `drift` and `audit`.

Two separately trained models put their vectors into unrelated directions: relative to one group, the second moments of
the other look randomly rotated. Groups of rows of one model, whatever their topics, share most of their directions. If
one of two traceless symmetric matrices is rotated at random, their cosine has mean 0 and a standard deviation of
sqrt(2) / d, whatever their spectra, so the threshold for "unrelated" follows from d alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

# A group whose moments are no further than this from those of random directions cannot be recognised.
_MIN_STRUCTURE = 0.2
# Maximum number of rows whose neighbours are searched.
_MAX_ASKING = 1000


def unit_rows(vectors: NDArray[np.floating]) -> Rows:
    """Vectors (n, d) scaled to unit length; a zero row stays zero."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float32).tiny), dtype=np.float32)


def likeness(a: Rows, b: Rows) -> float:
    """How alike the directions of unit rows (n, d) and (m, d) are: 1 within one sample, 0 for unrelated models.

    This is the larger of two cosines, one of the raw second moments and one of those about each group's own mean, so a
    group counts as foreign only if neither its mean nor its variation is related to the other group. It is 1 if a group
    is too small or too uniform to tell.
    """
    return max(_moment_cosine(a, b), _moment_cosine(unit_rows(a - a.mean(axis=0)), unit_rows(b - b.mean(axis=0))))


def quick_likeness(rows: Rows, groups: Iterable[NDArray[np.bool_]]) -> list[float]:
    """The first cosine of `likeness`, a lower bound of it, between each group (n,) of unit rows (n, d) and the rest."""
    everything = rows.T @ rows
    found = []
    for group in groups:
        few = int(group.sum())
        own = rows[group].T @ rows[group]
        found.append(_cosine((everything - own) / (len(rows) - few), len(rows) - few, own / few, few))
    return found


def uniformity(rows: Rows) -> float:
    """How much more alike unit rows (n, d) are about their mean than random directions, for which it is 1."""
    centered = unit_rows(rows - rows.mean(axis=0))
    return 1 + max(0.0, _structure(centered.T @ centered / len(centered), len(centered)))


def crossing(rows: Rows, group: NDArray[np.bool_], count: int = 5) -> float:
    """The share of the nearest neighbours of a group's rows that are outside the group (n,) of unit rows (n, d)."""
    asking = np.flatnonzero(group)[:_MAX_ASKING]
    similarity = rows[asking] @ rows.T
    similarity[np.arange(len(asking)), asking] = -np.inf
    nearest = np.argpartition(-similarity, count, axis=1)[:, :count]
    return 1 - float(np.mean(group[nearest]))


def unrelated_below(dim: int) -> float:
    """The likeness below which two groups are called unrelated; by chance it is practically never exceeded."""
    # The cosine of two rank-one moments, the case with the longest tail, is distributed as chi-square with one degree
    # of freedom over d: 12 / d is exceeded once in 2,000 pairs of unrelated models.
    return min(max(0.05, 12 / dim), 0.15)


def _moment_cosine(a: Rows, b: Rows) -> float:
    return _cosine(a.T @ a / len(a), len(a), b.T @ b / len(b), len(b))


def _cosine(moments_a: NDArray[np.floating], count_a: int, moments_b: NDArray[np.floating], count_b: int) -> float:
    """Cosine of what two second moments (d, d) of `count` rows each have beyond those of random directions."""
    own_a, own_b = _structure(moments_a, count_a), _structure(moments_b, count_b)
    if min(own_a, own_b) < _MIN_STRUCTURE:
        return 1.0
    shared = len(moments_a) * float(np.vdot(moments_a, moments_b)) - 1
    return float(shared / np.sqrt(own_a * own_b))


def _structure(moments: NDArray[np.floating], count: int) -> float:
    """The mean squared cosine of two different rows, times d, minus 1: 0 for random directions."""
    if count < 2:
        return 0.0
    squared = float(np.vdot(moments, moments))
    between = (squared * count - 1) / (count - 1)  # without each row's cosine with itself, which is 1
    return len(moments) * between - 1

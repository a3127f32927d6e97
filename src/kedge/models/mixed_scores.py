"""Comparable scores for rows that a model encoded itself (*native*) and translated ones, in one index.

Both kinds have the same mean similarity to a query, but different tails, and the nearest rows are in the tail: one kind
crowds the other out of the first ten. How far the tails lie apart can be measured without queries, pairs or judgements,
on equal samples of both kinds: native rows serve as queries, and the similarities that it takes to be among the first
ten in an index of either kind are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kedge.models.translator import unit_vectors

MAX_QUERIES, MAX_ROWS = 500, 2000
"""The most native rows that serve as queries, and rows of either kind that they search; more change little."""

_MIN_QUERIES, _MIN_ROWS = 30, 100
_FOUND = 10


@dataclass(frozen=True)
class ScoreOffsets:
    """What is added to the similarity of translated rows in an index where they compete with native ones.

    `to_y` is for rows of X in Y's space, `to_x` for rows of Y in X's.
    """

    to_y: float
    to_x: float


def measure_offset(
    native: NDArray[np.float32], translated: NDArray[np.float32], partners: NDArray[np.int64], index_rows: int
) -> float | None:
    """The offset with which translated rows (m, d) are among the first ten as often as native rows (n, d) are.

    It is added to their similarities, in an index of `index_rows` rows; None if there are too few rows to tell.
    `partners` (n,) are the translated rows that are the same texts as the native ones, -1 if there is none: no text may
    find itself. Both are samples in random order.
    """
    queries = min(MAX_QUERIES, len(native) // 3)
    rows = min(MAX_ROWS, len(native) - queries, len(translated))
    if queries < _MIN_QUERIES or rows < _MIN_ROWS:
        return None
    native, translated = unit_vectors(native[: queries + rows]), unit_vectors(translated[:rows])
    asked, others = native[:queries], native[queries:]
    # The rank in the sample that corresponds to the tenth in the whole index.
    place = max(1, round(_FOUND * rows / index_rows))
    own, other = asked @ others.T, asked @ translated.T
    paired = np.flatnonzero((partners[:queries] >= 0) & (partners[:queries] < rows))
    other[paired, partners[paired]] = -np.inf
    levels = (np.partition(scores, -place, axis=1)[:, -place].mean(dtype=np.float64) for scores in (own, other))
    return float(next(levels) - next(levels))

"""Rows that a model encoded itself (*native*) and translated ones, in one index: what makes their scores comparable.

Both kinds have the same mean similarity to a query, but another tail, and the nearest rows are in the tail: one kind
crowds the other out of the first ten. How far the tails lie apart shows without queries, pairs or judgements, on equal
samples of both kinds: rows of the one ask, and what would be among their first ten in an index of either is compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kedge.models.translator import unit_vectors

MAX_QUERIES, MAX_ROWS = 500, 2000
"""Of the native rows that ask, and of either kind that they ask; more change little."""

_MIN_QUERIES, _MIN_ROWS = 30, 100
_FOUND = 10


@dataclass(frozen=True)
class ScoreOffsets:
    """What is added to the similarity of a translated row in an index where it competes with native ones: in Y's space
    to rows of X (`to_y`), in X's to rows of Y (`to_x`).
    """

    to_y: float
    to_x: float


def measure_offset(
    native: NDArray[np.float32], translated: NDArray[np.float32], partners: NDArray[np.int64], index_rows: int
) -> float | None:
    """What is to be added to similarities of translated rows (m, d) so that they are among the first ten as often as
    native rows (n, d) are, in an index of so many rows; None where there are too few rows to say.

    `partners` (n,) are the translated rows that are the same texts as the native ones, -1 where there is none: no text
    finds itself. Both are samples in random order.
    """
    queries = min(MAX_QUERIES, len(native) // 3)
    rows = min(MAX_ROWS, len(native) - queries, len(translated))
    if queries < _MIN_QUERIES or rows < _MIN_ROWS:
        return None
    native, translated = unit_vectors(native[: queries + rows]), unit_vectors(translated[:rows])
    asked, others = native[:queries], native[queries:]
    # As far up in the sample as the tenth is in the whole index.
    place = max(1, round(_FOUND * rows / index_rows))
    own, other = asked @ others.T, asked @ translated.T
    paired = np.flatnonzero((partners[:queries] >= 0) & (partners[:queries] < rows))
    other[paired, partners[paired]] = -np.inf
    levels = (np.partition(scores, -place, axis=1)[:, -place].mean(dtype=np.float64) for scores in (own, other))
    return float(next(levels) - next(levels))

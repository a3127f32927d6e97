"""Isotonic regression: sequences that never rise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def never_rising(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """The non-increasing sequence (c,) nearest to values (c,) by least squares, with weights (c,) if given.

    Isotonic regression by pooling adjacent violators: a value that exceeds the block before it is merged with it, and
    the block takes the mean. Not SciPy's, because importing that takes longer than a small discovery.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight and number of values
    given = np.ones(len(values)) if weights is None else weights
    for value, weight in zip(values.tolist(), given.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] < mean:
            before, its_weight, its_count = blocks.pop()
            mean = (its_weight * before + total * mean) / (its_weight + total)
            total, count = its_weight + total, its_count + count
        blocks.append((mean, total, count))
    return np.repeat([mean for mean, _, _ in blocks], [count for _, _, count in blocks])

"""Is confidence calibrated? Compare it with the truth, in bins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TWO_SIDED = 1.959963984540054  # the quantile of the normal distribution that leaves 2.5 % in either tail


def reliability(confidence: NDArray[np.float32], right: NDArray[np.bool_], bins: int = 10) -> NDArray[np.float64]:
    """A table (3, bins) over equal-width bins of confidence: pairs in the bin, sum of their confidence, right pairs."""
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    sums = (np.ones_like(confidence), confidence, right)
    return np.stack([np.bincount(bin_of, weights=each, minlength=bins) for each in sums])


def calibration_error(table: NDArray[np.float64]) -> float:
    """Expected calibration error over the bins of a reliability table (3, bins)."""
    count, confidence, right = table
    return float(np.abs(confidence - right).sum() / max(count.sum(), 1))


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion, when `right` of `count` draws are right."""
    square = _TWO_SIDED**2
    share, reach = right / count, count + square
    middle = (right + square / 2) / reach
    spread = _TWO_SIDED / reach * (count * share * (1 - share) + square / 4) ** 0.5
    return max(middle - spread, 0.0), min(middle + spread, 1.0)

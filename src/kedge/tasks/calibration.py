"""Is confidence calibrated? Confidence against the truth, in bins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_TWO_SIDED = 1.959963984540054  # the quantile of a normal law that leaves 2.5 % on either side


def reliability(confidence: NDArray[np.float32], right: NDArray[np.bool_], bins: int = 10) -> NDArray[np.float64]:
    """For each bin of confidence, of equal width, how many pairs (n,) are in it, the sum of their confidence, and how
    many of them are right: a table (3, bins).
    """
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    sums = (np.ones_like(confidence), confidence, right)
    return np.stack([np.bincount(bin_of, weights=each, minlength=bins) for each in sums])


def calibration_error(table: NDArray[np.float64]) -> float:
    """Expected calibration error over the bins of a reliability table (3, bins)."""
    count, confidence, right = table
    return float(np.abs(confidence - right).sum() / max(count.sum(), 1))


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """Between which shares the true one lies, with 95 % confidence, if so many of `count` draws are right (Wilson)."""
    square = _TWO_SIDED**2
    share, reach = right / count, count + square
    middle = (right + square / 2) / reach
    spread = _TWO_SIDED / reach * (count * share * (1 - share) + square / 4) ** 0.5
    return max(middle - spread, 0.0), min(middle + spread, 1.0)

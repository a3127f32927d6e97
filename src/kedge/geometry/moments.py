"""Second moments of paired rows: all that a linear map between them depends on, whatever the number of pairs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Sums over pairs, in float64.

    `source` (dx, dx) of x x^T, `cross` (dx, dy) of x y^T, `target` (dy, dy) of y y^T.
    """

    source: Tensor
    cross: Tensor
    target: Tensor

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.source + other.source, self.cross + other.cross, self.target + other.target)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(self.source - other.source, self.cross - other.cross, self.target - other.target)


def moments_of(source: Tensor, target: Tensor) -> Moments:
    """Moments of paired rows (p, dx) and (p, dy)."""
    return Moments((source.T @ source).double(), (source.T @ target).double(), (target.T @ target).double())

"""How a space varies: its variances along its principal axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh, leading_eigh

# Rounds of subspace iteration.
_ROUNDS = 3
# Rows multiplied at once.
_ROWS = 2048
# Up to this many dimensions the range finder would span nearly all of them; on a CPU the moment itself is faster then.
_FEW_DIMS = 768


@dataclass(frozen=True)
class Spectrum:
    """Variances (k,) of a space along its principal axes (d, k), largest first, in float64.

    If coordinates are already principal axes, `axes` is None: then nothing here takes more than O(d^2).
    """

    variances: Tensor
    axes: Tensor | None = None

    @classmethod
    def from_moment(cls, moment: Tensor) -> Spectrum:
        """The spectrum of a mean second moment (d, d)."""
        variances, axes = eigh(moment.double())
        return cls(variances.flip(0).clamp_min(0), axes.flip(1))

    def whitened(self, matrix: Tensor, ridge: float) -> Tensor:
        """W^T A (k, c) for a matrix A (d, c), where rows times W have (nearly) variance 1 along every axis."""
        return self._ridged(ridge).rsqrt()[:, None] * self._along(matrix)

    def from_white(self, directions: Tensor, ridge: float) -> Tensor:
        """Directions W A (d, c) of the rows, given directions A (k, c) of the whitened rows."""
        return self._across(self._ridged(ridge).rsqrt().to(directions.dtype)[:, None] * directions)

    def powers(self, exponent: float) -> Tensor:
        """The variances raised to a power (k,), in float32."""
        return self._ridged(0.0).pow(exponent).float()

    def powered(self, exponent: float) -> Tensor:
        """The covariance raised to a power (d, d), for instance -1/4 to half-whiten."""
        powers = self._ridged(0.0).pow(exponent)
        return powers.diag() if self.axes is None else (self.axes * powers) @ self.axes.T

    def times_power(self, matrix: Tensor, exponent: float, ridge: float = 0.0) -> Tensor:
        """A power of the covariance times a matrix (d, c), after adding `ridge` times the mean variance."""
        return self._across(self._ridged(ridge).pow(exponent)[:, None] * self._along(matrix))

    def variance_along(self, directions: Tensor) -> Tensor:
        """Variances (c,) of the space along directions (d, c)."""
        return self.variances.to(directions.dtype) @ self._along(directions).square()

    def scaled_to_unit(self, directions: Tensor) -> Tensor:
        """Directions (d, c) scaled so that the space has variance 1 along each; zero if it does not vary along one.

        Otherwise rounding errors along such a direction would be blown up, and so would any new row's part in it.
        """
        variances = self.variance_along(directions)
        rounding = torch.finfo(torch.float32).eps * self.variances[0] * directions.square().sum(dim=0)
        varies = variances > rounding.to(variances.dtype)
        return torch.where(varies, directions / torch.where(varies, variances, 1).sqrt(), 0)

    def _along(self, matrix: Tensor) -> Tensor:
        return matrix if self.axes is None else self.axes.T.to(matrix.dtype) @ matrix

    def _across(self, matrix: Tensor) -> Tensor:
        return matrix if self.axes is None else self.axes.to(matrix.dtype) @ matrix

    def _ridged(self, ridge: float) -> Tensor:
        """Variances (k,) plus `ridge` times their mean, but at least the rounding error of the largest."""
        limits = torch.finfo(torch.float32)
        floor = limits.eps * self.variances[0].clamp_min(limits.tiny)
        return (self.variances + ridge * self.variances.mean()).clamp_min(floor)


def leading_directions(rows: Tensor, count: int) -> Tensor:
    """The `count` leading principal axes (d, count) of rows (n, d); with many dimensions by a randomised range finder.

    The range finder, always used on a GPU, iterates on a subspace a few times: it forms no moment (d, d), and solves
    no eigenproblem larger than 1.5 times `count`. The result is deterministic.
    """
    if rows.shape[1] <= _FEW_DIMS and rows.device.type == "cpu":
        moment = _total(rows, lambda some: some.T @ some)
        return leading_eigh(moment.double(), min(count, len(rows)))[1].flip(1).float()
    width = min(rows.shape[1], len(rows), count + count // 2)
    start = torch.randn(rows.shape[1], width, generator=torch.Generator().manual_seed(0)).to(rows.device)
    basis = start
    for _ in range(_ROUNDS):
        basis = torch.linalg.qr(_total(rows, partial(_projected, basis))).Q
    within = basis.T @ _total(rows, partial(_projected, basis))
    _, axes = eigh(within.double())
    return basis @ axes.flip(1)[:, :count].float()


def _projected(basis: Tensor, rows: Tensor) -> Tensor:
    """The moment of rows (k, d) times a basis (d, w), without forming the moment."""
    return rows.T @ (rows @ basis)


def _total(rows: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum of `product` (a, b) over all rows (n, d), which it gets as float32, some at a time."""
    return reduce(torch.add, (product(rows[begin : begin + _ROWS].float()) for begin in range(0, len(rows), _ROWS)))

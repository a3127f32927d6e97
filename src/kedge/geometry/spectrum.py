"""How a space varies: its variances along its principal axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh, leading_eigh

# Of subspace iteration.
_ROUNDS = 3
# Rows that are multiplied at once.
_ROWS = 2048
# Up to so many dimensions the range finder would go over all of them: the moment itself is quicker then, on a CPU.
_FEW_DIMS = 768


@dataclass(frozen=True)
class Spectrum:
    """Variances (k,) of a space along its principal axes (d, k), largest first, in float64.

    Where coordinates are principal axes already, `axes` is None: then nothing here grows with more than d squared.
    """

    variances: Tensor
    axes: Tensor | None = None

    @classmethod
    def from_moment(cls, moment: Tensor) -> Spectrum:
        """Of a mean second moment (d, d)."""
        variances, axes = eigh(moment.double())
        return cls(variances.flip(0).clamp_min(0), axes.flip(1))

    def whitened(self, matrix: Tensor, ridge: float) -> Tensor:
        """W^T A (k, c) for a matrix A (d, c), where rows times W have (nearly) variance 1 along every axis."""
        return self._ridged(ridge).rsqrt()[:, None] * self._along(matrix)

    def from_white(self, directions: Tensor, ridge: float) -> Tensor:
        """Directions W A (d, c), of those A (k, c) of whitened rows."""
        return self._across(self._ridged(ridge).rsqrt().to(directions.dtype)[:, None] * directions)

    def powers(self, exponent: float) -> Tensor:
        """The variances to a power (k,), in float32."""
        return self._ridged(0.0).pow(exponent).float()

    def powered(self, exponent: float) -> Tensor:
        """The covariance to a power (d, d), for instance -1/4 to whiten by half."""
        powers = self._ridged(0.0).pow(exponent)
        return powers.diag() if self.axes is None else (self.axes * powers) @ self.axes.T

    def times_power(self, matrix: Tensor, exponent: float, ridge: float = 0.0) -> Tensor:
        """The same power times a matrix (d, c)."""
        return self._across(self._ridged(ridge).pow(exponent)[:, None] * self._along(matrix))

    def variance_along(self, directions: Tensor) -> Tensor:
        """Variances (c,) of the space along directions (d, c)."""
        return self.variances.to(directions.dtype) @ self._along(directions).square()

    def scaled_to_unit(self, directions: Tensor) -> Tensor:
        """Directions (d, c), scaled so that the space has variance 1 along each; zero where it does not vary at all.

        Along those, what rounding leaves would be blown up, and so would all that a new row has there.
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
        """Variances (k,) with `ridge` times their mean added, none smaller than what rounding leaves of the largest."""
        limits = torch.finfo(torch.float32)
        floor = limits.eps * self.variances[0].clamp_min(limits.tiny)
        return (self.variances + ridge * self.variances.mean()).clamp_min(floor)


def leading_directions(rows: Tensor, count: int) -> Tensor:
    """The `count` leading principal axes (d, count) of rows (n, d); of many dimensions by a randomised range finder.

    That is a few rounds of subspace iteration on the rows themselves: no moment (d, d) is made, and no eigenproblem is
    larger than `count` by half as much again. Always the same for the same rows.
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
    """The moment of rows (k, d) times a basis (d, w), without the moment."""
    return rows.T @ (rows @ basis)


def _total(rows: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum of a product (a, b) of some rows (k, d), as float32, over all rows (n, d)."""
    return reduce(torch.add, (product(rows[begin : begin + _ROWS].float()) for begin in range(0, len(rows), _ROWS)))

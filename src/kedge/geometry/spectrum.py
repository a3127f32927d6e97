"""How a space varies: its variances along its principal axes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh


@dataclass(frozen=True)
class Spectrum:
    """Variances (d,) of a space along its principal axes (d, d), largest first, in float64."""

    variances: Tensor
    axes: Tensor

    @classmethod
    def from_moment(cls, moment: Tensor) -> Spectrum:
        """Of a mean second moment (d, d)."""
        variances, axes = eigh(moment.double())
        return cls(variances.flip(0).clamp_min(0), axes.flip(1))

    def deviations(self, ridge: float = 0.0) -> Tensor:
        """Standard deviations (d,) along the axes, once `ridge` times the mean variance is added to each variance."""
        return self._ridged(ridge).sqrt()

    def whitening(self, ridge: float) -> Tensor:
        """The matrix (d, d) by which rows (n, d) get (nearly) variance 1 along every axis."""
        return self.axes * self._ridged(ridge).rsqrt()

    def powered(self, exponent: float, ridge: float = 0.0) -> Tensor:
        """The covariance with a ridge, to a power (d, d), for instance -1/4 to whiten by half."""
        return (self.axes * self._ridged(ridge).pow(exponent)) @ self.axes.T

    def ridged(self, ridge: float) -> Tensor:
        """The covariance (d, d) with the ridge added, as `whitening` has it."""
        return (self.axes * self._ridged(ridge)) @ self.axes.T

    def variance_along(self, directions: Tensor) -> Tensor:
        """Variances (c,) of the space along directions (d, c)."""
        return (self.variances[:, None] * (self.axes.T @ directions).square()).sum(dim=0)

    def scaled_to_unit(self, directions: Tensor) -> Tensor:
        """Directions (d, c), scaled so that the space has variance 1 along each."""
        tiny = torch.finfo(torch.float32).tiny
        return directions / self.variance_along(directions).clamp_min(tiny).sqrt()

    def _ridged(self, ridge: float) -> Tensor:
        """Variances (d,) with a ridge, none smaller than what rounding leaves of the largest."""
        limits = torch.finfo(torch.float32)
        floor = limits.eps * self.variances[0].clamp_min(limits.tiny)
        return (self.variances + ridge * self.variances.mean()).clamp_min(floor)

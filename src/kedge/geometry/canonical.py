"""Canonical directions: along which the rows of pairs vary together, and how strongly out of sample."""

from __future__ import annotations

import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from kedge.geometry.eigen import eigh
from kedge.geometry.moments import Moments
from kedge.geometry.procrustes import nearest_rotation
from kedge.geometry.spectrum import Spectrum

Halves = tuple[Moments, Moments]
"""Moments of two disjoint parts of the pairs."""

MAX_CORRELATION = 0.98
"""Larger correlations are not believed."""

# Beyond so many dimensions only the leading axes are looked at: more would cost minutes and say little.
_MAX_AXES = 1536


def canonical_directions(x: Spectrum, y: Spectrum, cross: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Directions (dx, c) and (dy, c) along which rows paired with this cross moment (dx, dy) vary together, by rank."""
    white_x, white_y = x.whitening(ridge)[:, :_MAX_AXES], y.whitening(ridge)[:, :_MAX_AXES]
    turned_x, turned_y = _singular_vectors(white_x.T @ cross @ white_y)
    return white_x @ turned_x, white_y @ turned_y


def canonical_map(x: Spectrum, y: Spectrum, cross: Tensor, ridge: float, factors: Tensor) -> Tensor:
    """The map (dx, dy) that sends each canonical coordinate of X to its counterpart, times a factor (c,).

    With the correlations as factors it is the best linear prediction of the model.
    """
    left, right = canonical_directions(x, y, cross, ridge)
    left, right = x.scaled_to_unit(left), y.scaled_to_unit(right)
    loadings = (right.T @ y.axes * y.variances) @ y.axes.T  # how much of each coordinate is in each dimension of Y
    return (left * factors) @ loadings


def recolored_rotation(x: Spectrum, y: Spectrum, cross: Tensor, strength: float = 0.5, ridge: float = 0.01) -> Tensor:
    """Whiten, rotate, recolor: the map (dx, dy) that whitens X by `strength`, rotates it as a cross moment (dx, dy)
    implies, and gives it Y's variances to the same degree.

    Strength 0 is the plain rotation; with 1 the mapped rows have the covariance of Y. In between, axes along which the
    spaces vary to different degrees meet halfway, and still a rotation is all there is to learn.
    """
    white_x, white_y = (space.powered(-strength / 2, ridge) for space in (x, y))
    return white_x @ nearest_rotation(white_x @ cross @ white_y) @ y.powered(strength / 2, ridge)


def held_out_correlations(x: Spectrum, y: Spectrum, halves: Halves, ridge: float) -> Tensor:
    """Correlations (c,) of pairs along directions fitted to the other half of them, never rising, in [0, 0.98]."""
    total = torch.zeros((), dtype=torch.float64, device=x.axes.device)
    for fitted, held_out in (halves, halves[::-1]):
        left, right = canonical_directions(x, y, fitted.cross, ridge)
        covariance = (left * (held_out.cross @ right)).sum(dim=0)
        variances = (left * (held_out.source @ left)).sum(dim=0) * (right * (held_out.target @ right)).sum(dim=0)
        total = total + covariance / variances.clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    # Directions come by rank; where a later one seems stronger, that is noise.
    smooth = isotonic_regression((total / 2).nan_to_num().cpu().numpy(), increasing=False).x
    return torch.from_numpy(smooth.copy()).to(x.axes.device).clamp(0, MAX_CORRELATION)


def _singular_vectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Left (a, c) and right (b, c) singular vectors of (a, b), largest first.

    By the smaller Gram matrix, in a quarter of the time of a singular value decomposition; the vectors of the very
    smallest values are inexact, and such directions say nothing.
    """
    if matrix.shape[0] > matrix.shape[1]:
        right, left = _singular_vectors(matrix.T)
        return left, right
    squares, vectors = eigh(matrix @ matrix.T)
    left = vectors.flip(1)
    values = squares.flip(0).clamp_min(0).sqrt()
    floor = 1e-10 * values[0] + torch.finfo(torch.float32).tiny
    return left, (matrix.T @ left) / values.clamp_min(floor)

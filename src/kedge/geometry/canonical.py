"""Canonical directions, along which paired rows vary together, and their out-of-sample correlations."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh
from kedge.geometry.isotonic import never_rising
from kedge.geometry.moments import Moments
from kedge.geometry.procrustes import nearest_rotation
from kedge.geometry.spectrum import Spectrum

Halves = tuple[Moments, Moments]
"""Moments of two disjoint parts of the pairs."""

MAX_CORRELATION = 0.98
"""Correlations are clipped here, because larger ones are not credible."""


def canonical_directions(
    x: Spectrum, y: Spectrum, cross: Tensor, ridge: float, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Canonical directions (dx, c) and (dy, c), strongest first, of pairs with this cross moment (dx, dy).

    The decomposition runs in float32, in half the time of float64: rounding only blurs correlations of about 0.001,
    which mean nothing. The tests compare it with float64.
    """
    white = y.whitened(x.whitened(cross, ridge).T, ridge).T
    scale = white.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)  # sums over any number of pairs fit float32
    turned_x, turned_y = _singular_vectors((white / scale).to(dtype))
    return x.from_white(turned_x, ridge), y.from_white(turned_y, ridge)


def canonical_loadings(y: Spectrum, directions: Tensor) -> Tensor:
    """Loadings (c, dy) of each canonical coordinate, along directions (dy, c) of variance 1, on each dimension."""
    return y.times_power(directions.double(), 1.0).T


def recolored_rotation(x: Spectrum, y: Spectrum, cross: Tensor, strength: float = 0.5, ridge: float = 0.01) -> Tensor:
    """Whiten, rotate, recolor: a map (dx, dy) of which only the rotation is learned, from a cross moment (dx, dy).

    It whitens X by `strength`, rotates it, and gives it Y's variances to the same degree. Strength 0 is the plain
    rotation; with 1 the mapped rows have the covariance of Y. In between, axes along which the spaces vary to different
    degrees meet halfway.
    """
    half_white = x.times_power(y.times_power(cross.T, -strength / 2, ridge).T, -strength / 2, ridge)
    rotation = nearest_rotation(half_white)
    return y.times_power(x.times_power(rotation, -strength / 2, ridge).T, strength / 2, ridge).T


Turns = dict[tuple[float, int], Tensor]
"""Measured correlations (c,), by ridge and by the half, 0 or 1, that directions were fitted to."""


def held_out_correlations(
    x: Spectrum,
    y: Spectrum,
    halves: Halves,
    ridge: float,
    *,
    both: bool = True,
    dtype: torch.dtype = torch.float32,
    known: Turns | None = None,
) -> Tensor:
    """Correlations (c,) of half of the pairs along directions fitted to the other, non-increasing, in [0, 0.98].

    They are averaged over both ways round; unless `both`, directions are fitted to the first half only. `known` is a
    cache of what has been measured for these halves; it is read and updated.
    """
    known = {} if known is None else known
    turns = (0, 1) if both else (0,)
    for turn in turns:
        if (ridge, turn) not in known:
            known[ridge, turn] = _correlations(x, y, halves[turn], halves[1 - turn], ridge, dtype)
    mean = torch.stack([known[ridge, turn] for turn in turns]).mean(dim=0)
    # Directions are sorted by strength; if a later one seems stronger, that is noise.
    smooth = never_rising(mean.nan_to_num().double().cpu().numpy())
    return torch.from_numpy(smooth).to(x.variances.device).clamp(0, MAX_CORRELATION)


def _correlations(
    x: Spectrum, y: Spectrum, fitted: Moments, held_out: Moments, ridge: float, dtype: torch.dtype
) -> Tensor:
    """Correlations (c,) of held-out pairs along directions fitted to other pairs, both given by their moments."""
    left, right = canonical_directions(x, y, fitted.cross, ridge, dtype)
    covariance = (left * (held_out.cross.to(dtype) @ right)).sum(dim=0)
    along_x = (left * (held_out.source.to(dtype) @ left)).sum(dim=0)
    along_y = (right * (held_out.target.to(dtype) @ right)).sum(dim=0)
    tiny = torch.finfo(torch.float32).tiny
    return (covariance / (along_x.clamp_min(tiny).sqrt() * along_y.clamp_min(tiny).sqrt())).double()


def _singular_vectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Left (a, c) and right (b, c) singular vectors of (a, b), largest first.

    Computed from the smaller Gram matrix, in a quarter of the time of an SVD; the vectors of the very smallest values
    are inexact, but such directions mean nothing.
    """
    if matrix.shape[0] > matrix.shape[1]:
        right, left = _singular_vectors(matrix.T)
        return left, right
    squares, vectors = eigh(matrix @ matrix.T)
    left = vectors.flip(1)
    values = squares.flip(0).clamp_min(0).sqrt()
    floor = torch.finfo(matrix.dtype).eps * values[0] + torch.finfo(torch.float32).tiny
    return left, (matrix.T @ left) / values.clamp_min(floor)

"""Unit norm, centering and principal axes."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh

# Rows processed at once, to avoid a temporary as large as the input.
_ROWS = 16_384


def unit(vectors: Tensor) -> Tensor:
    """Scale the rows of (n, d) to unit norm; a zero row stays zero."""
    # Dividing by the largest entry first keeps the squares of tiny and huge float32 values in range.
    scale = vectors.abs().amax(dim=-1, keepdim=True)
    scaled = vectors / scale.clamp_min(torch.finfo(vectors.dtype).tiny)
    return scaled / scaled.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)


def center_of(vectors: Tensor) -> Tensor:
    """Mean (d,) of the unit-norm rows of (n, d), summed in float64."""
    total = torch.zeros(vectors.shape[1], dtype=torch.float64)
    for begin in range(0, len(vectors), _ROWS):
        total += unit(vectors[begin : begin + _ROWS].float()).sum(dim=0, dtype=torch.float64).cpu()
    return (total / len(vectors)).to(device=vectors.device, dtype=torch.float32)


def normalise(vectors: Tensor, center: Tensor | None) -> Tensor:
    """Scale rows (n, d) to unit norm, subtract `center` (d,) and scale again; only scale if `center` is None."""
    scaled = unit(vectors)
    return scaled if center is None else unit(scaled - center)


def denormalise(directions: Tensor, center: Tensor | None) -> Tensor:
    """The unit vectors (n, d) that `normalise` sends to these unit rows (n, d).

    They lie where the ray from the center in that direction meets the unit sphere.
    """
    if center is None:
        return directions
    along = directions @ center
    length = (along.square() + 1 - center.square().sum()).clamp_min(0).sqrt() - along
    return unit(center + length[:, None] * directions)


def standardise(columns: Tensor) -> Tensor:
    """Scale the columns of (n, q) to mean 0 and standard deviation 1; a constant column becomes 0."""
    limits = torch.finfo(columns.dtype)
    centered = columns - columns.mean(dim=0, dtype=torch.float64).to(columns.dtype)
    rounding = 8 * limits.eps * columns.abs().amax(dim=0)  # how much a constant column may vary by rounding
    spread = centered.square().mean(dim=0).sqrt()
    return centered * (spread > rounding) / spread.clamp_min(limits.tiny)


def whiten(vectors: Tensor, strength: float) -> Tensor:
    """Rows (n, d) in their principal axes, each axis divided by its standard deviation to the power `strength`.

    Strength 0 only turns the rows, 1 whitens them; with 0.5 the square root of the Gram matrix takes its place.
    """
    variances, axes = _spectrum(vectors)
    floor = variances[-1] * torch.finfo(vectors.dtype).eps
    return vectors @ (axes * variances.clamp_min(floor).pow(-strength / 2)).to(vectors.dtype)


def principal_axes(vectors: Tensor, rank: int) -> Tensor:
    """The `rank` leading eigenvectors (d, rank) of the second moment of (n, d)."""
    _, axes = _spectrum(vectors)
    return axes.flip(1)[:, :rank].to(vectors.dtype).contiguous()


def _spectrum(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues (d,) and eigenvectors (d, d) of the second moment of (n, d), in float64."""
    variances, axes = eigh((vectors.T @ vectors).double() / len(vectors))
    return variances, axes

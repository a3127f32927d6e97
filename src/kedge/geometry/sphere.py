"""The unit sphere as the paper's optimiser moves on it."""

from __future__ import annotations

import torch
from torch import Tensor


def exponential_map(base: Tensor, tangent: Tensor) -> Tensor:
    """Walk from each row of `base` (a, d) along the great circle that its row of `tangent` (a, d) points to.

    Only the part of `tangent` that is orthogonal to `base` counts. This is GeoTorch's parametrisation of the
    sphere, with the start as base point.
    """
    direction = tangent - (tangent * base).sum(dim=-1, keepdim=True) * base
    angle = direction.norm(dim=-1, keepdim=True)
    return torch.cos(angle) * base + torch.special.sinc(angle / torch.pi) * direction

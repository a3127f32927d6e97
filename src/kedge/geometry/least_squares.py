"""Least squares from vectors to targets: plain, ridge, and towards a prior."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry.moments import Moments

# Keeps the Gram matrix invertible when the rows do not span the space.
_JITTER = 1e-6


def ridge(gram: Tensor, cross: Tensor, penalty: float = 0.0) -> Tensor:
    """The B (d, t) that minimises |inputs B - targets|^2 + penalty * mean eigenvalue * |B|^2.

    The penalty is relative to the mean eigenvalue of the Gram matrix, so it means the same for any number
    and scale of rows.

    Parameters
    ----------
    gram : Tensor, shape (d, d)
        inputs^T inputs.
    cross : Tensor, shape (d, t)
        inputs^T targets.
    penalty : float
    """
    strength = (penalty + _JITTER) * float(gram.diagonal().mean())
    held = gram.double().clone()
    held.diagonal().add_(max(strength, _JITTER))  # even if there are no rows at all
    return torch.linalg.solve(held, cross.double())


def refine_rotation(moments: Moments, rotation: Tensor, prior_pairs: float) -> Tensor:
    """The least-squares map (dx, dy) of pairs with these moments, regularised towards a scaled rotation (dx, dy).

    The prior weighs as much as `prior_pairs` pairs spread evenly over all directions: with few pairs the
    result is the rotation, with many it is the least-squares map, which also scales and shears.
    """
    gram = moments.source.clone()
    length = (rotation * (gram @ rotation)).sum().clamp_min(torch.finfo(torch.float32).tiny)  # or no rows at all
    prior = rotation * ((rotation * moments.cross).sum() / length)
    residual = moments.cross - gram @ prior
    gram.diagonal().add_(prior_pairs / len(gram))  # unit rows: a pair adds 1/d to each eigenvalue on average
    return prior + torch.linalg.solve(gram, residual)

"""Least squares from vectors to targets: plain, ridge, towards a prior, and on the unit sphere."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh
from kedge.geometry.moments import Moments

# Keeps the Gram matrix invertible when the rows do not span the space.
_JITTER = 1e-6
_BISECTIONS = 80


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
    held.diagonal().add_(max(strength, _JITTER))  # also where there is no row at all
    return torch.linalg.solve(held, cross.double())


def refine_rotation(moments: Moments, rotation: Tensor, prior_pairs: float) -> Tensor:
    """Least squares (dx, dy) from source to target, of which these are the moments, held to a scaled rotation.

    The prior weighs as much as `prior_pairs` pairs spread evenly over all directions: with few pairs the
    result is the rotation, with many it is the least-squares map, which also scales and shears.
    """
    gram = moments.source.clone()
    length = (rotation * (gram @ rotation)).sum().clamp_min(torch.finfo(torch.float32).tiny)  # or no row at all
    prior = rotation * ((rotation * moments.cross).sum() / length)
    residual = moments.cross - gram @ prior
    gram.diagonal().add_(prior_pairs / len(gram))  # unit rows: a pair adds 1/d to each eigenvalue on average
    return prior + torch.linalg.solve(gram, residual)


def least_squares_on_sphere(inputs: Tensor, targets: Tensor) -> Tensor:
    """Unit vectors (t, d) that minimise |inputs a_k - targets_k|^2 exactly: given the match, the optimum of
    the paper's loss.

    With G = inputs^T inputs and c = inputs^T t, the minimiser solves (G + l I) a = c for the one
    l > -(least eigenvalue of G) at which |a| = 1; in the eigenbasis |a| is a decreasing function of l, so that
    bisection finds it for all targets at once. Where |a| stays below 1 (c has no part along the least eigenvector),
    what is missing is added along that vector, which costs the least.

    Parameters
    ----------
    inputs : Tensor, shape (p, d)
    targets : Tensor, shape (p, t)
    """
    values, axes = eigh((inputs.T @ inputs).double())
    rotated = axes.T @ (inputs.T @ targets).double()  # (d, t)
    norms = rotated.norm(dim=0)
    low = torch.full_like(norms, -float(values[0]))
    high = low + norms.clamp_min(1e-12 * float(values[-1]))  # |a| <= 1 there, as every term shrinks enough
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        outside = (rotated / (values[:, None] + middle)).norm(dim=0) > 1
        low, high = torch.where(outside, middle, low), torch.where(outside, high, middle)
    solution = rotated / (values[:, None] + high)
    missing = (1 - solution.square().sum(dim=0)).clamp_min(0).sqrt()
    solution[0] += torch.where(solution[0] < 0, -missing, missing)
    return (axes @ (solution / solution.norm(dim=0))).T.to(inputs.dtype)

"""The rotation that pairs imply, also between spaces of different dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh

# The smallest squared singular value is accurate enough if it is at least this fraction of the largest.
_WELL_CONDITIONED = 1e-12


def orthogonal_map(source: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """The W (dx, dy) with orthonormal rows or columns that maximises sum_i w_i <x_i W, y_i>.

    With dx = dy this is orthogonal Procrustes. With dx > dy the columns of W are orthonormal (W projects),
    with dx < dy its rows are (W embeds).

    Parameters
    ----------
    source, target : Tensor, shapes (p, dx) and (p, dy)
        Paired rows.
    weights : Tensor, shape (p,), optional
        How much each pair counts.
    """
    weighted = target if weights is None else target * weights[:, None]
    return nearest_rotation((source.T @ weighted).double()).to(source.dtype)


def emphasis(cross: Tensor, power: float) -> Tensor:
    """The matrix (dy, dy) that weights directions of the target by how strong a cross moment (dx, dy) is there.

    With singular values s and right singular vectors V of the cross moment, it is V (s / max s)^power V^T.
    """
    values, axes = eigh(cross.T @ cross)
    shares = values / values[-1]
    strengths = torch.where(shares > _WELL_CONDITIONED, shares, 0) ** (power / 2)
    return (axes * strengths) @ axes.T


def nearest_rotation(cross: Tensor) -> Tensor:
    """The W (dx, dy) with orthonormal rows or columns nearest to a matrix of the same shape: its polar factor.

    Computed from the inverse square root of the smaller Gram matrix, in half the time of an SVD, which is only used if
    the matrix is too close to singular.
    """
    wide = cross.shape[0] < cross.shape[1]
    values, axes = eigh(cross @ cross.T if wide else cross.T @ cross)
    if not bool(values[0] > _WELL_CONDITIONED * values[-1]):
        left, _, right = torch.linalg.svd(cross, full_matrices=False)
        return left @ right
    inverse_root = (axes * values.rsqrt()) @ axes.T
    rotation = inverse_root @ cross if wide else cross @ inverse_root
    # One Newton-Schulz step restores the precision that squaring cost.
    gram = rotation @ rotation.T if wide else rotation.T @ rotation
    return 1.5 * rotation - 0.5 * (gram @ rotation if wide else rotation @ gram)

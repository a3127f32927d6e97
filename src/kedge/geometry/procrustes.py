"""The rotation that pairs imply, also between spaces of different dimensions."""

from __future__ import annotations

import torch
from torch import Tensor


def orthogonal_map(source: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """The W (dx, dy) of greatest sum_i w_i <x_i W, y_i> with orthonormal rows or columns.

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
    correlation = (source.T @ weighted).double()
    left, _, right = torch.linalg.svd(correlation, full_matrices=False)
    return (left @ right).to(source.dtype)

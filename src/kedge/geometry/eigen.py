"""Eigenvectors of small symmetric matrices, wherever the matrix is."""

from __future__ import annotations

import torch
from torch import Tensor


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues (d,) and eigenvectors (d, d) of a symmetric matrix (d, d), on its device.

    By the CPU: of the few hundred dimensions that spaces have, in float64, it is done before a GPU has begun.
    """
    values, vectors = torch.linalg.eigh(matrix.cpu())
    return values.to(matrix.device), vectors.to(matrix.device)


def leading_eigh(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest eigenvalues, ascending (count,), of a symmetric matrix (d, d), and their vectors (d, count).

    Where few of many are wanted, the others need not be computed: a third of the time.
    """
    from scipy.linalg import eigh as eigh_of_array  # loaded where it is needed: it takes a fifth of a second

    last = len(matrix) - 1
    found = eigh_of_array(matrix.cpu().numpy(), subset_by_index=(max(len(matrix) - count, 0), last))
    values, vectors = (torch.from_numpy(part).to(matrix.device) for part in found)
    return values, vectors

"""Eigenvectors of small symmetric matrices on any device."""

from __future__ import annotations

import torch
from torch import Tensor


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues (d,) and eigenvectors (d, d) of a symmetric matrix (d, d), on its device.

    Computed on the CPU: with the few hundred dimensions of a space, in float64, it is faster than a GPU.
    """
    values, vectors = torch.linalg.eigh(matrix.cpu())
    return values.to(matrix.device), vectors.to(matrix.device)


def leading_eigh(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest eigenvalues, ascending (count,), of a symmetric matrix (d, d), and their vectors (d, count).

    Takes a third of the time of `eigh` if only a few of many are wanted.
    """
    from scipy.linalg import eigh as eigh_of_array  # imported only when needed: it takes a fifth of a second

    last = len(matrix) - 1
    found = eigh_of_array(matrix.cpu().numpy(), subset_by_index=(max(len(matrix) - count, 0), last))
    values, vectors = (torch.from_numpy(part).to(matrix.device) for part in found)
    return values, vectors

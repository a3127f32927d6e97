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

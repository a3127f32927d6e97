"""Similarity profiles: coordinates that two spaces share before any pair is known.

How a row's similarities to all rows of its own space are distributed does not depend on how the space is
turned, and things that mean the same have similar distributions. The idea is that of Artetxe, Labaka and
Agirre's unsupervised VecMap (2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry import unit, whiten
from kedge.matching import row_blocks

_QUANTILES = 256
# Quantiles lie denser where similarities are great: there they tell rows apart.
_DENSITY = 3


def similarity_profiles(vectors: Tensor, budget: int) -> Tensor:
    """Unit rows (n, q): standardised quantiles of each row's similarities to all rows of (n, d).

    The similarities are those of the half-whitened rows, whose Gram matrix is the square root of the original
    one: leading directions weigh less.
    """
    half = unit(whiten(vectors, 0.5))
    steps = torch.linspace(0, 1, _QUANTILES, dtype=torch.float64, device=half.device)
    # Not the first: a row's greatest similarity is the one to itself, and says nothing.
    positions = (1 + steps**_DENSITY * (len(half) - 2)).long().clamp(0, len(half) - 1)
    profiles = half.new_empty(len(half), _QUANTILES)
    for rows, block in row_blocks(half, half, budget, copies=4):  # the sorted values, and indices of twice the size
        profiles[rows] = block.sort(dim=1, descending=True).values[:, positions]
    spread = profiles.std(dim=0).clamp_min(torch.finfo(profiles.dtype).tiny)
    return unit((profiles - profiles.mean(dim=0)) / spread)

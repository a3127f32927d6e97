"""Coordinates held in half precision, whose inner products are as accurate as in tf32."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS_PER_BIAS = 3
"""Columns that one bias takes."""


def to_half(coordinates: Tensor, biases: int, *, left: bool) -> Tensor:
    """Coordinates (n, c) in half precision (n, c + 2 biases), for products of left ones with right ones.

    The last `biases` columns are large numbers that nearly cancel, so their rounding errors are kept as well. A product
    t s of two of them becomes that of (T, t - T, T) with (S, S, s - S), where T and S are t and s in half precision.
    """
    plain = coordinates.shape[1] - biases
    halves = coordinates.half()
    if not biases:
        return halves
    rounded = halves[:, plain:]
    rest = (coordinates[:, plain:] - rounded).half()
    return torch.cat([halves[:, :plain], rounded, *((rest, rounded) if left else (rounded, rest))], dim=1)

"""Transform many vectors a block of rows at a time, so that temporaries are never as large as a space."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ROWS = 65_536


def transform_rows(
    transform: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    vectors: NDArray[np.float32],
    device: torch.device | str = "cpu",
) -> Tensor:
    """Apply `transform` to vectors (n, d) and return one tensor (n, e) on `device`."""
    first = torch.from_numpy(transform(vectors[:_ROWS]))
    transformed = torch.empty(len(vectors), first.shape[1], device=device)
    transformed[:_ROWS] = first
    for begin in range(_ROWS, len(vectors), _ROWS):
        transformed[begin : begin + _ROWS] = torch.from_numpy(transform(vectors[begin : begin + _ROWS]))
    return transformed

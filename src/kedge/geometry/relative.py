"""Relative representations: coordinates that are similarities to anchors."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Matrix = TypeVar("Matrix", Tensor, NDArray[np.float32])


def relative(vectors: Matrix, anchors: Matrix) -> Matrix:
    """Cosine similarities (n, a) of unit rows (n, d) to unit anchors (a, d): the paper's rr(x, A)."""
    return vectors @ anchors.T

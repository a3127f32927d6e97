"""Checksums, which tell whether a matrix or a file has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 16_384


def matrix_checksum(matrix: NDArray[Any]) -> str:
    """A checksum of a matrix (n, d) that depends on every value and its position; one pass at memory speed."""
    width = matrix.dtype.itemsize * matrix.shape[1] // 2  # in 16-bit words
    weights = np.random.default_rng(0).integers(2**63, size=width, dtype=np.uint64) * 2 + 1
    total = np.zeros(1, dtype=np.uint64)
    for begin in range(0, len(matrix), _ROWS_AT_ONCE):
        words = np.ascontiguousarray(matrix[begin : begin + _ROWS_AT_ONCE]).view(np.uint16)
        places = np.arange(begin, begin + len(words), dtype=np.uint64) * 2 + 1
        total += ((words.astype(np.uint64) @ weights) * places).sum()  # all modulo 2**64
    return f"{len(matrix)} x {matrix.shape[1]}, {int(total[0]):016x}"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

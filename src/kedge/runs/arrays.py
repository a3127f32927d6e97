"""Tensor files (safetensors), and what each tensor in them must be before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from kedge.errors import InputError
from kedge.spaces.streams import require_regular_file

MOST_CORRELATED = 0.99
"""Greater correlations of a pair model are not believed, when it is fitted."""

# By so much, sums of shares may miss 0 or 1.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Array:
    """What an array must be.

    A name in place of a size stands for any, the same in all arrays of a file. Numbers lie between `least` and `most`
    (for all, or for each column) and are finite, unless they may be `infinite`; they are never NaN. `ascending` ones
    increase from each to the next.
    """

    shape: tuple[int | str, ...]
    dtype: str = "F32"
    least: float = -np.inf
    most: float | tuple[float, ...] = np.inf
    infinite: bool = False
    ascending: bool = False

    def fault(self, array: NDArray[Any]) -> str | None:
        """What is wrong with the numbers of an array that has the shape and the dtype."""
        if self.dtype == "BOOL" or not array.size:
            return None
        if np.isnan(array).any() or not (self.infinite or np.isfinite(array).all()):
            return "has NaN or infinite values"
        outside = (array < self.least - _ROUNDING) | (array > np.asarray(self.most) + _ROUNDING)
        if (outside & np.isfinite(array)).any():
            return f"must lie between {self.least} and {self.most}, got {array.min()} to {array.max()}"
        if self.ascending and (np.diff(array) <= 0).any():
            return "must be ascending"
        return None


def between(bound: float, *shape: int | str, dtype: str = "F32", infinite: bool = False) -> Array:
    """Numbers of at most this size, of either sign: those that come out of what is computed never reach it."""
    return Array(shape, dtype, -bound, bound, infinite=infinite)


def rows_of(total: int, *shape: int | str, least: int = 0, dtype: str = "I64", ascending: bool = False) -> Array:
    """Numbers of rows, of which there are so many."""
    return Array(shape, dtype, least, total - 1, ascending=ascending)


def pairs_of(rows_x: int, rows_y: int, count: int) -> Array:
    """So many pairs of a row of X and a row of Y."""
    return Array((count, 2), "I64", 0, (rows_x - 1, rows_y - 1))


def read_arrays(path: Path, expected: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """The arrays of a file that are expected, and are what they must be; raises `InputError` if they are not."""
    require_regular_file(path)
    try:
        with safe_open(path, framework="np") as stored:
            _require_shapes(path, stored, expected)
            arrays = {name: stored.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    for name, array in arrays.items():
        fault = expected[name].fault(array)
        if fault:
            raise InputError(f"{path}: {name} {fault}")
    return arrays


def read_metadata(path: Path) -> dict[str, str]:
    """What a tensor file says besides its tensors."""
    require_regular_file(path)
    try:
        with safe_open(path, framework="np") as stored:
            return stored.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _require_shapes(path: Path, stored: Any, expected: Mapping[str, Array]) -> None:
    """Before any is loaded: a file may claim more than memory holds."""
    held = set(stored.keys())
    sizes: dict[str, int] = {}
    for name, array in expected.items():
        if name not in held:
            raise InputError(f"{path}: {name} is missing")
        dtype, shape = stored.get_slice(name).get_dtype(), tuple(stored.get_slice(name).get_shape())
        if dtype != array.dtype:
            raise InputError(f"{path}: {name} must be of dtype {array.dtype}, got {dtype}")
        for size, got in zip(array.shape, shape, strict=False):
            if isinstance(size, str):
                sizes.setdefault(size, got)
        if shape != tuple(size if isinstance(size, int) else sizes.get(size) for size in array.shape):
            told = ", ".join(str(size if isinstance(size, int) else sizes.get(size, size)) for size in array.shape)
            raise InputError(f"{path}: {name} must have shape ({told}), got {shape}")

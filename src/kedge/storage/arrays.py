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

# By so much, sums of shares may miss 0 or 1.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Array:
    """What an array must be.

    Numbers lie between `minimum` and `maximum` (for all, or for each column) and are finite.
    """

    shape: tuple[int, ...]
    dtype: str = "F32"
    minimum: float = -np.inf
    maximum: float | tuple[float, ...] = np.inf

    def fault(self, array: NDArray[Any]) -> str | None:
        """What is wrong with the numbers of an array that has the shape and the dtype."""
        if self.dtype == "BOOL" or not array.size:
            return None
        if not np.isfinite(array).all():
            return "has NaN or infinite values"
        outside = (array < self.minimum - _ROUNDING) | (array > np.asarray(self.maximum) + _ROUNDING)
        if outside.any():
            return f"must lie between {self.minimum} and {self.maximum}, got {array.min()} to {array.max()}"
        return None


def between(bound: float, *shape: int) -> Array:
    """Numbers of at most this size, of either sign: those that come out of what is computed never reach it."""
    return Array(shape, "F32", -bound, bound)


def rows_of(total: int, *shape: int) -> Array:
    """Numbers of rows, of which there are so many."""
    return Array(shape, "I64", 0, total - 1)


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


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The arrays of a file by name, and their shapes; nothing is loaded."""
    require_regular_file(path)
    try:
        with safe_open(path, framework="np") as stored:
            return {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _require_shapes(path: Path, stored: Any, expected: Mapping[str, Array]) -> None:
    """Before any is loaded: a file may claim more than memory holds."""
    held = set(stored.keys())
    for name, array in expected.items():
        if name not in held:
            raise InputError(f"{path}: {name} is missing")
        dtype, shape = stored.get_slice(name).get_dtype(), tuple(stored.get_slice(name).get_shape())
        if dtype != array.dtype:
            raise InputError(f"{path}: {name} must be of dtype {array.dtype}, got {dtype}")
        if shape != array.shape:
            raise InputError(f"{path}: {name} must have shape {array.shape}, got {shape}")

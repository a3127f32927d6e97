"""Tensor files (safetensors), and validation of their tensors before anything is built from them."""

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

# Bounds are tolerant: sums of shares may exceed 1, or fall below 0, by a rounding error.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Array:
    """What is expected of an array.

    Numbers must be finite and lie between `minimum` and `maximum`, which may differ between columns.
    """

    shape: tuple[int, ...]
    dtype: str = "F32"
    minimum: float = -np.inf
    maximum: float | tuple[float, ...] = np.inf

    def fault(self, array: NDArray[Any]) -> str | None:
        """What is wrong with the values of an array of the expected shape and dtype, or None."""
        if self.dtype == "BOOL" or not array.size:
            return None
        if not np.isfinite(array).all():
            return "has NaN or infinite values"
        outside = (array < self.minimum - _ROUNDING) | (array > np.asarray(self.maximum) + _ROUNDING)
        if outside.any():
            return f"must lie between {self.minimum} and {self.maximum}, got {array.min()} to {array.max()}"
        return None


def between(bound: float, *shape: int) -> Array:
    """Numbers of either sign, at most `bound` in absolute value, which no computed value exceeds."""
    return Array(shape, "F32", -bound, bound)


def rows_of(total: int, *shape: int) -> Array:
    """Row numbers, of `total` rows."""
    return Array(shape, "I64", 0, total - 1)


def pairs_of(rows_x: int, rows_y: int, count: int) -> Array:
    """Row numbers of `count` pairs of a row of X and a row of Y."""
    return Array((count, 2), "I64", 0, (rows_x - 1, rows_y - 1))


def read_arrays(path: Path, expected: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    """Read the expected arrays of a file; raises `InputError` if any is missing or invalid."""
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
    """The shapes of the arrays of a file, by name; loads no array."""
    require_regular_file(path)
    try:
        with safe_open(path, framework="np") as stored:
            return {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _require_shapes(path: Path, stored: Any, expected: Mapping[str, Array]) -> None:
    """Check all shapes before loading any array, because a file may claim more than memory can hold."""
    held = set(stored.keys())
    for name, array in expected.items():
        if name not in held:
            raise InputError(f"{path}: {name} is missing")
        dtype, shape = stored.get_slice(name).get_dtype(), tuple(stored.get_slice(name).get_shape())
        if dtype != array.dtype:
            raise InputError(f"{path}: {name} must be of dtype {array.dtype}, got {dtype}")
        if shape != array.shape:
            raise InputError(f"{path}: {name} must have shape {array.shape}, got {shape}")

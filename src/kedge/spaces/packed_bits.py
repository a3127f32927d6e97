"""Unpack binary vectors, eight dimensions per byte: a set bit becomes 1, a clear bit -1."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError


def unpack_bits(packed: NDArray[np.uint8], dim: int, order: Literal["big", "little"] = "big") -> NDArray[np.float32]:
    """Unpack bytes (n, ceil(dim / 8)) to vectors (n, dim) of 1 and -1; `order` says which bit of a byte is first."""
    bits = np.unpackbits(packed, axis=1, count=dim, bitorder=order)
    return bits.astype(np.float32) * 2 - 1


def unpack_numbers(vectors: NDArray[Any], source: str) -> NDArray[np.float32]:
    """Unpack bytes stored as numbers (n, d / 8), unsigned (`ubinary`) or signed with an offset of 128 (`binary`).

    These are the two forms of `sentence_transformers.quantize_embeddings`; `np.packbits` gives the first.
    """
    if vectors.ndim != 2:
        raise InputError(f"{source}: vectors must have shape (rows, bytes), got shape {vectors.shape}")
    numbers = np.asarray(vectors)
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)
    whole = np.issubdtype(numbers.dtype, np.integer) or bool((numbers == np.floor(numbers)).all())
    signed = low < 0 or numbers.dtype == np.int8
    lowest = -128 if signed else 0
    if not whole or low < lowest or high > lowest + 255:
        raise InputError(
            f"{source}: packed binary vectors are bytes, whole numbers from 0 to 255 or from -128 to 127; these are "
            f"{numbers.dtype} from {low:g} to {high:g}"
        )
    return unpack_bits((numbers.astype(np.int16) - lowest).astype(np.uint8), 8 * numbers.shape[1])

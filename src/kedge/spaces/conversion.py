"""Turn what people have in Python (arrays, tensors, DataFrames, vectors by key) into `Embeddings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings, Key
from kedge.spaces.formats.dense import as_dense

SpaceLike: TypeAlias = Embeddings | ArrayLike | Mapping[Key, ArrayLike]
"""A space: Embeddings; an array, tensor or list of rows (n, d); a DataFrame with its index as keys; a dict, Series or
gensim KeyedVectors with a vector for each key."""


def as_space(space: SpaceLike, name: str) -> Embeddings:
    """Convert to Embeddings, with row numbers "0", "1", ... as keys if there are none; Embeddings pass unchanged."""
    if isinstance(space, Embeddings):
        return space
    keys, vectors = _keys_and_vectors(space, name)
    if keys is None:
        keys = [str(row) for row in range(len(vectors))] if vectors.ndim else []
    return Embeddings(keys, vectors, name)


def as_matrix(vectors: SpaceLike, name: str) -> NDArray[Any]:
    """The vectors (n, d) of a space, or one vector (d,); keys are ignored, and need not be unique."""
    if isinstance(vectors, Embeddings):
        return vectors.vectors
    return _keys_and_vectors(vectors, name)[1]


def is_frame(values: object) -> bool:
    """Whether `values` is a pandas DataFrame; does not import pandas."""
    return hasattr(values, "columns") and hasattr(values, "index")


def is_series(values: object) -> bool:
    """Whether `values` is a pandas Series; does not import pandas."""
    return hasattr(values, "to_numpy") and hasattr(values, "index") and not hasattr(values, "columns")


def _keys_and_vectors(space: Any, name: str) -> tuple[Sequence[Key] | None, NDArray[Any]]:
    """The keys, or None if there are none, and the vectors."""
    if hasattr(space, "index_to_key"):  # gensim's KeyedVectors
        return space.index_to_key, space.vectors
    if is_frame(space):
        return space.index.tolist(), _numbers_in(space, name)
    if isinstance(space, Mapping) or (is_series(space) and space.dtype.kind == "O"):
        return list(space.keys()), _stacked(list(space.items()), name)
    return None, as_dense(space, name)


def _numbers_in(frame: Any, name: str) -> NDArray[np.float32]:
    """The columns of a DataFrame as the dimensions of vectors (n, d)."""
    others = [repr(column) for column, dtype in frame.dtypes.items() if dtype.kind not in "iuf"]
    if others:
        raise InputError(
            f"{name}: the columns of a DataFrame are the dimensions and its index the keys, but the columns "
            f"{', '.join(others)} do not hold numbers; drop them, or make one of them the index with set_index"
        )
    with np.errstate(over="ignore"):  # values too large for float32 are reported later, as infinite
        numbers: NDArray[np.float32] = frame.to_numpy(dtype=np.float32, na_value=np.nan)
    return numbers


def _stacked(items: Sequence[tuple[Key, Any]], name: str) -> NDArray[Any]:
    """Stack vectors by key into rows (n, d)."""
    vectors = [as_dense(vector, f"{name}, key {key!r}") for key, vector in items]
    for (key, _), vector in zip(items, vectors, strict=True):
        if vector.ndim != 1 or len(vector) != len(vectors[0]):
            raise InputError(
                f"{name}: each key needs one vector, all of the same length; the shape is {vector.shape} for "
                f"{key!r} and {vectors[0].shape} for {items[0][0]!r}"
            )
    return np.stack(vectors) if vectors else np.empty((0, 0))

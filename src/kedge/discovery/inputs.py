"""What users hand to the estimator, checked and turned into spaces and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.spaces import Embeddings, rows_from_key_pairs


def as_space(space: Embeddings | ArrayLike, name: str) -> Embeddings:
    """Embeddings as they are; an array (n, d) gets its row numbers as keys."""
    if isinstance(space, Embeddings):
        return space
    vectors = _as_array(space, name)
    return Embeddings([str(row) for row in range(len(vectors))] if vectors.ndim else [], vectors, name)


def as_vectors(vectors: Embeddings | ArrayLike, dim: int, name: str) -> NDArray[np.float32]:
    """New vectors (n, dim), or one of shape (dim,), for a fitted space."""
    if not isinstance(vectors, Embeddings):
        array = _as_array(vectors, "vectors")
        if array.ndim == 1:
            return as_vectors(array[None], dim, name)[0]
        vectors = array
    space = as_space(vectors, "vectors")
    if space.dim != dim:
        raise InputError(
            f"{space.source}: has {space.dim} dimensions, {name} of this run has {dim}; "
            f"give vectors of {name}'s encoder"
        )
    return space.vectors.astype(np.float32, copy=False)


def as_seed_rows(
    seeds: Sequence[tuple[str, str]] | ArrayLike, x: Embeddings, y: Embeddings, fewest: int, name: str = "seeds"
) -> NDArray[np.int64]:
    """Seeds as distinct rows (s, 2), none of which contradicts another; `name` is what messages call them."""
    seeds = _as_rows_or_keys(seeds)
    if isinstance(seeds, Sequence) and len(seeds) and _is_key_pair(seeds[0]):
        rows = rows_from_key_pairs(cast(Sequence[tuple[str, str]], seeds), x, y)
    else:
        rows = np.asarray(seeds)
        if rows.size == 0:
            rows = np.empty((0, 2), dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != 2 or not np.issubdtype(rows.dtype, np.integer):
            raise InputError(
                f"{name} must be pairs of keys or an integer array of shape (s, 2), "
                f"got shape {rows.shape}, dtype {rows.dtype}"
            )
        rows = rows.astype(np.int64)
        for column, space, side in ((0, x, "x"), (1, y, "y")):
            outside = (rows[:, column] < 0) | (rows[:, column] >= len(space))
            if outside.any():
                raise InputError(
                    f"{name}: {rows[outside][0, column]} is no row of {side}; rows are 0 to {len(space) - 1}"
                )
    rows = np.asarray(list(dict.fromkeys(map(tuple, rows.tolist()))), dtype=np.int64).reshape(-1, 2)
    _refuse_contradictions(rows, x, y, name)
    if len(rows) < fewest:
        raise InputError(f"{name}: this method needs at least {fewest} distinct pairs, got {len(rows)}; add more")
    return rows


def as_anchor_rows(anchors: Sequence[str] | ArrayLike, x: Embeddings) -> NDArray[np.int64]:
    """Anchors given by keys or rows, as distinct rows (a,) of X."""
    anchors = _as_rows_or_keys(anchors)
    if isinstance(anchors, Sequence) and len(anchors) and isinstance(anchors[0], str):
        rows = x.rows(cast(Sequence[str], anchors))
    else:
        rows = np.asarray(anchors)
        if rows.size == 0:
            raise InputError("anchors: none are given; give at least one key or row of x")
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise InputError(f"anchors must be keys or a list of rows of x, got shape {rows.shape}, dtype {rows.dtype}")
        if not (rows.min() >= 0 and rows.max() < len(x)):
            raise InputError(f"anchors: rows of x are 0 to {len(x) - 1}, got {rows.min()} to {rows.max()}")
        rows = rows.astype(np.int64)
    repeated = np.flatnonzero(np.bincount(rows, minlength=1) > 1)
    if len(repeated):
        raise InputError(f"anchors: {x.keys[repeated[0]]!r} is given twice; anchors must be distinct")
    return rows


def _as_rows_or_keys(values: Any) -> Any:
    """Arrays of keys as lists, tensors as arrays, anything else as it is."""
    if hasattr(values, "detach"):
        return values.detach().cpu().numpy()
    return values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind in "UO" else values


def _is_key_pair(pair: object) -> bool:
    return isinstance(pair, Sequence) and len(pair) > 0 and isinstance(pair[0], str)


def _refuse_contradictions(rows: NDArray[np.int64], x: Embeddings, y: Embeddings, name: str) -> None:
    for column in (0, 1):
        seen: dict[int, tuple[int, int]] = {}
        for left, right in rows.tolist():
            other = seen.setdefault((left, right)[column], (left, right))
            if other != (left, right):
                first, second = ((x.keys[a], y.keys[b]) for a, b in (other, (left, right)))
                raise InputError(f"{name} contradict each other: {first} and {second}; keep one of the two")


def _as_array(values: object, name: str) -> NDArray[np.floating]:
    if hasattr(values, "detach"):  # a torch tensor, perhaps bfloat16 or on a GPU
        values = values.detach().cpu().float().numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name}: rows must have the same number of dimensions ({error})") from error

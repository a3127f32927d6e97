"""Parquet with one column of strings (the keys) and one of lists of numbers (the vectors)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, MissingExtraError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.selection import Selection


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[Any]]:
    """Keys and vectors (n, d) from the first string column and the first column of number lists."""
    pa, pq = _import_pyarrow()
    key_column, vector_column = _columns(path, pa, pq.read_schema(path))
    table = pq.read_table(path, columns=[key_column, vector_column])
    keys = table.column(key_column).to_pylist()
    lists = table.column(vector_column).combine_chunks()
    if table.column(key_column).null_count or lists.null_count:
        raise InputError(f"{path}: columns `{key_column}` and `{vector_column}` must not hold nulls")
    lengths = pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False)
    dim = int(lengths[0]) if len(lengths) else 0
    ragged = np.flatnonzero(lengths != dim)
    if len(ragged):
        row = int(ragged[0])
        raise InputError(f"{path}, row {row}: expected {dim} numbers, got {int(lengths[row])}")
    vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(keys), dim)
    if selection.everything:
        return keys, vectors
    rows = selection.rows(keys)
    return [keys[row] for row in rows], vectors[rows]


def write(path: Path, space: Embeddings) -> None:
    """Write the columns `key` and `vector` (float32 lists of fixed length)."""
    pa, pq = _import_pyarrow()
    flat = pa.array(np.asarray(space.vectors).reshape(-1), type=pa.float32())
    vectors = pa.FixedSizeListArray.from_arrays(flat, space.dim)
    pq.write_table(pa.table({"key": pa.array(space.keys, type=pa.string()), "vector": vectors}), path)


def _columns(path: Path, pa: ModuleType, schema: Any) -> tuple[str, str]:
    types = pa.types
    strings = [field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)]
    lists = [
        field.name
        for field in schema
        if (types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type))
        and (types.is_floating(field.type.value_type) or types.is_integer(field.type.value_type))
    ]
    if not strings or not lists:
        raise InputError(
            f"{path}: one column of strings and one of lists of numbers are needed, the file has {schema.names}"
        )
    return strings[0], lists[0]


def _import_pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet files need pyarrow: pip install 'kedge[parquet]'") from error
    return pyarrow, pyarrow.parquet

"""Rows of a store as Arrow tables, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kedge.spaces.formats.columns import Columns
from kedge.spaces.stores.store import Batch, Id


def payload_fields(schema: Any, columns: Columns) -> Any:
    """The schema of the other columns."""
    return pa.schema([entry for entry in schema if entry.name not in (columns.id, columns.vector)])


def rows_of(table: Any, columns: Columns, begin: int) -> Batch:
    """A table or record batch as rows; those without ids are numbered from `begin`."""
    ids: list[Id] = list(range(begin, begin + len(table))) if columns.id is None else table[columns.id].to_pylist()
    others = [name for name in table.schema.names if name not in (columns.id, columns.vector)]
    payloads = table.select(others).to_pylist() if others else [{} for _ in ids]
    lists = table[columns.vector]
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    lengths = pa.compute.fill_null(pa.compute.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    dim = int(lengths.max(initial=0))
    good = np.flatnonzero(lengths == dim)
    bad = [
        (ids[row], "has no vector" if lengths[row] < 0 else f"has {lengths[row]} numbers instead of {dim}")
        for row in np.flatnonzero(lengths != dim).tolist()
    ]
    if bad:
        lists = lists.take(pa.array(good))
    vectors = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(good), dim)
    kept = good.tolist()
    return Batch([ids[row] for row in kept], vectors, [_said(payloads[row]) for row in kept], bad)


def table_of(batch: Batch, fields: Any, metadata: Mapping[str, str]) -> Any:
    """Rows as a table with the columns `id`, `vector` and those of the payload, with the types of `fields` if any."""
    types = {} if fields is None else {entry.name: entry.type for entry in fields}
    numbered = all(isinstance(name, int) for name in batch.ids)
    arrays = {"id": pa.array(batch.ids if numbered else [str(name) for name in batch.ids])}
    flat = pa.array(np.ascontiguousarray(batch.vectors, dtype=np.float32).reshape(-1))
    arrays["vector"] = pa.FixedSizeListArray.from_arrays(flat, batch.vectors.shape[1])
    for name in dict.fromkeys([*types, *(name for payload in batch.payloads for name in payload)]):
        values = [payload.get(name) for payload in batch.payloads]
        arrays["payload." + name if name in arrays else name] = pa.array(values, type=types.get(name))
    return pa.table(arrays).replace_schema_metadata(dict(metadata) or None)


def id_array(schema: Any, columns: Columns, ids: Collection[Id]) -> Any:
    """Ids as an array of the type of their column."""
    return pa.array(list(ids), type=schema.field(columns.id).type)


def _said(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a row; a column in which it has nothing is no part of it."""
    return {name: value for name, value in payload.items() if value is not None}

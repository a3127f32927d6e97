"""Convert rows of a store to Arrow tables, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.formats.columns import Columns
from kedge.spaces.stores.payloads import UnfitError, as_json
from kedge.spaces.stores.store import NO_ID, Batch, Id

ENTRY = b"kedge.entry"
"""Key in a column's metadata: the payload entry that the column holds, if it has another name."""

_JSON = b"kedge.json"  # key in a column's metadata: it holds values of several types as JSON
_UNPACKED_BYTES = 16 * 2**20  # text and bytes converted to Python objects at once
_EXACT_FLOATS = 2**53  # float64 represents all integers up to this exactly
# What Arrow raises for a value that Python cannot hold: a date too far away, an unknown time zone, invalid UTF-8.
_UNREADABLE = (pa.ArrowException, ValueError, OverflowError, TypeError, LookupError, ImportError)


def payload_fields(schema: Any, columns: Columns) -> Any:
    """The schema of the payload columns, named like their entries; without JSON columns, which have no type to keep."""
    others = [entry for entry in schema if entry.name not in (columns.id, columns.vector)]
    typed = [entry for entry in others if _JSON not in (entry.metadata or {})]
    return pa.schema([entry.with_name(entry_of(entry)).remove_metadata() for entry in typed])


def entry_of(column: Any) -> str:
    """The payload entry that a column holds."""
    return str((column.metadata or {}).get(ENTRY, column.name.encode()).decode())


def ids_of(column: Any) -> list[Id | None]:
    """The ids in a column; None where there is none that can be read."""
    return _converted(column)[0]


def dim_of(lists: Any) -> int:
    """The most common length of these vectors."""
    if pa.types.is_fixed_size_list(lists.type):
        return int(lists.type.list_size)
    lengths = pa.compute.list_value_length(lists).drop_null().to_numpy(zero_copy_only=False)
    return int(np.bincount(lengths).argmax()) if len(lengths) else 0


def rows_of(table: Any, columns: Columns, begin: int, dim: int, schema: Any = None) -> Batch:
    """Convert a table or record batch to rows of dimension `dim`; rows without an id are numbered from `begin`.

    `schema` says which entries the columns hold, if the table itself has lost this metadata.
    """
    ids: list[Id | None] = list(range(begin, begin + len(table)))
    if columns.id is not None:
        ids = ids_of(table[columns.id])
    payloads, faults = _payloads(table, columns, table.schema if schema is None else schema)
    lists = table[columns.vector]
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    lengths = pa.compute.fill_null(pa.compute.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    good: list[int] = []
    bad: list[tuple[Id, str]] = []
    for row, (name, length) in enumerate(zip(ids, lengths.tolist(), strict=True)):
        if name is None:
            bad.append((begin + row, NO_ID))
        elif length != dim:
            bad.append((name, "has no vector" if length < 0 else f"has {length} numbers instead of {dim}"))
        elif row in faults:
            bad.append((name, faults[row]))
        else:
            good.append(row)
    if bad:
        lists = lists.take(pa.array(good, pa.int64()))
    with np.errstate(over="ignore"):  # values too large for float32 become infinite, which is reported later
        vectors = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(good), dim)
    kept = [name for name in ids if name is not None] if not bad else [ids[row] for row in good]
    return Batch(kept, vectors, [payloads[row] for row in good], bad)  # type: ignore[arg-type]


def table_of(batch: Batch, fields: Any, metadata: Mapping[str, str], *, numbered: bool) -> Any:
    """Convert rows to a table with the columns `id`, `vector` and those of the payload, typed by `fields` if given.

    Ids are integers if `numbered`, else text. An entry whose values have no common Arrow type is stored as JSON, and an
    entry whose name is taken is stored under another; `rows_of` undoes both.
    """
    ids = pa.array(batch.ids, pa.int64()) if numbered else pa.array([str(name) for name in batch.ids], pa.string())
    flat = pa.array(np.ascontiguousarray(batch.vectors, dtype=np.float32).reshape(-1))
    arrays = {"id": ids, "vector": pa.FixedSizeListArray.from_arrays(flat, batch.vectors.shape[1])}
    columns = [pa.field(name, array.type) for name, array in arrays.items()]
    types = {} if fields is None else {entry.name: entry.type for entry in fields}
    for entry in dict.fromkeys([*types, *(name for payload in batch.payloads for name in payload)]):
        name = entry
        while name in arrays:
            name = f"payload.{name}"
        about = {} if name == entry else {ENTRY: entry.encode()}
        values = [payload.get(entry) for payload in batch.payloads]
        arrays[name], is_json = _array(values, types.get(entry), f"{entry!r} of the rows from {batch.ids[0]!r} on")
        columns.append(pa.field(name, arrays[name].type, metadata=about | ({_JSON: b"1"} if is_json else {})))
    return pa.table(list(arrays.values()), schema=pa.schema(columns, dict(metadata) or None))


def bounded(rows: Any) -> Iterator[Any]:
    """Slice a record batch so that no slice unpacks to too much text and bytes; each has at least one row.

    Dictionary columns, which store repeated values once, are decoded in the slices.
    """
    sizes = np.cumsum(sum((_unpacked_size(column) for column in rows.columns), np.zeros(len(rows), dtype=np.int64)))
    begin = 0
    while begin < len(rows):
        before = sizes[begin - 1] if begin else 0
        end = max(int(np.searchsorted(sizes, before + _UNPACKED_BYTES, side="right")), begin + 1)
        yield _unpacked_rows(rows.slice(begin, end - begin))
        begin = end


def id_array(schema: Any, columns: Columns, ids: Collection[Id]) -> Any:
    """Convert ids to an array of their column's type."""
    kind = schema.field(columns.id).type
    return pa.array([int(name) for name in ids] if pa.types.is_integer(kind) else list(ids), type=kind)


def has_one_type(values: Sequence[Any]) -> bool:
    """Whether all values have one type that Arrow returns unchanged; structs do not, since their entries may differ."""
    kinds = {type(value) for value in values}
    if kinds == {datetime}:  # with and without a time zone are different types
        return len({value.tzinfo for value in values}) == 1
    if not kinds:
        return True
    if kinds == {int, float}:
        return all(isinstance(value, float) or abs(value) <= _EXACT_FLOATS for value in values)
    if kinds <= {list, tuple}:
        return has_one_type([part for value in values for part in value if part is not None])
    return len(kinds) == 1 and not issubclass(next(iter(kinds)), Mapping)


def _payloads(table: Any, columns: Columns, schema: Any) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The payload of each row, without null values; also what is wrong with rows whose payload cannot be read."""
    payloads: list[dict[str, Any]] = [{} for _ in range(len(table))]
    faults: dict[int, str] = {}
    for name in table.schema.names:
        if name in (columns.id, columns.vector):
            continue
        about = schema.field(name)
        entry, is_json = entry_of(about), _JSON in (about.metadata or {})
        values, wrong = _converted(table[name], is_json=is_json)
        for payload, value in zip(payloads, values, strict=True):
            if value is not None:
                payload[entry] = value
        for row, why in wrong.items():
            faults[row] = f"has a value in {entry!r} of its payload that cannot be read ({why})"
    return payloads, faults


def _converted(column: Any, *, is_json: bool = False) -> tuple[list[Any], dict[int, str]]:
    """The values of a column as Python objects; those that cannot be read are None, with the reason by row."""
    try:
        values = column.to_pylist()
        return [json.loads(value) if value is not None else None for value in values] if is_json else values, {}
    except _UNREADABLE:
        pass
    values, faults = [None] * len(column), {}
    for row, scalar in enumerate(column):
        try:
            value = scalar.as_py()
            values[row] = json.loads(value) if is_json and value is not None else value
        except _UNREADABLE as error:
            faults[row] = " ".join(str(error).split()) or type(error).__name__
    return values, faults


def _array(values: Sequence[Any], kind: Any, where: str) -> tuple[Any, bool]:
    """Convert values to an array; also returns whether they became JSON."""
    if kind is not None:
        try:
            return pa.array(values, type=kind), False
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass  # in a later file of the source this column has another type
    if has_one_type([value for value in values if value is not None]):
        try:
            return pa.array(values), False
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
    try:
        return pa.array([None if value is None else as_json(value) for value in values], pa.string()), True
    except UnfitError:
        raise InputError(
            f"{where} are of several types, some of them bytes, which one column cannot hold; give them one type in "
            "the source"
        ) from None


def _unpacked_rows(rows: Any) -> Any:
    arrays = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in rows.columns]
    columns = [about.with_type(array.type) for about, array in zip(rows.schema, arrays, strict=True)]
    return pa.record_batch(arrays, schema=pa.schema(columns))


def _unpacked_size(column: Any) -> NDArray[np.int64]:
    """Bytes of text and bytes in each row of an array once unpacked, computed without unpacking."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _unpacked_size(column.storage)
    if pa.types.is_dictionary(kind):
        sizes = _unpacked_size(column.dictionary)
        places = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return sizes[places] if len(sizes) else np.zeros(len(column), dtype=np.int64)
    if pa.types.is_struct(kind):
        return sum(
            (_unpacked_size(column.field(part)) for part in range(kind.num_fields)), np.zeros(len(column), np.int64)
        )
    if pa.types.is_map(kind):
        ends = np.cumsum(np.concatenate([[0], _unpacked_size(column.keys) + _unpacked_size(column.items)]))
        return np.diff(ends[column.offsets.to_numpy(zero_copy_only=False)])
    if pa.types.is_nested(kind) and not (pa.types.is_union(kind) or pa.types.is_primitive(kind.value_type)):
        ends = np.cumsum(np.concatenate([[0], _unpacked_size(column.values)]))
        if pa.types.is_fixed_size_list(kind):
            return np.diff(ends[kind.list_size * (column.offset + np.arange(len(column) + 1))])
        offsets = column.offsets.to_numpy(zero_copy_only=False)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return np.diff(ends[offsets])
        return ends[offsets + column.sizes.to_numpy(zero_copy_only=False)] - ends[offsets]  # a list view
    if pa.types.is_fixed_size_binary(kind):
        return np.full(len(column), kind.byte_width, dtype=np.int64)
    if any(test(kind) for test in _VIEWS):  # of 16 bytes each, which begin with the length
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[column.offset : column.offset + len(column), 0].astype(np.int64)
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    if any(test(kind) for test in _TEXTS):
        return pa.compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.zeros(len(column), dtype=np.int64)


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
# Arrow has had views since version 16.
_VIEWS = [getattr(pa.types, name) for name in ("is_string_view", "is_binary_view") if hasattr(pa.types, name)]

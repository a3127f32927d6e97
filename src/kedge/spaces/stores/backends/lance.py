"""LanceDB: a table in a folder."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree

from kedge.errors import InputError
from kedge.spaces.formats.columns import columns_of
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.backends.arrow import (
    ENTRY,
    bounded,
    dim_of,
    entry_of,
    has_one_type,
    ids_of,
    payload_fields,
    rows_of,
)
from kedge.spaces.stores.payloads import UnfitError, plain, same_value, unfit_for_json
from kedge.spaces.stores.store import Batch, Description, Id, Metric, Store

_ID, _VECTOR = "id", "vector"
_METRICS: Mapping[str, Metric] = {"cosine": "cosine", "l2": "l2", "dot": "ip"}
_IDS_AT_ONCE = 10_000
_ADVICE = "call the right ones `id` and `vector`"


class LanceStore(Store):
    """A table with a column of ids, one of vectors, and one for each payload entry.

    A column has one type: that of the source if it has types, else that of the first rows with the entry.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if address.is_url:
            raise InputError(f"{address}: a folder is needed, not a URL: lancedb:DIR#TABLE")
        self._folder = Path(address.place)
        self._opened: _LanceTable | None = None
        self._known: set[Id] | None = None

    def exists(self) -> bool:
        """Whether the table exists; checked in the file system, since LanceDB creates the folders that it opens."""
        if self._folder.exists() and not self._folder.is_dir():
            raise InputError(f"{self.address}: a folder is needed, {str(self._folder)!r} is a file")
        return (self._folder / f"{self.address.name}.lance").is_dir()

    def describe(self) -> Description:
        """Describe the table. The metric is only known if the vectors have an index."""
        table = self._table()
        metadata = {key.decode(): value.decode("utf-8", "replace") for key, value in table.metadata.items()}
        id_type: Literal["int", "str"] = "int" if table.has_int64 else "str"
        return Description(table.client.count_rows(), table.dim, table.metric(), metadata, table.fields(), id_type)

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows in the order they were written in."""
        begin, table = 0, self._table()
        query = table.client.search()
        for found in (query if payload else query.select(table.columns.names)).to_batches(batch_size=size):
            for rows in bounded(found):
                yield table.rows(rows, begin)
                begin += len(rows)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the column of ids alone, or over row numbers if there is none."""
        table = self._table()
        if table.id is None:
            count = table.client.count_rows()
            for begin in range(0, count, size):
                yield range(begin, min(begin + size, count))
            return
        for rows in table.client.search().select([table.id]).to_batches(batch_size=size):
            yield ids_of(rows[table.id])

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        table = self._table()
        column = table.require_ids()
        literals = [_literal(name) for name in map(table.id_of, ids) if isinstance(name, int) == table.numbered]
        condition = f"`{column}` IN ({', '.join(literals)})" if literals else "false"
        return table.rows(table.client.search().where(condition).to_arrow(), 0)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist."""
        return self._ids().intersection(ids)

    def create(self, like: Description) -> None:
        """Create the table, with columns for the fields of `like` if it has any."""
        ids = pa.field(_ID, pa.int64() if like.id_type == "int" else pa.string())
        vectors = pa.field(_VECTOR, pa.list_(pa.float32(), like.dim))
        typed = [entry for entry in like.fields or () if not pa.types.is_null(entry.type)]
        others = _columns_for(typed, [_ID, _VECTOR])
        schema = pa.schema([ids, vectors, *others], dict(like.metadata) or None)
        made = lancedb.connect(self._folder).create_table(self.address.name, schema=schema)
        self._opened = _LanceTable(made, self.address)

    def write(self, batch: Batch) -> None:
        """Add the rows that do not exist yet."""
        known = self._ids()
        new = batch.take([row for row, key in enumerate(batch.ids) if self.id_of(key) not in known])
        if len(new):
            table = self._with_room_for(new)
            ids = [table.id_of(key) for key in new.ids]
            table.client.add(pa.table([_array(new, ids, column, table) for column in table.schema], table.schema))
            known.update(ids)

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """A column has one type and takes no values of another; a text column takes them as JSON."""
        columns = self._table().column_of
        as_text = {}
        for name, value in payload.items():
            kind = columns[name].type if name in columns else None
            if value is None or (isinstance(value, bytes) and (kind is None or pa.types.is_binary(kind))):
                continue
            if kind is None or pa.types.is_string(kind):
                as_text[name] = value
                continue
            if not _fits(value, kind):
                return (
                    f"has {str(value)[:40]!r} in {name!r} of its payload, where the column of the target holds {kind}"
                )
        return unfit_for_json(as_text)

    def finish(self) -> None:
        """Merge the many small files, and index the ids, since each lookup would read all of them otherwise."""
        table = self._table()
        # Nobody needs versions from before the table was complete. Zero would mean just that, but makes LanceDB warn.
        table.client.optimize(cleanup_older_than=timedelta(milliseconds=1))
        table.client.create_index(table.require_ids(), config=BTree())

    def id_of(self, key: Id) -> Id:
        """The id as its column holds it: text, or an integer if the column holds integers and it is one."""
        return self._table().id_of(key) if self._opened or self.exists() else key

    def _table(self) -> _LanceTable:
        if self._opened is None:
            self._opened = _LanceTable(lancedb.connect(self._folder).open_table(self.address.name), self.address)
        return self._opened

    def _ids(self) -> set[Id]:
        """All ids, cached because LanceDB would scan all of them on each lookup."""
        if self._known is None:
            table, self._known = self._table(), set()
            column = table.require_ids()
            for rows in table.client.search().select([column]).to_batches(batch_size=_IDS_AT_ONCE):
                self._known.update(name for name in ids_of(rows[column]) if name is not None)
        return self._known

    def _with_room_for(self, batch: Batch) -> _LanceTable:
        """The table, after adding a column for each new payload entry of these rows."""
        table = self._table()
        said = dict.fromkeys(name for payload in batch.payloads for name, value in payload.items() if value is not None)
        new = [name for name in said if name not in table.column_of]
        if new:
            fields = [pa.field(name, _type_of([payload.get(name) for payload in batch.payloads])) for name in new]
            table.client.add_columns(_columns_for(fields, table.schema.names))
            table = self._opened = _LanceTable(table.client, self.address)
        return table


class _LanceTable:
    """A table of the client, with the roles of its columns."""

    def __init__(self, client: Any, address: Address) -> None:
        self.client, self.address, self.schema = client, address, client.schema
        self.columns = columns_of(self.schema, str(address), advice=_ADVICE)
        self.id, self.vector = self.columns.id, self.columns.vector
        kind = pa.int64() if self.id is None else self.schema.field(self.id).type
        self.numbered = pa.types.is_integer(kind)
        self.has_int64 = self.numbered and not pa.types.is_uint64(kind)
        self._numbers = _range_of(kind) if self.numbered else range(0)
        self.metadata: Mapping[bytes, bytes] = self.schema.metadata or {}
        others = [column for column in self.schema if column.name not in (self.id, self.vector)]
        self.column_of = {entry_of(column): column for column in others}

    def id_of(self, key: Id) -> Id:
        """The id as its column holds it."""
        text = str(key)
        return int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,19}", text) and int(text) in self._numbers else text

    def require_ids(self) -> str:
        """The column of ids; raises `InputError` if there is none."""
        if self.id is None:
            names = ", ".join(self.schema.names)
            raise InputError(f"{self.address}: no column of text or integers to find rows by; the columns are {names}")
        if "`" in self.id:
            raise InputError(f"{self.address}: the column of ids, {self.id!r}, has a ` in its name; rename it")
        return self.id

    @cached_property
    def dim(self) -> int:
        """The dimension of the vectors; if it is not fixed, the most common one among the first rows."""
        kind = self.schema.field(self.vector).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        return dim_of(self.client.search().select([self.vector]).limit(1000).to_arrow()[self.vector].combine_chunks())

    def rows(self, found: Any, begin: int) -> Batch:
        """Convert what was found to rows, with payload entries under their own names."""
        return rows_of(found, self.columns, begin, self.dim, self.schema)

    def fields(self) -> Any:
        """The types of the payload, named like its entries."""
        return payload_fields(self.schema, self.columns)

    def metric(self) -> Metric | None:
        """The metric of the index on the vectors, or None."""
        for index in self.client.list_indices():
            if index.columns == [self.vector]:
                return _METRICS.get(self.client.index_stats(index.name).distance_type)
        return None


def _columns_for(fields: Iterable[Any], taken: Sequence[str]) -> list[Any]:
    """Fields for columns, renamed where LanceDB does not allow a name or the name is taken."""
    columns, used = [], set(taken)
    for entry in fields:
        name = re.sub(r"[^\w -]", "_", entry.name) or "_"
        while name in used or name.startswith("_row"):  # reserved by LanceDB
            name = f"entry_{name}"
        used.add(name)
        columns.append(pa.field(name, entry.type, metadata={} if name == entry.name else {ENTRY: entry.name}))
    return columns


def _fits(value: Any, kind: Any) -> bool:
    """Whether a column of this type returns the value unchanged; Arrow itself would turn a number into a date."""
    try:
        return same_value(value, pa.scalar(value, kind).as_py())
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return False


def _range_of(kind: Any) -> range:
    """The range of an integer type; LanceDB fails on values beyond it."""
    first = -(2 ** (kind.bit_width - 1)) if pa.types.is_signed_integer(kind) else 0
    return range(first, first + 2**kind.bit_width)


def _type_of(values: Sequence[Any]) -> Any:
    """The type of a column for these values; text if Arrow has no common type for them, or only a nested one."""
    if not has_one_type([value for value in values if value is not None]):
        return pa.string()
    try:
        kind = pa.array(values).type
    except (TypeError, ValueError, OverflowError):
        return pa.string()
    inner = kind.value_type if pa.types.is_list(kind) else kind
    return pa.string() if pa.types.is_nested(inner) or pa.types.is_null(inner) else kind


def _array(batch: Batch, ids: Sequence[Id], column: Any, table: _LanceTable) -> Any:
    """The values of these rows in a column; a text column holds anything else as JSON."""
    if column.name == table.id:
        return pa.array(ids, column.type)
    if column.name == table.vector:
        flat = pa.array(np.ascontiguousarray(batch.vectors, dtype=np.float32).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, batch.vectors.shape[1])
    entry = entry_of(column)
    values = [payload.get(entry) for payload in batch.payloads]
    try:
        if pa.types.is_string(column.type):
            values = [value if value is None or isinstance(value, str) else _as_text(value) for value in values]
        return pa.array(values, column.type)
    except UnfitError as error:
        raise InputError(
            f"{table.address}: {entry!r} of a row between {batch.ids[0]!r} and {batch.ids[-1]!r} holds {error}; give "
            "it one type in all rows of the source"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{table.address}: column {column.name!r} holds {column.type}, which {entry!r} of a row between "
            f"{batch.ids[0]!r} and {batch.ids[-1]!r} is not ({error}); give it one type in all rows of the source"
        ) from None


def _as_text(value: Any) -> str:
    """Convert a value to JSON with sorted keys; what JSON can only hold as text, such as a date, gets no quotes."""
    said = plain(value)
    return said if isinstance(said, str) else json.dumps(said, sort_keys=True, ensure_ascii=False)


def _literal(name: Id) -> str:
    return str(name) if isinstance(name, int) else "'" + name.replace("'", "''") + "'"

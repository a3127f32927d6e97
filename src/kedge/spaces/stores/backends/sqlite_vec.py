"""sqlite-vec: a vec0 table in an SQLite file."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import sqlite_vec

from kedge.errors import InputError, did_you_mean
from kedge.spaces.packed_bits import unpack_bits
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.payloads import PAYLOAD, from_columns, to_columns, unfit_for_json
from kedge.spaces.stores.store import DOCUMENT, Batch, Description, Id, Metric, Store
from kedge.spaces.writing.atomic import require_parent

_COLUMN = "embedding"  # for new tables, if the address names no column
_NOTES = "kedge_stores"
_TYPES = {"float": "<f4", "f32": "<f4", "int8": "<i1", "i8": "<i1", "bit": "u1"}  # eight bits to a byte
_VECTOR = re.compile(r"(\w+)\s+(\w+)\s*\[\s*(\d+)\s*\](.*)", re.DOTALL)
_KEY = re.compile(r"(\w+)\s+(\w+)\s+primary\s+key", re.IGNORECASE)
_OTHER = re.compile(r"\+?\s*(\w+)\s+\w+")
_ANY_CASE = re.IGNORECASE | re.DOTALL
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_METRICS: dict[str, Metric] = {"cosine": "cosine", "l2": "l2"}
# Vectors are stored in blobs of some MB; finding one means walking through the pages of its blob.
_CACHE_KIB = 65536
_WAIT_MS = 20_000
_INT64 = range(-(2**63), 2**63)
# Column names that vec0 accepts; it has no quoting for others.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = ("id", "rowid", "distance", "k", PAYLOAD, DOCUMENT)


@dataclass(frozen=True)
class _VectorTable:
    """A table as its CREATE statement describes it."""

    id: str
    id_is_text: bool
    vector: str
    dim: int
    kind: str  # the type of its numbers, a key of `_TYPES`
    metric: Metric | None
    others: Sequence[str]
    metadata: Mapping[str, str] | None  # None if kedge did not create the table

    @property
    def key(self) -> str:
        """The column with the ids in the shadow table that vec0 keeps of them."""
        return "id" if self.id_is_text else "rowid"

    @property
    def is_own(self) -> bool:
        """Whether kedge created the table, with all payload in one column."""
        return self.metadata is not None and set(self.others) == {PAYLOAD, DOCUMENT}


class SqliteVecStore(Store):
    """A table, or TABLE.COLUMN if it has several vector columns; its other columns are the payload."""

    is_folder = False
    metrics = ("cosine", "l2")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._name, _, self._column = address.name.partition(".")
        self._rows, self._ids = _quoted(self._name), _quoted(f"{self._name}_rowids")
        self._found: _VectorTable | None = None
        self._connections: dict[bool, apsw.Connection] = {}

    def exists(self) -> bool:
        """Whether the table exists; checking does not create the file."""
        return self._look() is not None

    def describe(self) -> Description:
        """Describe the table."""
        table = self._table()
        ((rows,),) = self._query(f"SELECT count(*) FROM {self._ids}")
        return Description(
            rows, table.dim, table.metric, table.metadata or {}, id_type="str" if table.id_is_text else "int"
        )

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows in file order, a page at a time, so that no writer waits until all are read."""
        table = self._table()
        if not payload:
            table = replace(table, others=())
        # In any other order each row may be in another blob, and a page takes 100 times as long.
        rowids = self._connection(read_only=True).execute(
            f"SELECT rowid FROM {self._ids} ORDER BY chunk_id, chunk_offset"
        )
        order = np.fromiter((rowid for (rowid,) in rowids), dtype=np.int64)
        page = (
            f"SELECT e.key AS place, r.{table.key} AS key FROM json_each(?) e JOIN {self._ids} r ON r.rowid = e.value"
        )
        for begin in range(0, len(order), size):
            yield self._rows_of(page, order[begin : begin + size].tolist(), table)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids in the same order, from the shadow table that vec0 keeps of them."""
        query = f"SELECT {self._table().key} FROM {self._ids} ORDER BY chunk_id, chunk_offset"
        rows = iter(self._connection(read_only=True).execute(query))
        while page := list(islice(rows, size)):
            yield [name for (name,) in page]

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        table, names = self._table(), {self.id_of(name) for name in ids}
        return self._rows_of("SELECT key AS place, value AS key FROM json_each(?)", list(names), table)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist."""
        key = self._table().key
        query = f"SELECT {key} FROM {self._ids} WHERE {key} IN (SELECT value FROM json_each(?))"
        return {name for (name,) in self._query(query, [json.dumps([self.id_of(name) for name in ids])])}

    def create(self, like: Description) -> None:
        """Create the table, and the file if there is none."""
        require_parent(Path(self.address.place))
        column = self._column or _COLUMN
        if not _NAME.fullmatch(column) or column.lower() in _TAKEN:
            raise InputError(
                f"{self.address}: a new column of vectors must have a name of ASCII letters, digits and _, other "
                f"than {', '.join(_TAKEN)}, got {column!r}"
            )
        if not (self._name and self._name.isprintable()) or self._name.lower().startswith(("sqlite_", _NOTES)):
            raise InputError(
                f"{self.address}: a new table must have a name of printable characters that does not begin with "
                f"sqlite_ or {_NOTES}, got {self._name!r}"
            )
        connection = self._connection(read_only=False)
        kind, metric = "integer" if like.id_type == "int" else "text", "l2" if like.metric == "l2" else "cosine"
        with connection:
            connection.execute(
                f"CREATE VIRTUAL TABLE {self._rows} USING vec0(id {kind} primary key, "
                f"{column} float[{int(like.dim)}] distance_metric={metric}, "
                f"+{PAYLOAD} text, +{DOCUMENT} text)"
            )
            connection.execute(f"CREATE TABLE IF NOT EXISTS {_NOTES} (name TEXT PRIMARY KEY, metadata TEXT)")
            notes = (self._name, json.dumps(dict(like.metadata)))
            connection.execute(f"INSERT OR REPLACE INTO {_NOTES} VALUES (?, ?)", notes)
        self._found = None

    def write(self, batch: Batch) -> None:
        """Add the rows that do not exist yet."""
        table, connection = self._table(), self._connection(read_only=False)
        if not table.is_own:
            raise InputError(f"{self.address}: kedge only writes to tables that it made; choose a name that is free")
        names = [self.id_of(name) for name in batch.ids]
        there = self.present(names)
        rows = zip(names, batch.vectors.astype("<f4"), batch.payloads, strict=True)
        with connection:
            connection.executemany(
                f'INSERT INTO {self._rows} (id, "{table.vector}", {PAYLOAD}, {DOCUMENT}) VALUES (?, ?, ?, ?)',
                ((name, vector.tobytes(), *to_columns(payload)) for name, vector, payload in rows if name not in there),
            )

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:
        """Payload is JSON, and SQLite would cut an id at a NUL."""
        if "\0" in str(key):
            return "has a NUL character in its id, which SQLite takes for its end"
        if not self._table().id_is_text and int(key) not in _INT64:
            return "has an id beyond 64 bits, which the table cannot keep"
        return unfit_for_json(payload)

    def close(self) -> None:
        """Close the file."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def id_of(self, key: Id) -> Id:
        """The id as the table holds it: text or an integer."""
        table = self._look()
        if table is None:
            return key
        try:
            return str(key) if table.id_is_text else int(key)
        except ValueError:
            raise InputError(
                f"{self.address}: ids are whole numbers there, but {key!r} is not; choose a table that does not exist "
                "yet"
            ) from None

    def _connection(self, *, read_only: bool) -> apsw.Connection:
        if read_only not in self._connections:
            flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
            connection = self._connections[read_only] = apsw.Connection(self.address.place, flags=flags)
            connection.set_busy_timeout(_WAIT_MS)
            connection.enable_load_extension(True)
            connection.load_extension(sqlite_vec.loadable_path())
            connection.enable_load_extension(False)
            try:
                connection.execute("PRAGMA schema_version")
            except apsw.ReadOnlyError:
                # A writer was killed; rolling back its unfinished transaction takes a connection that may write.
                self._connection(read_only=False).execute("PRAGMA schema_version")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        return self._connections[read_only]

    def _query(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        return list(self._connection(read_only=True).execute(query, values))

    def _rows_of(self, keys: str, values: Sequence[Id], table: _VectorTable) -> Batch:
        """The rows whose ids a query makes of a list, looked up one by one: vec0 scans the table otherwise."""
        columns = ", ".join(f't."{name}"' for name in (table.id, table.vector, *table.others))
        joined = f'({keys}) AS given CROSS JOIN {self._rows} t ON t."{table.id}" = given.key'
        query = f"SELECT {columns} FROM {joined} ORDER BY given.place"
        return _batch(self._query(query, [json.dumps(values)]), table)

    def _table(self) -> _VectorTable:
        table = self._look()
        if table is None:
            raise InputError(f"{self.address}: there is no such table")
        return table

    def _look(self) -> _VectorTable | None:
        """The table, or None; cached, since only `create` changes it here."""
        if self._found is None and Path(self.address.place).exists():
            found = self._query("SELECT sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", (self._name,))
            if found:
                self._found = self._parsed(found[0][0])
        return self._found

    def _parsed(self, statement: str) -> _VectorTable:
        """Parse the CREATE statement of the table; the types are found nowhere else."""
        definition = re.fullmatch(r"create\s+virtual\s+table.*?\susing\s+vec0\s*\((.*)\)\s*", statement, _ANY_CASE)
        if definition is None:
            raise InputError(f"{self.address}: is not a table of sqlite-vec (vec0)")
        vectors, others, key = {}, [], None
        for part in map(str.strip, re.split(r",(?![^()]*\))", definition[1])):
            if vector := _VECTOR.match(part):
                vectors[vector[1]] = vector
            elif found := _KEY.match(part):
                key = found
            elif found := _OTHER.match(part):
                others.append(found[1])
        if len(vectors) > 1 and not self._column:
            raise InputError(
                f"{self.address}: has several columns of vectors ({', '.join(vectors)}); say which: TABLE.COLUMN"
            )
        name = self._column or next(iter(vectors), "")
        if name not in vectors:
            near = did_you_mean(name, vectors) or f"; there are {', '.join(vectors)}"
            raise InputError(f"{self.address}: there is no such column of vectors{near}")
        kind, dim, options = vectors[name].group(2, 3, 4)
        if kind.lower() not in _TYPES:
            raise InputError(f"{self.address}: only vectors of float, int8 and bit can be read, {name} has {kind}")
        metric = _METRIC.search(options)
        return _VectorTable(
            id=key[1] if key else "rowid",
            id_is_text=key is not None and key[2].lower() == "text",
            vector=name,
            dim=int(dim),
            kind=kind.lower(),
            metric=_METRICS.get(metric[1].lower() if metric else "l2"),
            others=others,
            metadata=self._metadata(),
        )

    def _metadata(self) -> Mapping[str, str] | None:
        if not self._query("SELECT 1 FROM sqlite_master WHERE name = ?", (_NOTES,)):
            return None
        found = self._query(f"SELECT metadata FROM {_NOTES} WHERE name = ? COLLATE NOCASE", (self._name,))
        return json.loads(found[0][0]) if found else None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _batch(rows: Sequence[Sequence[Any]], table: _VectorTable) -> Batch:
    stored = np.frombuffer(b"".join(row[1] for row in rows), dtype=_TYPES[table.kind])
    if table.kind == "bit":
        vectors = unpack_bits(stored.reshape(len(rows), -1 if rows else table.dim), table.dim, "little")
    else:
        vectors = stored.reshape(len(rows), table.dim).astype(np.float32)
    payloads = [dict(zip(table.others, row[2:], strict=True)) for row in rows]
    if table.is_own:
        payloads = [from_columns(json.loads(payload[PAYLOAD]), payload[DOCUMENT]) for payload in payloads]
    return Batch([row[0] for row in rows], vectors, payloads)

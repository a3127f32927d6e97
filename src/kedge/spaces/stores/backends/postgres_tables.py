"""Tables as PostgreSQL's catalogue describes them: columns, row keys, and rows in binary form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal
from psycopg.types.datetime import DateLoader, IntervalLoader, TimeLoader, TimestampLoader, TimestamptzLoader

from kedge.errors import InputError
from kedge.spaces.packed_bits import unpack_bits
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.payloads import PAYLOAD, from_columns
from kedge.spaces.stores.store import DOCUMENT, NO_ID, Batch, Id, Metric

NUMBERS = {"vector": ">f4", "halfvec": ">f2", "bit": "u1"}
"""NumPy types of the numbers in each vector type as sent, after `HEAD` bytes with the dimension; `bit`, which is only
read, has eight to a byte."""

HEAD = 4
INTEGERS = ("smallint", "integer", "bigint")
OWN = {PAYLOAD: "jsonb", DOCUMENT: "text"}
"""The columns other than id and vector in tables that kedge creates."""

COLUMNS = """
SELECT a.attname, t.typname, format_type(a.atttypid, -1), n.nspname, a.atttypmod, col_description(a.attrelid, a.attnum),
       (SELECT max(substring(o.opcname FROM '_(cosine|l2|ip)_ops$')) FROM pg_index i
        JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# The primary key, else the unique index with the fewest columns that covers all rows and allows no nulls; and whether
# rows of other tables, which inherit from this one, are among its rows, but not covered by the index.
KEY = """
SELECT k.names, EXISTS (
    SELECT FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhparent WHERE c.oid = i.indrelid AND c.relkind = 'r'
) FROM pg_index i CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY u.place) AS names, bool_and(a.attnotnull) AS not_null
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY u(number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.number WHERE u.place <= i.indnkeyatts
) k
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL AND k.not_null
ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid LIMIT 1
"""

# Insert the rows that were sent; existing vectors are kept.
INSERT = SQL("""
INSERT INTO {table} AS t ({key}, payload, document, {column})
SELECT {given}, g.payload::jsonb, g.document, g.vector FROM pg_temp.kedge_given g
ON CONFLICT ({key}) DO UPDATE SET {column} = excluded.{column} WHERE t.{column} IS NULL
""")
UPDATE = SQL("""
UPDATE {table} t SET {column} = g.vector FROM pg_temp.kedge_given g WHERE {matches} AND t.{column} IS NULL
""")
ABSENT = SQL("""
SELECT g.* FROM pg_temp.kedge_given g WHERE NOT EXISTS (SELECT FROM {table} t WHERE {matches})
""")


@dataclass(frozen=True)
class Column:
    """A column as the catalogue describes it."""

    name: str
    kind: str  # the bare name of the type
    type: str  # the type as written in SQL
    home: str  # the schema of the type
    dim: int  # -1 if not fixed
    comment: str | None
    metric: Metric | None  # of an index on the column


@dataclass(frozen=True)
class RowKey:
    """The columns that identify a row.

    If there are several, an id is the JSON list of their values, such as `["acme", 7]`. The key is `certain` if the
    database itself guarantees that no two rows share it.
    """

    columns: Sequence[Column]
    certain: bool

    def selected(self) -> list[Composable]:
        """The columns to select from table `t`: integers as they are, everything else as text."""
        return [
            name if column.type in INTEGERS else SQL("{}::text").format(name)
            for column, name in zip(self.columns, self.names("t"), strict=True)
        ]

    def names(self, *table: str) -> list[Composable]:
        """The column names, qualified by a table name if one is given."""
        return [Identifier(*table, column.name) for column in self.columns]

    def given(self) -> list[Composable]:
        """The key columns of table `g`, which holds integers or text, cast to their types."""
        return [
            SQL("{}::{}").format(Identifier("g", f"key_{place}"), SQL(column.type))
            for place, column in enumerate(self.columns)
        ]

    def matches(self) -> Composed:
        """The condition that a row of `t` and a row of `g` have the same key."""
        pairs = zip(self.names("t"), self.given(), strict=True)
        return SQL(" AND ").join(SQL("{} = {}").format(name, given) for name, given in pairs)

    def among(self, ids: Sequence[Id]) -> Composed:
        """The condition that a row of `t` has one of these ids."""
        parts = [self.parts(name) for name in ids]
        values = [
            SQL("{}::text[]::{}[]").format(Literal([str(part[place]) for part in parts]), SQL(column.type))
            for place, column in enumerate(self.columns)
        ]
        if len(values) == 1:
            return SQL("{} = ANY({})").format(self.names("t")[0], values[0])
        names = SQL(", ").join(self.names("t"))
        return SQL("({}) IN (SELECT * FROM unnest({}))").format(names, SQL(", ").join(values))

    def joined(self, values: Sequence[Any]) -> Id | None:
        """The id of a row with these values; None if any is null."""
        if any(value is None for value in values):
            return None
        return values[0] if len(values) == 1 else json.dumps(list(values), ensure_ascii=False)

    def parts(self, key: Id) -> list[Id]:
        """Split an id into values, each as its column holds it; raises `ValueError` or `TypeError` if invalid."""
        values = [key]
        if len(self.columns) > 1:
            values = json.loads(str(key))
            if not isinstance(values, list) or len(values) != len(self.columns):
                raise ValueError
        return [_as_in(column, value) for column, value in zip(self.columns, values, strict=True)]

    def __str__(self) -> str:
        if len(self.columns) == 1:
            return self.columns[0].type
        return f"JSON lists of {', '.join(f'{column.name} ({column.type})' for column in self.columns)}"


@dataclass(frozen=True)
class VectorTable:
    """A table by the roles of its columns."""

    key: RowKey
    vector: Column
    others: Sequence[Column]
    dim: int

    @property
    def is_own(self) -> bool:
        """Whether it looks like a table that kedge created, with all payload in one column."""
        return {column.name: column.type for column in self.others} == OWN

    def order(self) -> Composed:
        """Sort by id, and also by vector if ids may repeat, so that the order is stable."""
        names = self.key.names("t")
        return SQL(", ").join(names if self.key.certain else [*names, Identifier("t", self.vector.name)])

    def batch(self, rows: Sequence[tuple[Any, ...]], begin: int) -> Batch:
        """Convert result rows (key, vector, other columns); rows without an id are named by number, from `begin`."""
        width = len(self.key.columns)
        packed = self.vector.kind == "bit"
        width_sent = -(-self.dim // 8) if packed else self.dim
        sent = np.dtype([("head", f"V{HEAD}"), ("numbers", NUMBERS[self.vector.kind], (width_sent,))])
        good: list[tuple[Id, tuple[Any, ...]]] = []
        bad: list[tuple[Id, str]] = []
        for number, row in enumerate(rows, begin):
            name, vector = self.key.joined(row[:width]), row[width]
            if name is None:
                bad.append((number, NO_ID))
            elif vector is None:
                bad.append((name, "has no vector"))
            elif len(vector) != sent.itemsize:
                bad.append((name, f"has {int.from_bytes(vector[:2], 'big')} numbers instead of {self.dim}"))
            else:
                good.append((name, row[width:]))
        numbers = np.frombuffer(b"".join(row[0] for _, row in good), dtype=sent)["numbers"]
        vectors = unpack_bits(np.ascontiguousarray(numbers), self.dim) if packed else numbers.astype(np.float32)
        names = [column.name for column in self.others]
        payloads = [dict(zip(names, row[1:], strict=True)) for _, row in good]
        if self.is_own:
            payloads = [from_columns(payload[PAYLOAD], payload[DOCUMENT]) for payload in payloads]
        return Batch([name for name, _ in good], vectors, payloads, bad)


def metadata_of(column: Column) -> Mapping[str, str]:
    """The metadata that kedge wrote as a comment on a column; empty if the comment is not kedge's."""
    try:
        found = json.loads(column.comment or "")
    except ValueError:
        return {}
    is_own = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if is_own else {}


def extension_schema(connection: psycopg.Connection[Any], address: Address) -> str:
    """The schema of pgvector; enables the extension if necessary."""
    query = "SELECT nspname FROM pg_namespace n JOIN pg_extension e ON e.extnamespace = n.oid WHERE extname = 'vector'"
    why = "no such extension"
    if not (found := connection.execute(query).fetchone()):
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:  # also if another client enables it at the same moment
            why = address.hide(str(error).splitlines()[0])
        found = connection.execute(query).fetchone()
    if not found:
        raise InputError(
            f"{address}: pgvector is not enabled in this database, and could not be ({why}); install it on the server "
            "and have its administrator run CREATE EXTENSION vector"
        )
    return str(found[0])


def read_times_as_text(connection: psycopg.Connection[Any]) -> None:
    """Read times that Python cannot represent, such as `infinity` or dates BC, as text."""
    kinds = {
        "date": DateLoader,
        "time": TimeLoader,
        "timestamp": TimestampLoader,
        "timestamptz": TimestamptzLoader,
        "interval": IntervalLoader,
    }
    for name, loader in kinds.items():
        connection.adapters.register_loader(name, type(f"{loader.__name__}OrText", (_OrText, loader), {}))


class _OrText:
    def load(self, data: Any) -> Any:
        try:
            return super().load(data)  # type: ignore[misc]
        except (psycopg.DataError, ValueError, OverflowError):
            return bytes(data).decode()


def _as_in(column: Column, value: Id) -> Id:
    """A value as its column holds it: an integer, a UUID in canonical form, or text."""
    if column.type in INTEGERS:
        return int(value)
    return str(UUID(str(value))) if column.type == "uuid" else str(value)

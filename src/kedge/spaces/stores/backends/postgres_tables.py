"""What PostgreSQL's catalogue says of a table: its columns, and which of them identify a row. Rows as they are sent."""

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
"""The types of vectors, with that of their numbers as they are sent, after `HEAD` bytes with the dimension; of `bit`,
which is read only, eight to a byte."""

HEAD = 4
INTEGERS = ("smallint", "integer", "bigint")
OWN = {PAYLOAD: "jsonb", DOCUMENT: "text"}
"""The columns beside id and vector of tables that kedge makes."""

COLUMNS = """
SELECT a.attname, t.typname, format_type(a.atttypid, -1), n.nspname, a.atttypmod, col_description(a.attrelid, a.attnum),
       (SELECT max(substring(o.opcname FROM '_(cosine|l2|ip)_ops$')) FROM pg_index i
        JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# The primary key, else the shortest other index that lets no two rows be the same: whole, and without nulls.
KEY = """
SELECT k.names FROM pg_index i CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY u.place) AS names, bool_and(a.attnotnull) AS not_null
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY u(number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.number WHERE u.place <= i.indnkeyatts
) k
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL AND k.not_null
ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid LIMIT 1
"""

# Rows that were sent get into the table; vectors that are in it stay.
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
    """A column as the catalogue has it."""

    name: str
    kind: str  # the name of the type alone
    type: str  # as it is written in SQL
    home: str  # the schema of the type
    dim: int  # -1 where it has none
    comment: str | None
    metric: Metric | None  # of an index


@dataclass(frozen=True)
class RowKey:
    """The columns that identify a row.

    Where they are several, an id is the list of their values as JSON, such as `["acme", 7]`. They are `certain` if the
    database itself lets no two rows have the same values.
    """

    columns: Sequence[Column]
    certain: bool

    def selected(self) -> list[Composable]:
        """What is asked for of the table `t`: whole numbers, and all else as text."""
        return [
            name if column.type in INTEGERS else SQL("{}::text").format(name)
            for column, name in zip(self.columns, self.names("t"), strict=True)
        ]

    def names(self, *table: str) -> list[Composable]:
        """The columns, of the table of that name if one is given."""
        return [Identifier(*table, column.name) for column in self.columns]

    def given(self) -> list[Composable]:
        """The same of the table `g`, where they lie as whole numbers or text, with the right types."""
        return [
            SQL("{}::{}").format(Identifier("g", f"key_{place}"), SQL(column.type))
            for place, column in enumerate(self.columns)
        ]

    def matches(self) -> Composed:
        """The condition that a row of `t` is the one meant by a row of `g`."""
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
        """The id of a row with these values; None where one is null."""
        if any(value is None for value in values):
            return None
        return values[0] if len(values) == 1 else json.dumps(list(values), ensure_ascii=False)

    def parts(self, key: Id) -> list[Id]:
        """The values of an id, each as its column has it; what cannot be one is a `ValueError`."""
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
    """The columns that are used."""

    key: RowKey
    vector: Column
    others: Sequence[Column]
    dim: int

    @property
    def is_own(self) -> bool:
        """Whether it looks like those made here, with all payload in one column."""
        return {column.name: column.type for column in self.others} == OWN

    def order(self) -> Composed:
        """By the ids; where these may repeat, the vectors decide, so that the order stays the same."""
        names = self.key.names("t")
        return SQL(", ").join(names if self.key.certain else [*names, Identifier("t", self.vector.name)])

    def batch(self, rows: Sequence[tuple[Any, ...]], begin: int) -> Batch:
        """Rows of the values of the key, the vector and the other columns; those without an id count from `begin`."""
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
    """What was written here as a comment on a column; one of others says nothing."""
    try:
        found = json.loads(column.comment or "")
    except ValueError:
        return {}
    is_own = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if is_own else {}


def extension_schema(connection: psycopg.Connection[Any], address: Address) -> str:
    """The schema of pgvector, which is enabled if it is not."""
    query = "SELECT nspname FROM pg_namespace n JOIN pg_extension e ON e.extnamespace = n.oid WHERE extname = 'vector'"
    why = "no such extension"
    if not (found := connection.execute(query).fetchone()):
        try:
            with connection.transaction():
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:  # also where another enables it at the same moment
            why = address.hide(str(error).splitlines()[0])
        found = connection.execute(query).fetchone()
    if not found:
        raise InputError(
            f"{address}: pgvector is not enabled in this database, and could not be ({why}); install it on the server "
            "and have its administrator say CREATE EXTENSION vector"
        )
    return str(found[0])


def read_times_as_text(connection: psycopg.Connection[Any]) -> None:
    """Let times that Python has no type for, such as `infinity` and those before our era, be read as text."""
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
    """A value as a column has it: a whole number, the usual form of a UUID, or text."""
    if column.type in INTEGERS:
        return int(value)
    return str(UUID(str(value))) if column.type == "uuid" else str(value)

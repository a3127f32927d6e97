"""PostgreSQL with pgvector: a column of vectors in a table, its other columns the payload."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from kedge.errors import InputError, did_you_mean
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.json_payload import PAYLOAD, from_columns, to_columns
from kedge.spaces.stores.store import DOCUMENT, Batch, Description, Id, Metric, Store

_COLUMN = "embedding"  # where the address names none and there is none
_NUMBERS = {"vector": ">f4", "halfvec": ">f2"}  # as they are sent, after 4 bytes with the dimension
_HEAD = 4
_INTEGERS = ("smallint", "integer", "bigint")
_OWN = {PAYLOAD: "jsonb", DOCUMENT: "text"}

_COLUMNS = """
SELECT a.attname, t.typname, format_type(a.atttypid, -1), n.nspname, a.atttypmod, col_description(a.attrelid, a.attnum),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary
               AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
       (SELECT max(substring(o.opcname FROM '_(cosine|l2|ip)_ops$')) FROM pg_index i
        JOIN pg_opclass o ON o.oid = i.indclass[0] WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# Rows that were sent get into the table; vectors that are in it stay.
_INSERT = SQL("""
INSERT INTO {table} AS t ({id}, payload, document, {column})
SELECT {given}, g.payload::jsonb, g.document, g.vector FROM pg_temp.kedge_given g
ON CONFLICT ({id}) DO UPDATE SET {column} = excluded.{column} WHERE t.{column} IS NULL
""")
_UPDATE = SQL("""
UPDATE {table} t SET {column} = g.vector FROM pg_temp.kedge_given g WHERE t.{id} = {given} AND t.{column} IS NULL
""")
_ABSENT = SQL("""
SELECT g.id FROM pg_temp.kedge_given g WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = {given})
""")


@dataclass(frozen=True)
class _Column:
    name: str
    kind: str  # the name of the type alone
    type: str  # as it is written in SQL
    home: str  # the schema of the type
    dim: int  # -1 where it has none
    comment: str | None
    is_key: bool
    metric: Metric | None  # of an index


@dataclass(frozen=True)
class _Table:
    """The columns that are used."""

    id: _Column
    vector: _Column
    others: Sequence[_Column]
    dim: int

    @property
    def is_own(self) -> bool:
        """Whether it looks like those made here, with all payload in one column."""
        return {column.name: column.type for column in self.others} == _OWN


class PostgresStore(Store):
    """A column of a table.

    Where neither is there, both are made, with the payload as JSON. Where only the column is missing, it is added to
    the table, and rows are written into it by id.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if not address.place.startswith(("postgresql://", "postgres://")):
            raise InputError(
                f"{address}: an address of this kind reads pgvector:postgresql://USER@HOST/DB#TABLE.COLUMN"
            )
        if re.match(r"\w+://[^/?]*/[^?]*@", address.place):
            # The client would take the password apart, and tell of its parts.
            raise InputError(f"{address}: a / in a password is written %2F, an @ in other places %40")
        parts = address.name.split(".")
        if len(parts) > 3 or "" in parts:
            raise InputError(f"{address}: after # goes TABLE, TABLE.COLUMN or SCHEMA.TABLE.COLUMN")
        self._column = parts.pop() if len(parts) > 1 else None
        self._relation = Identifier(*parts)
        self._found: _Table | None = None
        self._connections: dict[bool, psycopg.Connection[Any]] = {}

    def exists(self) -> bool:
        """Whether the table is there and has the column."""
        return self._look() is not None

    def describe(self) -> Description:
        """What the column holds; the dimension of an empty one without a fixed dimension is 0."""
        table = self._table()
        ((rows,),) = self._query(SQL("SELECT count({}) FROM {}").format(Identifier(table.vector.name), self._relation))
        return Description(
            rows,
            table.dim,
            table.vector.metric,
            _metadata(table.vector.comment),
            id_type="int" if table.id.type in _INTEGERS else "str",
        )

    def read(self, size: int) -> Iterator[Batch]:
        """The rows in the order of their ids, as they are when this begins."""
        table = self._table()
        # A connection of its own, so that nothing else waits for the end of this transaction.
        with self._connect(read_only=True) as connection, connection.cursor("kedge") as cursor:
            cursor.execute(SQL("{} ORDER BY {}").format(self._select(table), Identifier("t", table.id.name)))
            while rows := cursor.fetchmany(size):
                yield _batch(rows, table)

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        table = self._table()
        return _batch(self._query(self._select(table) + _among(table.id), [list(map(str, ids))]), table)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """Those of the ids whose rows have a vector."""
        table = self._table()
        query = SQL("SELECT {} FROM {} t{} AND {} IS NOT NULL").format(
            _plain(table.id), self._relation, _among(table.id), Identifier("t", table.vector.name)
        )
        return {name for (name,) in self._query(query, [list(map(str, ids))])}

    def create(self, like: Description) -> None:
        """Make the table, or the column in a table that is there."""
        columns = self._columns()
        if columns:
            self._key_of(columns)
        name = Identifier(self._column or _COLUMN)
        connection = self._connection(read_only=False)
        with connection.transaction():
            # A column is added when nobody reads the table; who waits for that holds up all who come after.
            connection.execute("SET LOCAL lock_timeout = '20s'")
            vector = SQL("{}({})").format(Identifier(self._extension(connection), "vector"), Literal(like.dim))
            if columns:
                connection.execute(SQL("ALTER TABLE {} ADD COLUMN {} {}").format(self._relation, name, vector))
            else:
                others = [SQL("{} {}").format(Identifier(other), SQL(kind)) for other, kind in _OWN.items()]
                id_type = SQL("bigint" if like.id_type == "int" else "text")
                connection.execute(
                    SQL("CREATE TABLE {} (id {} PRIMARY KEY, {}, {} {})").format(
                        self._relation, id_type, SQL(", ").join(others), name, vector
                    )
                )
            if like.metadata:
                comment = Literal(json.dumps(dict(like.metadata)))
                connection.execute(SQL("COMMENT ON COLUMN {}.{} IS {}").format(self._relation, name, comment))
        self._found = None

    def write(self, batch: Batch) -> None:
        """Add rows, or their vectors to the rows that are there; a vector that is there stays."""
        table, connection = self._table(), self._connection(read_only=False)
        names = {
            "table": self._relation,
            "id": Identifier(table.id.name),
            "column": Identifier(table.vector.name),
            "given": SQL("g.id::{}").format(SQL(table.id.type)),
        }
        with connection.transaction(), connection.cursor() as cursor:
            self._send(cursor, batch, table)
            if table.is_own:
                cursor.execute(_INSERT.format(**names))
                return
            cursor.execute(_UPDATE.format(**names))
            if absent := cursor.execute(_ABSENT.format(**names)).fetchall():
                raise InputError(
                    f"{self.address}: {len(absent)} of {len(batch)} ids are not in the table, one is {absent[0][0]!r}; "
                    "its rows get vectors but no rows are added: add them, or choose a table that is not there yet"
                )

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def id_of(self, key: Id) -> Id:
        """As the column of the ids has it: a whole number, the usual form of a UUID, or text."""
        table = self._look()
        if table is None:
            return key
        try:
            if table.id.type in _INTEGERS:
                return int(key)
            return str(UUID(str(key))) if table.id.type == "uuid" else str(key)
        except ValueError:
            raise InputError(
                f"{self.address}: ids are {table.id.type} there, {key!r} is not; choose a table that is not there yet"
            ) from None

    def _connect(self, *, read_only: bool, autocommit: bool = False) -> psycopg.Connection[Any]:
        # Prepared statements get lost behind a pool of connections.
        connection = psycopg.connect(self.address.place, autocommit=autocommit, prepare_threshold=None)
        connection.read_only = read_only
        return connection

    def _connection(self, *, read_only: bool) -> psycopg.Connection[Any]:
        """The one for all short statements that do not write, or that do."""
        if read_only not in self._connections:
            self._connections[read_only] = self._connect(read_only=read_only, autocommit=True)
        return self._connections[read_only]

    def _query(self, query: str | Composed, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        connection = self._connection(read_only=True)
        with connection.transaction():
            return connection.execute(query, values).fetchall()

    def _columns(self) -> list[_Column]:
        """All columns of the table; none if it is not there."""
        relation = self._relation.as_string(self._connection(read_only=True))
        columns = [_Column(*row) for row in self._query(_COLUMNS, [relation])]
        first, *others = self.address.name.split(".")
        if not columns and len(others) == 1 and self._query("SELECT FROM pg_namespace WHERE nspname = %s", [first]):
            raise InputError(f"{self.address}: {first} is a schema; name the column too: SCHEMA.TABLE.COLUMN")
        return columns

    def _key_of(self, columns: Sequence[_Column]) -> _Column:
        keys = [column for column in columns if column.is_key] or [c for c in columns if c.name == "id"]
        if not keys:
            raise InputError(f"{self.address}: the table has no primary key of one column and no column `id`")
        return keys[0]

    def _table(self) -> _Table:
        table = self._look()
        if table is None:
            near = did_you_mean(self._column or "", [column.name for column in self._columns()])
            raise InputError(f"{self.address}: there is no such table or column{near}")
        return table

    def _look(self) -> _Table | None:
        """The table with its column, or None; remembered, since only `create` changes it here."""
        if self._found is None:
            columns = self._columns()
            vector = self._vector_of(columns)
            if vector is None:
                return None
            key = self._key_of(columns)
            others = [column for column in columns if column != key and column.kind not in (*_NUMBERS, "sparsevec")]
            self._found = _Table(key, vector, others, vector.dim if vector.dim > 0 else self._usual_dim(vector))
        return self._found

    def _vector_of(self, columns: Sequence[_Column]) -> _Column | None:
        if self._column is None:
            vectors = [column for column in columns if column.kind in _NUMBERS]
            if len(vectors) > 1:
                names = ", ".join(column.name for column in vectors)
                raise InputError(
                    f"{self.address}: the table has several columns of vectors ({names}); say which: TABLE.COLUMN"
                )
        else:
            vectors = [column for column in columns if column.name == self._column]
            if vectors and vectors[0].kind not in _NUMBERS:
                raise InputError(f"{self.address}: the column is of type {vectors[0].type}, not vector or halfvec")
        return vectors[0] if vectors else None

    def _usual_dim(self, vector: _Column) -> int:
        """The dimension that most vectors have, of a column that lets each have its own."""
        query = SQL(
            "SELECT {}({column}) FROM {} WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
        )
        column = Identifier(vector.name)
        found = self._query(query.format(Identifier(vector.home, "vector_dims"), self._relation, column=column))
        return found[0][0] if found else 0

    def _select(self, table: _Table) -> Composed:
        """What makes a row. Vectors are sent as bytes, which read faster than text."""
        name, send = Identifier("t", table.vector.name), Identifier(table.vector.home, f"{table.vector.kind}_send")
        others = [Identifier("t", column.name) for column in table.others]
        columns = SQL(", ").join([_plain(table.id), SQL("{}({})").format(send, name), *others])
        return SQL("SELECT {} FROM {} t").format(columns, self._relation)

    def _extension(self, connection: psycopg.Connection[Any]) -> str:
        """The schema of pgvector, which is enabled if it is not."""
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except psycopg.Error as error:
            told = self.address.hide(str(error).splitlines()[0])
            raise InputError(
                f"{self.address}: pgvector is not enabled in this database, and could not be ({told}); "
                "install it on the server and have its administrator say CREATE EXTENSION vector"
            ) from None
        query = (
            "SELECT nspname FROM pg_namespace n JOIN pg_extension e ON e.extnamespace = n.oid WHERE extname = 'vector'"
        )
        found = connection.execute(query).fetchone()
        return str(found[0]) if found else "public"

    def _send(self, cursor: psycopg.Cursor[Any], batch: Batch, table: _Table) -> None:
        """Put rows into a table that lasts as long as the transaction."""
        id_type, kind = "bigint" if table.id.type in _INTEGERS else "text", table.vector.kind
        cursor.execute(
            SQL("CREATE TEMP TABLE kedge_given (id {}, vector {}, payload json, document text) ON COMMIT DROP").format(
                SQL(id_type), Identifier(table.vector.home, kind)
            )
        )
        head = batch.vectors.shape[1].to_bytes(2, "big") + bytes(_HEAD - 2)
        vectors = batch.vectors.astype(_NUMBERS[kind])
        with cursor.copy("COPY pg_temp.kedge_given FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types([id_type, "bytea", "text", "text"])  # whose bytes are those of a vector and of JSON, too
            for name, vector, payload in zip(batch.ids, vectors, batch.payloads, strict=True):
                others = to_columns(payload) if table.is_own else (None, None)
                copy.write_row((self.id_of(name), head + vector.tobytes(), *others))


def _plain(column: _Column) -> Composable:
    """An id as a whole number or text."""
    name = Identifier("t", column.name)
    return name if column.type in _INTEGERS else SQL("{}::text").format(name)


def _among(column: _Column) -> Composed:
    return SQL(" WHERE {} = ANY(%s::text[]::{}[])").format(Identifier("t", column.name), SQL(column.type))


def _batch(rows: Sequence[tuple[Any, ...]], table: _Table) -> Batch:
    sent = np.dtype([("head", f"V{_HEAD}"), ("numbers", _NUMBERS[table.vector.kind], (table.dim,))])
    good, bad = [], []
    for row in rows:
        if row[1] is None:
            bad.append((row[0], "has no vector"))
        elif len(row[1]) != sent.itemsize:
            bad.append((row[0], f"has {int.from_bytes(row[1][:2], 'big')} numbers instead of {table.dim}"))
        else:
            good.append(row)
    vectors = np.frombuffer(b"".join(row[1] for row in good), dtype=sent)["numbers"].astype(np.float32)
    names = [column.name for column in table.others]
    payloads = [dict(zip(names, row[2:], strict=True)) for row in good]
    if table.is_own:
        payloads = [from_columns(payload[PAYLOAD], payload[DOCUMENT]) for payload in payloads]
    return Batch([row[0] for row in good], vectors, payloads, bad)


def _metadata(comment: str | None) -> Mapping[str, str]:
    """What was written here as a comment; one of others says nothing."""
    try:
        found = json.loads(comment or "")
    except ValueError:
        return {}
    is_own = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if is_own else {}

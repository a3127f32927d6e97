"""PostgreSQL with pgvector: a column of vectors in a table, whose other columns are the payload."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from kedge.errors import InputError, did_you_mean
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.backends.postgres_tables import (
    ABSENT,
    COLUMNS,
    HEAD,
    INSERT,
    INTEGERS,
    KEY,
    NUMBERS,
    OWN,
    UPDATE,
    Column,
    RowKey,
    VectorTable,
    extension_schema,
    metadata_of,
    read_times_as_text,
)
from kedge.spaces.stores.payloads import to_columns, unfit_for_json
from kedge.spaces.stores.store import Batch, Description, Id, Store

_COLUMN = "embedding"  # if the address names none and the table has none
_OTHER_VECTORS = ("vector", "halfvec", "sparsevec")  # columns of these types are no payload; bit columns may be flags
_MIN_BITS = 64  # a shorter bit column counts as a vector only if the address names it
_MAX_NAME_BYTES = 63  # PostgreSQL truncates longer names, which then name something else


class PostgresStore(Store):
    """A column of a table.

    If neither exists, both are created, with the payload as JSON. If only the column is missing, it is added to the
    table, and rows get their vectors by the primary key, which may have several columns, or by a unique index.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        if not address.place.startswith(("postgresql://", "postgres://")):
            raise InputError(
                f"{address}: an address of this kind has the form pgvector:postgresql://USER@HOST/DB#TABLE.COLUMN"
            )
        if re.match(r"\w+://[^/?]*/[^?]*@", address.place):
            # The client would split the password and show parts of it.
            raise InputError(f"{address}: write / in a password as %2F, and @ elsewhere as %40")
        parts = address.name.split(".")
        if len(parts) > 3 or "" in parts:
            raise InputError(f"{address}: after # give TABLE, TABLE.COLUMN or SCHEMA.TABLE.COLUMN")
        if any("\0" in part or len(part.encode("utf-8", "replace")) > _MAX_NAME_BYTES for part in parts):
            raise InputError(f"{address}: a name in PostgreSQL has at most {_MAX_NAME_BYTES} bytes, and no NUL")
        self._column = parts.pop() if len(parts) > 1 else None
        self._relation = Identifier(*parts)
        self._named = parts[-1]
        self._found: VectorTable | None = None
        self._identity: RowKey | None = None
        self._sought = False  # whether the key was looked up since the table last changed
        self._connections: dict[bool, psycopg.Connection[Any]] = {}

    def exists(self) -> bool:
        """Whether the table exists and has the column."""
        return self._look() is not None

    def describe(self) -> Description:
        """Describe the column; if it is empty and has no fixed dimension, the dimension is 0."""
        table = self._table()
        ((rows,),) = self._query(SQL("SELECT count({}) FROM {}").format(Identifier(table.vector.name), self._relation))
        return Description(
            rows,
            table.dim,
            table.vector.metric,
            metadata_of(table.vector),
            id_type="int" if [column.type in INTEGERS for column in table.key.columns] == [True] else "str",
        )

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows in the order of their ids, as of when reading begins."""
        table = self._table()
        if not payload:
            table = replace(table, others=())
        begin = 0
        for rows in self._pages(SQL("{} ORDER BY {}").format(self._select(table), table.order()), size):
            yield table.batch(rows, begin)
            begin += len(rows)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids in the same order, reading the columns of the key alone."""
        table = self._table()
        columns = SQL(", ").join(table.key.selected())
        query = SQL("SELECT {} FROM {} t ORDER BY {}").format(columns, self._relation, table.order())
        for rows in self._pages(query, size):
            yield [table.key.joined(row) for row in rows]

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        table = self._table()
        return table.batch(self._query(self._select(table) + SQL(" WHERE ") + table.key.among(list(ids))), 0)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids whose rows have a vector."""
        table = self._table()
        query = SQL("SELECT {} FROM {} t WHERE {} AND {} IS NOT NULL").format(
            SQL(", ").join(table.key.selected()),
            self._relation,
            table.key.among(list(ids)),
            Identifier("t", table.vector.name),
        )
        return {name for row in self._query(query) if (name := table.key.joined(row)) is not None}

    def create(self, like: Description) -> None:
        """Create the table, or add the column to an existing table."""
        columns = self._columns()
        if columns:
            self._require_certain(self._key_of(columns))
        name = Identifier(self._column or _COLUMN)
        connection = self._connection(read_only=False)
        with connection.transaction():
            # Adding a column waits until nobody reads the table, and blocks all later readers meanwhile.
            connection.execute("SET LOCAL lock_timeout = '20s'")
            vector = SQL("{}({})").format(
                Identifier(extension_schema(connection, self.address), "vector"), Literal(like.dim)
            )
            if columns:
                connection.execute(SQL("ALTER TABLE {} ADD COLUMN {} {}").format(self._relation, name, vector))
            else:
                others = [SQL("{} {}").format(Identifier(other), SQL(kind)) for other, kind in OWN.items()]
                id_type = SQL("bigint" if like.id_type == "int" else "text")
                connection.execute(
                    SQL("CREATE TABLE {} (id {} PRIMARY KEY, {}, {} {})").format(
                        self._relation, id_type, SQL(", ").join(others), name, vector
                    )
                )
            if like.metadata:
                comment = Literal(json.dumps(dict(like.metadata)))
                connection.execute(SQL("COMMENT ON COLUMN {}.{} IS {}").format(self._relation, name, comment))
        self._found, self._sought = None, False

    def write(self, batch: Batch) -> None:
        """Add rows, or add vectors to existing rows; existing vectors are kept."""
        table, connection = self._table(), self._connection(read_only=False)
        names = {
            "table": self._relation,
            "key": SQL(", ").join(table.key.names()),
            "column": Identifier(table.vector.name),
            "given": SQL(", ").join(table.key.given()),
            "matches": table.key.matches(),
        }
        self._require_certain(table.key)
        with connection.transaction(), connection.cursor() as cursor:
            self._send(cursor, batch, table)
            if table.is_own:
                cursor.execute(INSERT.format(**names))
                return
            cursor.execute(UPDATE.format(**names))
            if absent := cursor.execute(ABSENT.format(**names)).fetchall():
                one = table.key.joined(absent[0][: len(table.key.columns)])
                raise InputError(
                    f"{self.address}: {len(absent)} of {len(batch)} ids are not in the table, one is {one!r}; its rows "
                    "get vectors, but kedge adds no rows: add them, or choose a table that does not exist yet"
                )

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:
        """PostgreSQL text cannot hold NUL. Payload is written only to tables that kedge created, as JSON."""
        if "\0" in str(key):
            return "has a NUL character in its id, which PostgreSQL cannot keep"
        return unfit_for_json(payload, nul=False) if self._table().is_own else None

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Keep other writers out of tables of this name with an advisory lock, which ends with the connection."""
        digest = hashlib.blake2b(f"kedge {self._named}".encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "big", signed=True)
        connection = self._connect(read_only=True)

        def require_held() -> None:
            try:
                connection.execute("SELECT 1")
            except psycopg.Error as error:
                raise InputError(
                    f"{self.address}: the connection that kept other writers out was lost; continue with --resume"
                ) from error

        try:
            # The lock belongs to a transaction: behind a connection pool, the session may soon be another client's.
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            found = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [number]).fetchone()
            if found is None or not found[0]:
                raise InputError(
                    f"{self.address}: another process is writing to the table; wait until it is done, stop it, or "
                    "choose another name"
                )
            yield require_held
        finally:
            with suppress(psycopg.Error):
                connection.rollback()  # release the lock now, not when the server notices the closed connection
                connection.close()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def id_of(self, key: Id) -> Id:
        """The id as the key columns hold it: an integer, a UUID in canonical form, text, or a JSON list of these."""
        if not self._sought:
            columns = self._columns()
            self._identity, self._sought = self._key_of(columns) if columns else None, True
        if self._identity is None:
            return key
        try:
            parts = self._identity.parts(key)
        except (ValueError, TypeError):
            raise InputError(
                f"{self.address}: ids are {self._identity} there, but {key!r} is not; choose a table that does not "
                "exist yet"
            ) from None
        return key if (found := self._identity.joined(parts)) is None else found

    def _connect(self, *, read_only: bool, autocommit: bool = False) -> psycopg.Connection[Any]:
        # No prepared statements: they get lost behind a connection pool.
        connection = psycopg.connect(self.address.place, autocommit=autocommit, prepare_threshold=None)
        connection.read_only = read_only
        read_times_as_text(connection)
        return connection

    def _connection(self, *, read_only: bool) -> psycopg.Connection[Any]:
        """The shared connection for short statements, one for reading and one for writing."""
        if read_only not in self._connections:
            self._connections[read_only] = self._connect(read_only=read_only, autocommit=True)
        return self._connections[read_only]

    def _pages(self, query: Composed, size: int) -> Iterator[list[tuple[Any, ...]]]:
        # A separate connection, so that nothing else waits for this transaction to end.
        with self._connect(read_only=True) as connection, connection.cursor("kedge") as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(size):
                yield rows

    def _query(self, query: str | Composed, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a result. Pass no values if the query contains names: a % in a name would be a placeholder."""
        connection = self._connection(read_only=True)
        with connection.transaction():
            return connection.execute(query, values).fetchall()

    def _columns(self) -> list[Column]:
        """All columns of the table; an empty list if it does not exist."""
        columns = [Column(*row) for row in self._query(COLUMNS, [self._relation_text()])]
        first, *others = self.address.name.split(".")
        if not columns and len(others) == 1 and self._query("SELECT FROM pg_namespace WHERE nspname = %s", [first]):
            raise InputError(f"{self.address}: {first} is a schema; name the column too: SCHEMA.TABLE.COLUMN")
        return columns

    def _relation_text(self) -> str:
        return self._relation.as_string(self._connection(read_only=True))

    def _key_of(self, columns: Sequence[Column]) -> RowKey:
        """The columns that identify a row: a key of the table, else a column `id`, which need not be unique."""
        if found := self._query(KEY, [self._relation_text()]):
            ((names, inherited),) = found
            keys = [column for name in names for column in columns if column.name == name]
            return RowKey(keys, certain=not inherited)
        keys = [column for column in columns if column.name == "id"]
        if not keys:
            raise InputError(
                f"{self.address}: nothing identifies its rows: no primary key, no unique index over columns that are "
                "not null, and no column `id`"
            )
        return RowKey(keys, certain=False)

    def _require_certain(self, key: RowKey) -> None:
        """Raise `InputError` if several rows may have the same id, since vectors could reach the wrong row."""
        if not key.certain:
            raise InputError(
                f"{self.address}: the table has no primary key and no unique index over columns that are not null, or "
                "it has one, but tables that inherit from it are not covered, so that a vector could reach the wrong "
                "row; add one (ALTER TABLE ... ADD PRIMARY KEY (...)), or choose a table that does not exist yet"
            )

    def _table(self) -> VectorTable:
        table = self._look()
        if table is None:
            near = did_you_mean(self._column or "", [column.name for column in self._columns()])
            raise InputError(f"{self.address}: there is no such table or column{near}")
        return table

    def _look(self) -> VectorTable | None:
        """The table with its column, or None; cached, since only `create` changes it here."""
        if self._found is None:
            columns = self._columns()
            vector = self._vector_of(columns)
            if vector is None:
                return None
            key = self._key_of(columns)
            # Key columns stay in the payload if they are several: nobody can search by one of them within a joined id.
            alone = list(key.columns) if len(key.columns) == 1 else []
            others = [
                column for column in columns if column not in (*alone, vector) and column.kind not in _OTHER_VECTORS
            ]
            self._found = VectorTable(key, vector, others, vector.dim if vector.dim > 0 else self._usual_dim(vector))
        return self._found

    def _vector_of(self, columns: Sequence[Column]) -> Column | None:
        if self._column is None:
            vectors = [column for column in columns if column.kind in NUMBERS and column.kind != "bit"]
            vectors = vectors or [column for column in columns if column.kind == "bit" and column.dim >= _MIN_BITS]
            if len(vectors) > 1:
                names = ", ".join(column.name for column in vectors)
                raise InputError(
                    f"{self.address}: the table has several columns of vectors ({names}); say which: TABLE.COLUMN"
                )
        else:
            vectors = [column for column in columns if column.name == self._column]
            if vectors and vectors[0].kind not in NUMBERS:
                kind = vectors[0].type
                dense = "; a dense one is needed" if vectors[0].kind == "sparsevec" else ""
                raise InputError(f"{self.address}: the column is of type {kind}, not vector, halfvec or bit{dense}")
        return vectors[0] if vectors else None

    def _usual_dim(self, vector: Column) -> int:
        """The most common dimension in a column without a fixed one; 0 if it is empty."""
        query = SQL(
            "SELECT {}({column}) FROM {} WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
        )
        column = Identifier(vector.name)
        found = self._query(query.format(Identifier(vector.home, "vector_dims"), self._relation, column=column))
        return found[0][0] if found else 0

    def _select(self, table: VectorTable) -> Composed:
        """The query for rows. Vectors are sent in binary, which is faster to read than text."""
        name, send = Identifier("t", table.vector.name), Identifier(table.vector.home, f"{table.vector.kind}_send")
        others = [Identifier("t", column.name) for column in table.others]
        columns = SQL(", ").join([*table.key.selected(), SQL("{}({})").format(send, name), *others])
        return SQL("SELECT {} FROM {} t").format(columns, self._relation)

    def _send(self, cursor: psycopg.Cursor[Any], batch: Batch, table: VectorTable) -> None:
        """Copy rows into a temporary table that lasts until the end of the transaction."""
        if table.vector.kind == "bit":
            raise InputError(f"{self.address}: a column of bits can only be read; write to one of type vector")
        kinds = ["bigint" if column.type in INTEGERS else "text" for column in table.key.columns]
        keys = [SQL("{} {}").format(Identifier(f"key_{place}"), SQL(kind)) for place, kind in enumerate(kinds)]
        cursor.execute(
            SQL("CREATE TEMP TABLE kedge_given ({}, vector {}, payload json, document text) ON COMMIT DROP").format(
                SQL(", ").join(keys), Identifier(table.vector.home, table.vector.kind)
            )
        )
        head = batch.vectors.shape[1].to_bytes(2, "big") + bytes(HEAD - 2)
        vectors = batch.vectors.astype(NUMBERS[table.vector.kind])
        with cursor.copy("COPY pg_temp.kedge_given FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types([*kinds, "bytea", "text", "text"])  # same binary form as vector and json
            for name, vector, payload in zip(batch.ids, vectors, batch.payloads, strict=True):
                others = to_columns(payload) if table.is_own else (None, None)
                copy.write_row((*table.key.parts(self.id_of(name)), head + vector.tobytes(), *others))

"""What tables have that other stores have not: types, schemas, a column beside the old one."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from kedge import InputError, read_embeddings
from kedge.spaces.stores import DOCUMENT, NOTE, Address, Batch, Description, open_store
from kedge.spaces.stores.migration import migrate

VECTORS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def doubled(vectors):
    return np.concatenate([vectors, vectors], axis=1)


def read_all(address: str) -> Batch:
    with open_store(address) as store:
        (batch,) = store.read(100)
    return batch


@pytest.fixture
def database(postgres):
    """A function that runs a statement in a database, made for one test, with pgvector; `url` is its URL."""
    psycopg = pytest.importorskip("psycopg")
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = postgres.replace("/postgres?", f"/{name}?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")

        def run(statement, values=None):
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else None

        run.url = url
        yield run


def as_text(vector) -> str:
    return str(vector.tolist())


def fill_documents(run, columns: str = "id bigint PRIMARY KEY, title text, vector vector(3)") -> None:
    run(f"CREATE TABLE docs ({columns})")
    for number, vector in enumerate(VECTORS, 1):
        run("INSERT INTO docs (id, title, vector) VALUES (%s, %s, %s)", (number, f"title {number}", as_text(vector)))


def test_pg_a_column_beside_the_old(database):
    fill_documents(database)
    with open_store(f"pgvector:{database.url}#docs.vector") as source:
        about = source.describe()
        assert (about.rows, about.dim, about.id_type) == (5, 3, "int")
        with open_store(f"pgvector:{database.url}#docs.new") as target:
            assert not target.exists()
            result = migrate(source, target, doubled, {"model": "new"}, (3, 6), batch_rows=2)
            assert (result.written, result.complete) == (5, True)
            assert (target.describe().rows, target.describe().dim) == (5, 6)
            assert target.describe().metadata == {NOTE: '{"model": "new"}'}
    after = read_all(f"pgvector:{database.url}#docs.vector")
    np.testing.assert_array_equal(after.vectors, VECTORS)
    beside = read_all(f"pgvector:{database.url}#docs.new")
    assert beside.ids == after.ids == [1, 2, 3, 4, 5]
    assert beside.payloads == after.payloads
    assert beside.payloads[0] == {"title": "title 1"}
    np.testing.assert_array_equal(beside.vectors, doubled(VECTORS))


def test_pg_a_column_that_was_left_half_written(database):
    fill_documents(database)
    rows = Batch([1, 2], doubled(VECTORS[:2]), [{}, {}])
    with open_store(f"pgvector:{database.url}#docs.new") as store:
        store.create(Description(5, 6, id_type="int"))
        assert store.exists()
        assert store.describe().rows == 0
        store.write(rows)
        store.write(replace(rows, vectors=-rows.vectors))  # what is there stays
        assert store.describe().rows == 2
        assert store.present([store.id_of(name) for name in ("1", "2", "3", "9")]) == {1, 2}
        batch = store.fetch([1, 2, 3])
        np.testing.assert_array_equal(batch.vectors, rows.vectors)
        assert batch.bad == [(3, "has no vector")]


def test_pg_a_column_gets_no_rows_that_the_table_has_not(database):
    fill_documents(database)
    with open_store(f"pgvector:{database.url}#docs.new") as store:
        store.create(Description(5, 3))
        with pytest.raises(InputError, match="1 of 2 ids are not in the table, one is 7"):
            store.write(Batch([1, 7], VECTORS[:2], [{}, {}]))
        assert store.describe().rows == 0
        with pytest.raises(InputError, match="ids are bigint there, but 'seven' is not"):
            store.write(Batch(["seven"], VECTORS[:1], [{}]))


def test_pg_reading_changes_nothing(database):
    fill_documents(database)
    database("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'touched'; END$$")
    database("CREATE TRIGGER no BEFORE INSERT OR UPDATE OR DELETE ON docs EXECUTE FUNCTION refuse()")
    with open_store(f"pgvector:{database.url}#docs.vector") as store:
        store.describe(), store.fetch([1]), store.present([1])
        batches = store.read(2)
        next(batches)
        # One transaction is open now; who adds a column has to wait for its end, and for none of the others.
        assert database("SELECT state FROM pg_stat_activity WHERE state LIKE 'idle in%'") == [("idle in transaction",)]
        connection = store._store._connection(read_only=True)
        with pytest.raises(Exception, match="read-only"), connection.transaction():
            connection.execute("DELETE FROM docs")
        batches.close()
    assert len(read_embeddings(f"pgvector:{database.url}#docs")) == 5


def test_pg_rows_without_a_vector_and_of_another_dimension(database):
    fill_documents(database, "id bigint PRIMARY KEY, title text, vector vector")
    database("INSERT INTO docs VALUES (0, 'none', NULL), (6, 'long', '[1,2,3,4]')")
    with open_store(f"pgvector:{database.url}#docs") as store:
        assert (store.describe().rows, store.describe().dim) == (6, 3)
        batches = list(store.read(1))
    assert [batch.bad for batch in batches if batch.bad] == [
        [(0, "has no vector")],
        [(6, "has 4 numbers instead of 3")],
    ]
    assert all(batch.vectors.shape == (len(batch), 3) for batch in batches)
    with pytest.raises(InputError, match="row 0 has no vector"):
        read_embeddings(f"pgvector:{database.url}#docs")


def test_pg_types(database):
    database("CREATE TYPE mood AS ENUM ('good', 'bad')")
    database(
        "CREATE TABLE docs (at timestamptz, key uuid PRIMARY KEY DEFAULT gen_random_uuid(), price numeric, "
        "tags text[], extra jsonb, feeling mood, half halfvec(3), other vector(2), sparse sparsevec(4))"
    )
    at = datetime.datetime(2024, 2, 3, 4, 5, tzinfo=datetime.UTC)
    database(
        "INSERT INTO docs VALUES (%s, DEFAULT, 1.5, ARRAY['a', 'b'], '{\"deep\": [1]}', 'good', '[1,2,3]', NULL, NULL)",
        (at,),
    )
    batch = read_all(f"pgvector:{database.url}#docs.half")
    ((key,),) = database("SELECT key FROM docs")
    payload = {"at": at, "price": Decimal("1.5"), "tags": ["a", "b"], "extra": {"deep": [1]}, "feeling": "good"}
    assert list(batch.payloads) == [payload]
    np.testing.assert_array_equal(batch.vectors, [[1, 2, 3]])
    assert batch.ids == [str(key)]
    with open_store(f"pgvector:{database.url}#docs.half") as source:
        assert source.id_of(str(key).upper()) == str(key)
        assert source.present([str(key), str(uuid.uuid4())]) == {str(key)}
        with pytest.raises(InputError, match="ids are uuid there, but '1' is not"):
            source.id_of("1")
        with open_store(f"pgvector:{database.url}#copy") as target:
            assert migrate(source, target, doubled, {}, (3, 6)).complete
    copied = read_all(f"pgvector:{database.url}#copy.embedding")
    assert copied.payloads[0] == payload | {"at": str(at), "price": "1.5"}


def test_pg_names_are_taken_as_they_are(database):
    database('CREATE SCHEMA "My Schema"')
    address = f'pgvector:{database.url}#My Schema.Ta"ble; --.the Vector'
    with open_store(address) as store:
        assert not store.exists()
        payloads = [{"n": float("nan"), "of": [1, None]}, {DOCUMENT: "text 'quoted'"}, {}]
        store.create(Description(3, 3, metadata={"what": "it's 100 %s"}, id_type="int"))
        store.write(Batch([3, 1, 2], VECTORS[:3], payloads))
        assert store.describe().metadata == {"what": "it's 100 %s"}
    batch = read_all(address)
    assert batch.ids == [1, 2, 3]
    assert list(batch.payloads) == [{DOCUMENT: "text 'quoted'"}, {}, {"n": "NaN", "of": [1, None]}]
    with (
        pytest.raises(InputError, match="public is a schema"),
        open_store(f"pgvector:{database.url}#public.docs") as store,
    ):
        store.exists()


def test_pg_the_metric_is_that_of_an_index_and_a_comment_of_others_is_nothing(database):
    fill_documents(database)
    address = f"pgvector:{database.url}#docs.vector"
    for comment in ("plain text", "[1]", '{"a": 1}'):
        database(f"COMMENT ON COLUMN docs.vector IS '{comment}'")
        with open_store(address) as store:
            assert (store.describe().metadata, store.describe().metric) == ({}, None)
    database("CREATE INDEX ON docs USING hnsw (vector vector_ip_ops)")
    with open_store(address) as store:
        assert store.describe().metric == "ip"


def test_pg_an_extension_in_a_schema_of_its_own(database):
    database("DROP EXTENSION vector")
    database("CREATE SCHEMA extensions")
    database("CREATE EXTENSION vector SCHEMA extensions")
    address = f"pgvector:{database.url}#docs.vector"
    with open_store(address) as store:
        store.create(Description(5, 3))
        store.write(Batch(["a"], VECTORS[:1], [{}]))
    np.testing.assert_array_equal(read_all(address).vectors, VECTORS[:1])


@pytest.mark.parametrize(
    ("columns", "name", "told"),
    [
        ("title text, vector vector(3)", "docs", "nothing identifies its rows: no primary key, .* no column `id`"),
        ("id int, a vector(3), b vector(3)", "docs", r"several columns of vectors \(a, b\)"),
        ("id int, a sparsevec(3)", "docs.a", "of type sparsevec, not vector, halfvec or bit; a dense one is needed"),
        ("id int", "docs.", "TABLE.COLUMN"),
        ("id int", "a.b.c.d", "TABLE.COLUMN"),
    ],
)
def test_pg_tables_that_cannot_be_read(database, columns, name, told):
    database(f"CREATE TABLE docs ({columns})")
    with pytest.raises(InputError, match=told):
        read_embeddings(f"pgvector:{database.url}#{name}")


def test_pg_errors_show_no_password(database, monkeypatch):
    database("DROP ROLE IF EXISTS guarded")
    database("CREATE ROLE guarded LOGIN PASSWORD 'hush/hush'")
    place = database.url.replace("postgres:@", "guarded:{}@")
    try:
        for wrong in ("wrong%2Fpass", "wrong/pass", "wro%zzng"):
            with pytest.raises(InputError) as caught:
                read_embeddings(f"pgvector:{place.format(wrong)}#docs")
            assert "guarded:***@/" in str(caught.value)
            assert not [part for part in ("wrong", 'pass"', "wro%") if part in str(caught.value)]
            assert caught.value.__cause__ is None
        for found in (place.format("hush%2Fhush"), place.replace(":{}@", "@")):
            monkeypatch.setenv("PGPASSWORD", "hush/hush")
            with open_store(f"pgvector:{found}#docs.vector") as store:
                assert not store.exists()
                with pytest.raises(InputError, match="permission denied for schema public"):
                    store.create(Description(1, 3))
        database("DROP EXTENSION vector")
        told = "pgvector is not enabled.*permission denied.*CREATE EXTENSION"
        with open_store(f"pgvector:{found}#docs.vector") as store, pytest.raises(InputError, match=told):
            store.create(Description(1, 3))
    finally:
        database("DROP ROLE guarded")


def test_pg_a_server_that_is_not_there():
    pytest.importorskip("psycopg")
    with pytest.raises(InputError, match=r"me:\*\*\*@127\.0\.0\.1:1/db#docs: .*refused") as caught:
        read_embeddings("pgvector:postgresql://me:hush@127.0.0.1:1/db#docs")
    assert "hush" not in str(caught.value)
    with pytest.raises(InputError, match=r"password=\*\*\* .*has the form pgvector:postgresql://"):
        read_embeddings("pgvector:host=there password=hush user=me#docs")


def test_pg_addresses_of_a_socket():
    address = Address.parse("pgvector:postgresql://postgres:@/postgres?host=/run/pg#docs")
    assert str(address) == "pgvector:postgresql://postgres:@/postgres?host=/run/pg#docs"
    # A password that is also a word of the address hides itself only.
    address = Address.parse("pgvector:postgresql://postgres:postgres@db/postgres?password=a%20b&x=1#docs")
    assert str(address) == "pgvector:postgresql://postgres:***@db/postgres?password=***&x=1#docs"
    assert address.hide("a b, a%20b") == "***, ***"


@pytest.fixture
def sqlite(tmp_path):
    """A function that runs a statement in a file with sqlite-vec; `path` is its path."""
    apsw = pytest.importorskip("apsw", reason="needs apsw and sqlite-vec: pip install 'kedge[sqlite-vec]'")
    sqlite_vec = pytest.importorskip("sqlite_vec", reason="needs apsw and sqlite-vec: pip install 'kedge[sqlite-vec]'")
    connection = apsw.Connection(str(tmp_path / "vectors.db"))
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())

    def run(statement, values=()):
        return list(connection.execute(statement, values))

    run.path = tmp_path / "vectors.db"
    yield run
    connection.close()


def test_sqlite_a_table_of_others(sqlite):
    """With a partition, columns to filter by and columns beside, which nothing but the statement tells apart."""
    sqlite(
        "create virtual table Movies using  VEC0(\n  movie_id INTEGER  primary key, owner integer partition key,\n"
        "  synopsis float[3] distance_metric=L2, title text, seen boolean, place float , +plot text, + key blob,\n"
        "  chunk_size = 8\n)"
    )
    for number in (3, 20, 1, 7, 5):
        sqlite(
            "insert into movies values (?, ?, ?, ?, ?, ?, ?, ?)",
            (number, number % 2, VECTORS[number % 5].tobytes(), f"t{number}", number == 3, 0.5, None, b"\x01"),
        )
    sqlite("delete from movies where movie_id = 7")
    address = f"sqlite-vec:{sqlite.path}#movies"
    before = sqlite.path.read_bytes()
    with open_store(address) as store:
        about = store.describe()
        assert (about.rows, about.dim, about.metric, about.id_type, about.metadata) == (4, 3, "l2", "int", {})
        pages = list(store.read(3))
        assert store.present([store.id_of("20"), 7]) == {20}
        assert store.fetch(["20"]).ids == [20]
        with pytest.raises(InputError, match="kedge only writes to tables that it made"):
            store.write(Batch([8], VECTORS[:1], [{}]))
    assert [len(page) for page in pages] == [3, 1]
    rows = {name: payload for page in pages for name, payload in zip(page.ids, page.payloads, strict=True)}
    assert rows[3] == {"owner": 1, "title": "t3", "seen": 1, "place": 0.5, "plot": None, "key": b"\x01"}
    for page in pages:
        np.testing.assert_array_equal(page.vectors, VECTORS[np.array(page.ids) % 5])
    assert sqlite.path.read_bytes() == before


def test_sqlite_a_table_without_a_key_of_its_own(sqlite):
    sqlite("create virtual table plain using vec0(embedding float[3])")
    for vector in VECTORS:
        sqlite("insert into plain(embedding) values (?)", (vector.tobytes(),))
    space = read_embeddings(f"sqlite-vec:{sqlite.path}#plain")
    assert list(space.keys) == ["1", "2", "3", "4", "5"]
    np.testing.assert_array_equal(space.vectors, VECTORS)


def test_sqlite_whole_numbers_as_ids_and_a_column_of_that_name(sqlite):
    address = f"sqlite-vec:{sqlite.path}#docs.order_of"
    with open_store(address) as store:
        store.create(Description(3, 3, "l2", id_type="int"))
        rows = Batch([2**40, -1, 5], VECTORS[:3], [{"n": float("inf")}, {DOCUMENT: "x"}, {"key": "k", "place": 1}])
        store.write(rows)
        store.write(replace(rows, vectors=-rows.vectors))  # what is there stays
        assert (store.describe().metric, store.describe().id_type) == ("l2", "int")
        with pytest.raises(InputError, match="ids are whole numbers there, but 'a' is not"):
            store.id_of("a")
    batch = read_all(address)
    assert batch.ids == rows.ids
    np.testing.assert_array_equal(batch.vectors, rows.vectors)
    assert list(batch.payloads) == [{"n": "Infinity"}, {DOCUMENT: "x"}, {"key": "k", "place": 1}]
    assert json.loads(sqlite("select payload from docs where id = 5")[0][0]) == {"key": "k", "place": 1}


def test_sqlite_one_of_several_columns(sqlite):
    sqlite("create virtual table docs using vec0(id text primary key, a float[3], b float[2], c int8[4], d bit[8])")
    sqlite("insert into docs values ('x', '[1,2,3]', '[4,5]', vec_int8('[1,2,3,4]'), vec_bit(x'ff'))")
    assert read_all(f"sqlite-vec:{sqlite.path}#docs.b").vectors.tolist() == [[4, 5]]
    assert read_all(f"sqlite-vec:{sqlite.path}#docs.c").vectors.tolist() == [[1, 2, 3, 4]]
    assert read_all(f"sqlite-vec:{sqlite.path}#docs.d").vectors.tolist() == [[1] * 8]
    for name, told in (
        ("docs", r"several columns of vectors \(a, b, c, d\)"),
        ("docs.e", "no such column of vectors; there are a, b, c, d"),
        ("docs_rowids", "not a table of sqlite-vec"),
    ):
        with pytest.raises(InputError, match=told):
            read_embeddings(f"sqlite-vec:{sqlite.path}#{name}")


def test_sqlite_a_file_that_is_not_there_is_not_made(tmp_path):
    pytest.importorskip("apsw")
    with open_store(f"sqlite-vec:{tmp_path / 'none.db'}#docs") as store:
        assert not store.exists()
        with pytest.raises(InputError, match="nothing of that name"):
            store.describe()
    assert not list(tmp_path.iterdir())
    (tmp_path / "text.db").write_text("not a database, and long enough to be none" * 10)
    with pytest.raises(InputError, match="not a database"):
        read_embeddings(f"sqlite-vec:{tmp_path / 'text.db'}#docs")


KILLED_WRITER = """
import os, signal, sys
import numpy as np
from kedge.spaces.stores import Batch, Description, open_store
from kedge.spaces.stores.backends import sqlite_vec

class Kill(dict):
    def get(self, *_):
        os.kill(os.getpid(), signal.SIGKILL)

sqlite_vec._CACHE_KIB = 64  # so that pages of the transaction get into the file before its end
with open_store(sys.argv[1]) as store:
    store.create(Description(300, 256))
    store.write(Batch(["a", "b"], np.ones((2, 256)), [{}, {}]))
    store.write(Batch([str(row) for row in range(300)], np.ones((300, 256)), [{}] * 299 + [Kill()]))
"""


def test_sqlite_what_a_killed_writer_left(tmp_path):
    pytest.importorskip("apsw")
    pytest.importorskip("sqlite_vec")
    address = f"sqlite-vec:{tmp_path / 'vectors.db'}#docs"
    killed = subprocess.run([sys.executable, "-c", KILLED_WRITER, address])
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "vectors.db-journal").exists()
    with open_store(address) as store:
        assert store.describe().rows == 2
        assert store.present(["a", "b", "0"]) == {"a", "b"}
        store.write(Batch(["c"], np.ones((1, 256)), [{}]))
        assert store.describe().rows == 3

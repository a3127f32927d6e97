"""Every row arrives under an id of its own, or nothing is written: ids that repeat, are missing, or have parts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from test_stores import (  # noqa: F401
    ADDRESSES,
    DIM,
    _name_of,
    by_id,
    carry_all,
    chroma_server,
    filled,
    qdrant_server,
    some_rows,
    turned,
)
from test_stores_sql import as_text, database  # noqa: F401

from kedge import InputError, read_embeddings
from kedge.spaces.stores import Batch, Description, open_store
from kedge.spaces.stores.identity import RowIds
from kedge.spaces.stores.migration import migrate

pa = pytest.importorskip("pyarrow")


@pytest.fixture(params=[*ADDRESSES, "npz"])
def target_address(request, tmp_path) -> str:
    """The address of a store that does not exist yet."""
    if request.param == "npz":
        return str(tmp_path / "new.npz")
    return ADDRESSES[request.param](request, tmp_path, _name_of(request))


def parquet_with(folder, ids: list) -> str:
    """A folder with one file of rows with these ids, whose payload is the number of the row."""
    import pyarrow.parquet as pq

    folder.mkdir()
    vectors = np.random.default_rng(0).standard_normal((len(ids), DIM)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIM)
    pq.write_table(pa.table({"id": pa.array(ids), "vector": column, "n": list(range(len(ids)))}), folder / "a.parquet")
    return f"parquet:{folder}"


REPEATED = [f"i{row}" for row in range(30)]
REPEATED[25], REPEATED[15] = "i11", "i1"  # in batches of 4, each in another one than the first


def test_ids_that_repeat_are_named_before_anything_is_written(target_address, tmp_path):
    source_address = parquet_with(tmp_path / "old", REPEATED)
    with open_store(source_address) as source, open_store(target_address) as target:
        with pytest.raises(InputError) as refused:
            carry_all(source, target)
        assert not target.exists()
    message = str(refused.value)
    assert "2 ids repeat ('i1' in rows 1 and 15, 'i11' in rows 11 and 25, counted from 0)" in message
    assert "--on-duplicate first" in message
    assert "--on-duplicate suffix" in message


@pytest.mark.parametrize("on_duplicate", ["first", "suffix"])
def test_ids_that_repeat_are_left_out_or_renamed(target_address, tmp_path, on_duplicate):
    source_address = parquet_with(tmp_path / "old", REPEATED)
    with open_store(source_address) as source, open_store(target_address) as target:
        result = carry_all(source, target, on_duplicate=on_duplicate)
        given = by_id(source.read(100)) | {}
        rows = [row for batch in source.read(100) for row in zip(batch.vectors, batch.payloads, strict=True)]
        found = by_id(target.read(100))
        keeps, count = target.keeps_payload, target.describe().rows
        again = carry_all(source, target, resume=True, on_duplicate=on_duplicate)
    names = list(REPEATED)
    names[25], names[15] = ("i11-2", "i1-2") if on_duplicate == "suffix" else (None, None)
    expected = {name: row for name, row in zip(names, rows, strict=True) if name is not None}
    assert found.keys() == expected.keys()
    assert result.repeated == 2
    assert (result.complete, count, result.written) == (True, len(expected), len(expected))
    assert (again.complete, again.written, again.before) == (True, 0, len(expected))
    assert len(given) == 28
    for name, (vector, payload) in expected.items():
        carried, own = turned(vector[None])[0], found[name][0]
        np.testing.assert_allclose(own / np.linalg.norm(own), carried / np.linalg.norm(carried), atol=1e-6)
        if keeps:
            assert found[name][1] == payload


def test_a_new_name_is_one_that_nobody_has(tmp_path):
    ids = ["a", "a-2", "a", "b", "a", "a-3"]
    with open_store(parquet_with(tmp_path / "old", ids)) as source, open_store(f"parquet:{tmp_path / 'new'}") as target:
        assert carry_all(source, target, on_duplicate="suffix").complete
        found = by_id(target.read(100))
    assert {name: payload["n"] for name, (_, payload) in found.items()} == {
        "a": 0, "a-2": 1, "a-4": 2, "b": 3, "a-5": 4, "a-3": 5,
    }  # fmt: skip


def test_a_new_name_is_not_one_of_the_rows_that_it_joins(tmp_path):
    """Where rows are added to a store, its ids count, too."""
    pytest.importorskip("qdrant_edge")
    with open_store(f"qdrant-edge:{tmp_path / 'new'}") as target:
        with open_store(parquet_with(tmp_path / "first", ["a-2", "b"])) as source:
            assert carry_all(source, target).complete
        before = by_id(target.read(9))
        second = parquet_with(tmp_path / "second", ["a", "a"])
        with open_store(second) as source, pytest.raises(InputError, match="has a row 'a-2' already"):
            carry_all(source, target, on_duplicate="suffix", accepts=lambda _: True)
        after = by_id(target.read(9))
    assert before.keys() == after.keys()
    for name, (vector, _) in before.items():
        np.testing.assert_array_equal(vector, after[name][0])


def test_nothing_is_made_of_bad_rows_only(target_address, tmp_path):
    with open_store(f"parquet:{tmp_path / 'old'}") as source, open_store(target_address) as target:
        filled(source, replace(some_rows(5), vectors=np.zeros((5, DIM), dtype=np.float32)))
        bad = {}
        with pytest.raises(InputError, match="none of its 5 rows can be written; omit --skip-bad"):
            carry_all(source, target, on_bad=bad.__setitem__)
    assert len(bad) == 5


def test_whole_numbers_that_repeat_become_text(tmp_path):
    with open_store(parquet_with(tmp_path / "old", [5, 6, 5])) as source:
        for kind in ("parquet", "faiss"):
            with open_store(f"{kind}:{tmp_path / 'new'}.{kind}") as target:
                assert carry_all(source, target, on_duplicate="suffix").complete
                assert sorted(by_id(target.read(9))) == ["5", "5-2", "6"]


def test_missing_ids_are_named_before_anything_is_written(target_address, tmp_path):
    ids = [f"i{row}" for row in range(12)]
    ids[3] = ids[9] = None
    source_address = parquet_with(tmp_path / "old", ids)
    with open_store(source_address) as source, open_store(target_address) as target:
        with pytest.raises(InputError, match=r"2 rows have no id \(row 3, row 9, counted from 0\).*--skip-bad"):
            carry_all(source, target)
        assert not target.exists()
        bad = {}
        result = carry_all(source, target, on_bad=bad.__setitem__)
        assert bad == dict.fromkeys([3, 9], "has no id (rows are counted from 0)")
        assert (result.rows, result.bad, result.written, result.complete) == (12, 2, 10, True)
        assert "None" not in by_id(target.read(100))


def test_a_missing_id_is_no_key(tmp_path):
    with pytest.raises(InputError, match="row 1 has no id"):
        read_embeddings(parquet_with(tmp_path / "old", ["a", None]))


def test_rows_are_counted_and_not_ids(tmp_path):
    """A target that keeps two rows as one, though it says that it has both."""
    with open_store(f"parquet:{tmp_path / 'old'}") as source, open_store(f"parquet:{tmp_path / 'new'}") as target:
        filled(source, some_rows())
        about = target.describe
        target.describe = lambda: replace(about(), rows=about().rows - 1)
        result = carry_all(source, target)
    assert (result.missing, result.extra, result.complete) == (1, 0, False)


def test_the_sample_is_drawn_over_the_whole(tmp_path):
    """One wrong row in every hundred, anywhere, is found."""
    rows = 2000
    vectors = np.random.default_rng(0).standard_normal((rows, DIM)).astype(np.float32)
    batch = Batch([str(row) for row in range(rows)], vectors, [{} for _ in range(rows)])
    with open_store(f"parquet:{tmp_path / 'old'}") as source, open_store(f"parquet:{tmp_path / 'new'}") as target:
        source.create(Description(rows, DIM))
        source.write(batch)
        write = target.write
        target.write = lambda part: write(
            replace(part, vectors=np.where(np.array(part.ids, dtype=int)[:, None] % 100 == 99, -1, 1) * part.vectors)
        )
        result = migrate(source, target, turned, {}, (DIM, DIM + 1), batch_rows=100)
    assert result.compared == 400
    assert result.different >= 1
    assert not result.complete


def test_many_ids_take_little_memory():
    """Two hundred thousand ids, of which two repeat, in a few megabytes."""
    import tracemalloc

    class Many:
        address = "many"

        def ids(self, size):
            for begin in range(0, 200_000, size):
                yield [f"a rather long id {row if row != 199_999 else 3}" for row in range(begin, begin + size)]

    ids = RowIds(str, "first")
    tracemalloc.start()
    try:
        ids.scan(Many(), skip_missing=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        ids.close()
    assert ids.repeated == 1
    assert peak < 4e6


def test_a_faiss_index_and_its_keys_agree(tmp_path):
    faiss = pytest.importorskip("faiss")
    path = tmp_path / "new.faiss"
    with open_store(f"faiss:{path}") as store:
        store.create(Description(3, DIM))
        store.write(Batch(["a", "b"], np.ones((2, DIM), dtype=np.float32), [{}, {}]))
        store.write(Batch(["b", "c"], np.ones((2, DIM), dtype=np.float32), [{}, {}]))
        store.finish()
        assert store.describe().rows == 3
    assert faiss.read_index(str(path)).ntotal == 3
    assert path.with_suffix(".keys.txt").read_text() == "a\nb\nc\n"
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(DIM))
    index.add_with_ids(np.eye(3, DIM, dtype=np.float32), np.array([7, 8, 7]))
    faiss.write_index(index, str(tmp_path / "old.faiss"))
    with (
        open_store(f"faiss:{tmp_path / 'old.faiss'}") as source,
        open_store(f"faiss:{tmp_path / 'two.faiss'}") as target,
    ):
        with pytest.raises(InputError, match="1 id repeats \\('7' in rows 0 and 2"):
            carry_all(source, target)
        assert carry_all(source, target, on_duplicate="first").complete
        assert sorted(batch_id for batch in target.read(9) for batch_id in batch.ids) == [7, 8]


def test_ids_of_two_kinds_keep_apart_nowhere(target_address, tmp_path):
    """Qdrant has numbers and text; elsewhere all of them are text, and all arrive."""
    pytest.importorskip("qdrant_edge")
    ids = ["12", "7", "x", "-3", "é"]
    with open_store(f"qdrant-edge:{tmp_path / 'old'}") as source, open_store(target_address) as target:
        filled(source, Batch(ids, some_rows(5).vectors, [{} for _ in ids]))
        assert carry_all(source, target).complete
        assert by_id(target.read(9)).keys() == set(ids)


COLUMNS = "tenant text, id bigint, title text, vector vector(3)"


def rows_of_two_tenants(run, columns: str, count: int = 30) -> np.ndarray:
    """A table in which two tenants have the same ids, each row with a vector of its own."""
    run(f"CREATE TABLE docs ({columns})")
    vectors = np.random.default_rng(0).standard_normal((2 * count, 3)).astype(np.float32)
    for row, vector in enumerate(vectors):
        values = ("acme" if row < count else 'b"eta', row % count, f"title {row}", as_text(vector))
        run("INSERT INTO docs (tenant, id, title, vector) VALUES (%s, %s, %s, %s)", values)
    return vectors


def doubled(vectors):
    return np.concatenate([vectors, 2 * vectors], axis=1)


def test_pg_a_key_of_several_columns(database, tmp_path):  # noqa: F811
    """Each row gets its own vector, in a new column of the same table and in a store of another kind."""
    vectors = rows_of_two_tenants(database, f"{COLUMNS}, PRIMARY KEY (tenant, id)")
    with open_store(f"pgvector:{database.url}#docs.vector") as source:
        assert source.describe().id_type == "str"
        for address in (
            f"pgvector:{database.url}#docs.new",
            f"parquet:{tmp_path / 'new'}",
            f"pgvector:{database.url}#copy",
        ):
            with open_store(address) as target:
                result = migrate(source, target, doubled, {}, (3, 6), batch_rows=7)
                assert (result.written, result.complete) == (60, True)
                again = migrate(source, target, doubled, {}, (3, 6), batch_rows=7, resume=True)
                assert (again.before, again.written, again.complete) == (60, 0, True)
                found = by_id(target.read(100))
                assert found[json.dumps(['b"eta', 7])][1]["title"] == "title 37"
    kept = database("SELECT tenant, id, vector::text, new::text FROM docs ORDER BY tenant, id")
    assert len(kept) == 60
    for (_, _, old, new), vector in zip(kept, vectors, strict=True):
        np.testing.assert_allclose(json.loads(old), vector, rtol=1e-6)
        np.testing.assert_allclose(json.loads(new), doubled(vector[None])[0], rtol=1e-6)


def test_pg_a_unique_index_identifies_rows_too(database):  # noqa: F811
    vectors = rows_of_two_tenants(
        database, COLUMNS.replace("id bigint", "id bigint NOT NULL").replace("text,", "text NOT NULL,", 1)
    )
    database("CREATE UNIQUE INDEX ON docs (tenant, id)")
    with (
        open_store(f"pgvector:{database.url}#docs.vector") as source,
        open_store(f"pgvector:{database.url}#docs.new") as target,
    ):
        assert migrate(source, target, doubled, {}, (3, 6), batch_rows=7).complete
    kept = database("SELECT new::text FROM docs ORDER BY tenant, id")
    np.testing.assert_allclose([json.loads(new) for (new,) in kept], doubled(vectors), rtol=1e-6)


@pytest.mark.parametrize("index", [None, "(tenant, id)", "(id) WHERE tenant = 'acme'"])
def test_pg_without_a_key_no_vector_is_sent_to_a_row(database, tmp_path, index):  # noqa: F811
    """Also where there is an index that identifies some rows only, or whose columns may be null."""
    rows_of_two_tenants(database, COLUMNS, count=3)
    if index:
        database(f"CREATE UNIQUE INDEX ON docs {index}")
    before = database("SELECT * FROM docs ORDER BY tenant, id")
    with open_store(f"pgvector:{database.url}#docs.vector") as source:
        with open_store(f"pgvector:{database.url}#docs.new") as target:
            with pytest.raises(InputError, match="3 ids repeat"):
                migrate(source, target, doubled, {}, (3, 6))
            with pytest.raises(InputError, match=r"a vector could reach the wrong row; add one \(ALTER TABLE"):
                migrate(source, target, doubled, {}, (3, 6), on_duplicate="first")
        with open_store(f"parquet:{tmp_path / 'new'}") as target:
            result = migrate(source, target, doubled, {}, (3, 6), on_duplicate="suffix", batch_rows=1)
            assert (result.written, result.repeated, result.complete) == (6, 3, True)
    assert database("SELECT * FROM docs ORDER BY tenant, id") == before


def test_pg_a_key_does_not_cover_tables_that_inherit(database):  # noqa: F811
    """The rows of the children are read with those of the parent; the key of a partitioned table covers all."""
    database("CREATE TABLE parent (id int PRIMARY KEY, name text)")
    database("CREATE TABLE child () INHERITS (parent)")
    database("INSERT INTO parent VALUES (1, 'p')")
    database("INSERT INTO child VALUES (1, 'c')")
    database("CREATE TABLE whole (id int PRIMARY KEY, name text) PARTITION BY LIST (id)")
    database("CREATE TABLE part PARTITION OF whole FOR VALUES IN (1)")
    for name in ("child", "whole"):
        with open_store(f"pgvector:{database.url}#{name}.vec") as target:
            if name == "whole":
                target.create(Description(0, 3))
                continue
            with pytest.raises(InputError, match="no primary key"):  # which is not inherited
                target.create(Description(0, 3))
    told = "tables that inherit from it are not covered, so that a vector could"
    with open_store(f"pgvector:{database.url}#parent.vec") as target, pytest.raises(InputError, match=told):
        target.create(Description(0, 3))
    assert not database("SELECT FROM information_schema.columns WHERE table_name = 'parent' AND column_name = 'vec'")


def test_pg_ids_of_another_form_than_the_key(database, tmp_path):  # noqa: F811
    rows_of_two_tenants(database, f"{COLUMNS}, PRIMARY KEY (tenant, id)", count=2)
    with open_store(f"pgvector:{database.url}#docs.new") as target:
        for wrong in ("1", '["acme"]', '["acme", "x"]', "[1"):
            with pytest.raises(InputError, match=r"ids are JSON lists of tenant \(text\), id \(bigint\) there"):
                target.id_of(wrong)
        assert target.id_of('["acme",1]') == '["acme", 1]'

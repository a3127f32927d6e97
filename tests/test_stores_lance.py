"""What is particular to tables of LanceDB: types, names, and ids of any kind."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import numpy as np
import pytest

from kedge import InputError
from kedge.spaces.stores import Batch, Description, open_store
from kedge.spaces.stores.migration import migrate

lancedb = pytest.importorskip("lancedb", reason="needs lancedb: pip install 'kedge[lancedb]'")
pa = pytest.importorskip("pyarrow")

DIM = 4


def some_vectors(count: int):
    return np.random.default_rng(0).standard_normal((count, DIM)).astype(np.float32)


def lists(vectors):
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def table_with(folder, columns: dict) -> str:
    table = pa.table(columns)
    lancedb.connect(folder).create_table("t", schema=table.schema).add(table)
    return f"lancedb:{folder}#t"


def everything(store) -> dict:
    return {
        name: dict(payload) for batch in store.read(3) for name, payload in zip(batch.ids, batch.payloads, strict=True)
    }


def test_ids_with_quotes_and_the_like(tmp_path):
    ids = [
        "it's",
        "''",
        'say "x"',
        "a.b",
        "back\\slash",
        "new\nline",
        "100%_",
        "; DROP TABLE t --",
        "`tick`",
        "é中",
        "",
    ]
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.create(Description(0, DIM))
        store.write(Batch(ids, some_vectors(len(ids)), [{"row": row} for row in range(len(ids))]))
        for row, name in enumerate(ids):
            found = store.fetch([name, "not there"])
            assert (list(found.ids), found.payloads[0]) == ([name], {"row": row})
        assert store.present([*ids, "not there"]) == set(ids)
        assert len(store.fetch([])) == 0


def test_entries_of_any_name_and_those_that_come_late(tmp_path):
    odd = [
        "a.b",
        "a_b",
        "id",
        "vector",
        "entry_id",
        "back`tick",
        "",
        "_rowid",
        "Name",
        "name",
        "quo'te",
        "é中 x",
        "_distance",
    ]
    payloads = [{name: f"{name} {row}" for name in odd} for row in range(4)]
    payloads[2]["late"], payloads[3]["later"] = 2, 3
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.create(Description(0, DIM))
        for row in range(4):
            store.write(Batch([str(row)], some_vectors(1), payloads[row : row + 1]))
        store.finish()
    with open_store(f"lancedb:{tmp_path}#t") as store:
        assert everything(store) == {str(row): payload for row, payload in enumerate(payloads)}
        assert set(store.describe().fields.names) == {*odd, "late", "later"}


def test_what_arrow_has_no_plain_type_for_becomes_json(tmp_path):
    payloads = [
        {"mixed": 1, "number": 1, "nested": {"b": [1], "a": 2}, "tags": ["x", "y"], "empty": []},
        {"mixed": "one", "number": 1.5, "nested": {"c": 1}, "tags": [], "empty": []},
    ]
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.create(Description(0, DIM))
        store.write(Batch(["0", "1"], some_vectors(2), payloads))
        assert everything(store) == {
            "0": payloads[0] | {"mixed": "1", "nested": '{"a": 2, "b": [1]}', "empty": "[]"},
            "1": payloads[1] | {"nested": '{"c": 1}', "empty": "[]"},
        }


def test_an_entry_of_another_type_is_refused(tmp_path):
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.create(Description(0, DIM))
        store.write(Batch(["0"], some_vectors(1), [{"year": 1999}]))
        with pytest.raises(
            InputError, match="column 'year' holds int64, which 'year' of a row between '1' and '1' is not"
        ):
            store.write(Batch(["1"], some_vectors(1), [{"year": "last"}]))
        assert everything(store) == {"0": {"year": 1999}}


@pytest.mark.parametrize("ids", [[7, 8, 9], ["a", "b", "c"]])
def test_types_of_columns_are_kept(tmp_path, ids):
    columns = {
        "id": pa.array(ids),
        "small": pa.array([1, None, 3], pa.int16()),
        "when": pa.array([datetime(2024, 1, 2, 3, 4, 5, 678)] * 3, pa.timestamp("us")),
        "price": pa.array([Decimal("1.50")] * 3, pa.decimal128(8, 2)),
        "blob": pa.array([b"\x00\xff"] * 3),
        "tags": pa.array([["x"], [], ["y", "z"]]),
        "pair": pa.array([{"a": 1, "b": "x"}] * 3),
        "vector": lists(some_vectors(3)),
    }
    with open_store(table_with(tmp_path, columns)) as source, open_store(f"lancedb:{tmp_path}#new") as target:
        result = migrate(source, target, lambda vectors: vectors, {}, (DIM, DIM), batch_rows=2)
        assert result.complete
        assert target.describe().fields.equals(source.describe().fields)
        assert everything(target) == everything(source)
        assert "small" not in everything(target)[ids[1]]
        assert target.present([target.id_of(str(name)) for name in ids]) == set(ids)
        assert list(target.fetch([str(ids[1]), "99"]).ids) == [ids[1]]
    kept = lancedb.connect(tmp_path).open_table("new").schema
    assert kept.names[:2] == ["id", "vector"]
    assert kept.field("id").type == columns["id"].type


@pytest.mark.parametrize("fields", [None, pa.schema([("a.b", pa.int16())])])
def test_a_kill_right_after_it_was_made(tmp_path, fields):
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.create(Description(0, DIM, "cosine", {"kedge": "{}"}, fields))
    with open_store(f"lancedb:{tmp_path}#t") as store:
        about = store.describe()
        assert (store.exists(), about.rows, about.dim, dict(about.metadata)) == (True, 0, DIM, {"kedge": "{}"})
        assert store.present(["1"]) == set()
        assert len(store.fetch(["1"])) == 0
        assert list(store.read(5)) == []
        store.finish()
        store.write(Batch(["1"], some_vectors(1), [{"a.b": 1}]))
        assert dict(store.describe().metadata) == {"kedge": "{}"}
        assert everything(store) == {"1": {"a.b": 1}}


def test_rows_are_written_once(tmp_path):
    rows = Batch(["0", "1", "2"], some_vectors(3), [{"n": row} for row in range(3)])
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.create(Description(0, DIM))
        store.write(rows.take([1]))
        store.write(rows)
    with open_store(f"lancedb:{tmp_path}#t") as store:
        store.write(rows)
        assert [name for batch in store.read(9) for name in batch.ids] == ["1", "0", "2"]


def test_tables_that_others_made(tmp_path):
    vectors = some_vectors(3)
    address = table_with(tmp_path / "named", {"text": ["a", "b", "c"], "key": [5, 6, 7], "embedding": lists(vectors)})
    with open_store(address) as store:
        assert everything(store) == {5: {"text": "a"}, 6: {"text": "b"}, 7: {"text": "c"}}
    address = table_with(tmp_path / "numbered", {"embedding": lists(vectors), "weight": [0.5, 1.5, 2.5]})
    with open_store(address) as store:
        assert list(everything(store)) == [0, 1, 2]
        with pytest.raises(InputError, match="no column of text or integers .* embedding, weight"):
            store.fetch([1])
    address = table_with(tmp_path / "none", {"id": [1], "text": ["a"]})
    with open_store(address) as store, pytest.raises(InputError, match="the columns are id, text"):
        store.describe()
    with pytest.raises(InputError, match="not a URL"), open_store("lancedb:s3://bucket#t"):
        pass


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64()])
def test_ids_that_no_such_column_can_have(tmp_path, kind):
    address = table_with(tmp_path, {"id": pa.array([1, 2, 100], kind), "vector": lists(some_vectors(3))})
    with open_store(address) as store:
        asked = [1, "2", "02", "x", -1, 300, 2**63, 2**64, "9" * 30]
        assert list(store.fetch(asked).ids) == [1, 2]
        assert store.present([store.id_of(name) for name in asked]) == {1, 2}


def test_a_row_without_a_vector_is_bad(tmp_path):
    column = pa.array([[1.0] * DIM, None, [2.0] * DIM], pa.list_(pa.float32(), DIM))
    with open_store(table_with(tmp_path, {"id": ["a", "b", "c"], "embedding": column})) as store:
        (batch,) = store.read(5)
        assert (list(batch.ids), list(batch.bad)) == (["a", "c"], [("b", "has no vector")])


def test_the_metric_is_that_of_the_index(tmp_path):
    from lancedb.index import IvfFlat

    vectors = some_vectors(300)
    address = table_with(tmp_path, {"id": [str(row) for row in range(300)], "vector": lists(vectors)})
    with open_store(address) as store:
        assert store.describe().metric is None
    table = lancedb.connect(tmp_path).open_table("t")
    table.create_index("vector", config=IvfFlat(distance_type="dot", num_partitions=1))
    with open_store(address) as store:
        assert store.describe().metric == "ip"

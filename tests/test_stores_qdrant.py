"""What is particular to Qdrant: ids that it cannot keep, several vectors a point, keys of servers."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import numpy as np
import pytest

from kedge import Embeddings, InputError, read_embeddings, write_embeddings
from kedge.spaces.stores import Batch, Description, open_store

DIM = 4
UUID = "0b1e9d0c-7d0e-4b57-9d4f-6d2f3a1c9e11"


@pytest.fixture(params=["qdrant", "qdrant-edge"])
def address(request, tmp_path) -> str:
    if request.param == "qdrant":
        pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
        return f"qdrant:{tmp_path / 'folder'}#docs"
    pytest.importorskip("qdrant_edge", reason="needs qdrant-edge-py: pip install 'kedge[qdrant-edge]'")
    return f"qdrant-edge:{tmp_path / 'shard'}"


@pytest.fixture
def client(tmp_path):
    """Qdrant's own client, on the folder that kedge reads later."""
    qdrant_client = pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
    client = qdrant_client.QdrantClient(path=str(tmp_path))
    yield client
    client.close()


def some_vectors(count: int):
    return np.random.default_rng(0).standard_normal((count, DIM)).astype(np.float32)


def test_ids_that_qdrant_cannot_keep(address):
    ids = ["12", "0", "012", "-3", "it's", "é", "", "1.5", UUID, UUID.upper(), str(2**64 - 1), str(2**64), "9" * 5000]
    payloads = [{"was": name} for name in ids]
    with open_store(address) as store:
        store.create(Description(0, DIM))
        store.write(Batch(ids, some_vectors(len(ids)), payloads))
    with open_store(address) as store:
        batches = list(store.read(5))
        found = {
            str(name): payload for batch in batches for name, payload in zip(batch.ids, batch.payloads, strict=True)
        }
        assert found == dict(zip(ids, payloads, strict=True))
        assert {name for batch in batches for name in batch.ids if isinstance(name, int)} == {12, 0, 2**64 - 1}
        names = [store.id_of(name) for name in ids]
        assert store.present([*names, "not there", 77]) == set(names)
        for name in names:
            (row,) = store.fetch([name]).payloads
            assert row == {"was": str(name)}
        assert store.present([]) == set()
        assert len(store.fetch([])) == 0


def test_payload_that_json_has_no_word_for(address):
    when = datetime(2024, 1, 2, 3, 4, 5)
    given = {
        "when": when,
        "nan": float("nan"),
        "count": np.int64(3),
        "none": None,
        "deep": {"list": [1, 2.5, "x", None]},
    }
    with open_store(address) as store:
        store.create(Description(0, DIM, "ip"))
        store.write(Batch(["1"], some_vectors(1), [given]))
        (batch,) = store.read(5)
        np.testing.assert_allclose(batch.vectors, some_vectors(1))
        assert batch.payloads[0] == given | {"when": str(when), "nan": "NaN", "count": 3}


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_metrics_and_a_store_that_is_empty(address, metric):
    with open_store(address) as store:
        store.create(Description(0, DIM, metric, {"kedge": "{}"}))
    with open_store(address) as store:
        assert store.describe() == Description(0, DIM, metric, {"kedge": "{}"})
        assert list(store.read(5)) == []
        assert store.present([1]) == set()


def test_a_file_in_place_of_the_folder(address):
    Path(address.partition(":")[2].partition("#")[0]).write_text("not a folder")
    with open_store(address) as store, pytest.raises(InputError, match="a folder is needed"):
        store.exists()


def test_several_vectors_a_point(client, tmp_path):
    from qdrant_client import models

    sizes = {"title": DIM, "text": DIM + 1}
    dense = {name: models.VectorParams(size=size, distance=models.Distance.DOT) for name, size in sizes.items()}
    many = models.VectorParams(
        size=2,
        distance=models.Distance.DOT,
        multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
    )
    client.create_collection("two", vectors_config=dense | {"tokens": many})
    client.create_collection("one", vectors_config={"title": dense["title"], "tokens": many})
    client.create_collection("none", vectors_config={}, sparse_vectors_config={"words": models.SparseVectorParams()})
    full = {"title": [1.0, 2.0, 3.0, 4.0], "text": [5.0] * 5}
    client.upsert("two", [models.PointStruct(id=1, vector=full), models.PointStruct(id=2, vector={"text": [6.0] * 5})])
    client.upsert("one", [models.PointStruct(id=1, vector={"title": full["title"]}, payload={"a": 1})])
    client.close()
    with (
        open_store(f"qdrant:{tmp_path}#two") as store,
        pytest.raises(InputError, match="'text', 'title'; name it: #two/VEC"),
    ):
        store.describe()
    with (
        open_store(f"qdrant:{tmp_path}#two/body") as store,
        pytest.raises(InputError, match="called 'body'; there are 'te"),
    ):
        store.describe()
    with open_store(f"qdrant:{tmp_path}#none") as store, pytest.raises(InputError, match="there is none: sparse"):
        store.describe()
    with open_store(f"qdrant:{tmp_path}#two/title") as store:
        assert (store.describe().rows, store.describe().dim) == (2, DIM)
        (batch,) = store.read(5)
        assert (list(batch.ids), list(batch.bad)) == ([1], [(2, "has no vector")])
        np.testing.assert_array_equal(batch.vectors, [full["title"]])
    with open_store(f"qdrant:{tmp_path}#one") as store:
        assert store.describe().dim == DIM
        assert store.fetch([1]).payloads == [{"a": 1}]


def test_a_vector_with_a_name_is_made(tmp_path, client):
    client.close()
    with open_store(f"qdrant:{tmp_path}#docs/title") as store:
        store.create(Description(0, DIM, "l2"))
        store.write(Batch(["a"], some_vectors(1), [{}]))
    for address in (f"qdrant:{tmp_path}#docs/title", f"qdrant:{tmp_path}#docs"):
        with open_store(address) as store:
            np.testing.assert_array_equal(store.fetch(["a"]).vectors, some_vectors(1))


def test_the_key_of_a_server_is_in_the_environment(monkeypatch):
    pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
    from fake_qdrant import serve

    with serve(key="right") as url:
        with open_store(f"qdrant:{url}#docs") as store, pytest.raises(InputError, match="401"):
            store.exists()
        monkeypatch.setenv("QDRANT_API_KEY", "right")
        # The client rightly says so where it sends a key without encryption.
        with pytest.warns(UserWarning, match="insecure"), open_store(f"qdrant:{url}#docs") as store:
            assert not store.exists()


def test_a_server_that_does_not_answer(monkeypatch):
    pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
    monkeypatch.setenv("QDRANT_API_KEY", "the-key")
    address = "qdrant:https://me:hush@127.0.0.1:9#docs"
    with open_store(address) as store, pytest.raises(InputError) as told:
        store.exists()
    assert str(told.value).startswith("qdrant:https://me:***@127.0.0.1:9#docs: ")
    assert "refused" in str(told.value)
    assert "hush" not in str(told.value)
    assert "the-key" not in str(told.value)


def test_a_shard_that_others_made(tmp_path):
    edge = pytest.importorskip("qdrant_edge", reason="needs qdrant-edge-py: pip install 'kedge[qdrant-edge]'")
    params = edge.EdgeVectorParams(DIM, edge.Distance.Euclid)
    shard = edge.EdgeShard.create(str(tmp_path / "one"), edge.EdgeConfig({"title": params}))
    shard.update(edge.UpdateOperation.upsert_points([edge.Point(UUID, {"title": [1.0] * DIM}, {"a": 1})]))
    shard.close()
    edge.EdgeShard.create(str(tmp_path / "two"), edge.EdgeConfig({"title": params, "text": params})).close()
    with open_store(f"qdrant-edge:{tmp_path / 'one'}") as store:
        assert store.describe() == Description(1, DIM, "l2")
        (batch,) = store.read(5)
        assert (list(batch.ids), list(batch.payloads)) == ([UUID], [{"a": 1}])
        store.write(Batch([5], some_vectors(1), [{}]))
        assert store.present([5, UUID]) == {5, UUID}
    with open_store(f"qdrant-edge:{tmp_path / 'two'}") as store, pytest.raises(InputError, match="'text', 'title'"):
        store.describe()


def test_rows_outlive_a_kill(address):
    script = f"""
import os, signal
import numpy as np
from kedge.spaces.stores import Batch, Description, open_store
with open_store({address!r}) as store:
    store.create(Description(0, {DIM}, "cosine", {{"kedge": "note"}}))
    store.write(Batch(["a", "b"], np.ones((2, {DIM}), np.float32), [{{}}, {{}}]))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, env=os.environ, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    with open_store(address) as store:
        assert store.describe() == Description(2, DIM, "cosine", {"kedge": "note"})
        assert store.present(["a", "b", "c"]) == {"a", "b"}


class Planted:
    """A pickle of it makes a folder when it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def harmful(folder: Path) -> dict[str, bytes]:
    """Pickles that make this folder, each in a way of its own."""
    name, how = str(folder).encode(), os.mkdir.__module__.encode()
    code = f'import os; os.mkdir("{folder}")'.encode()
    return {
        "reduced": pickle.dumps(Planted(folder)),
        "in a payload": pickle.dumps({"payload": [{"a": Planted(folder)}]}),
        "of an old protocol": pickle.dumps(Planted(folder), 0),
        # The names come from the memo, so that no list of the strings before STACK_GLOBAL shows them.
        "from the memo": b"\x80\x04\x8c" + bytes([len(how)]) + how + b"\x94\x8c\x05mkdir\x940h\x00h\x01\x93\x8c"
        + bytes([len(name)]) + name + b"\x85R.",
        "through a known name": b"\x80\x04\x8c\x04uuid\x8c\x08os.mkdir\x93\x8c" + bytes([len(name)]) + name + b"\x85R.",
        "an instance": b"(S'" + code + b"'\ni__builtin__\nexec\n.",
        "cut short": pickle.dumps([1, 2])[:-3],
        "no pickle": b"\x00",
    }  # fmt: skip


@pytest.mark.parametrize("kind", harmful(Path("x")))
def test_a_folder_whose_pickles_run_code_is_not_opened(client, tmp_path, kind):
    client.close()
    address = f"qdrant:{tmp_path}#docs"
    with open_store(address) as store:
        store.create(Description(0, DIM))
        store.write(Batch(["a", "b"], some_vectors(2), [{}, {}]))
    storage = tmp_path / "collection/docs/storage.sqlite"
    made = tmp_path / "made"
    with closing(sqlite3.connect(storage)) as database:
        database.execute("UPDATE points SET point = ? WHERE rowid = 2", [harmful(made)[kind]])
        database.commit()
    # Another collection is opened along with it.
    for name in ("docs", "other"):
        with open_store(f"qdrant:{tmp_path}#{name}") as store, pytest.raises(InputError) as told:
            store.exists()
        assert str(told.value).startswith(f"qdrant:{tmp_path}#{name}: not opened, since Qdrant's client unpickles what")
        assert str(storage) in str(told.value)
        assert "\n" not in str(told.value)
    assert not made.exists()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE points RENAME TO others; CREATE VIEW points AS SELECT rowid, id, point FROM others",
        "CREATE INDEX more ON points (point)",
    ],
    ids=["a view", "an index"],
)
def test_a_folder_whose_points_could_change_when_read_is_not_opened(client, tmp_path, change):
    client.close()
    with open_store(f"qdrant:{tmp_path}#docs") as store:
        store.create(Description(0, DIM))
        store.write(Batch(["a"], some_vectors(1), [{}]))
    with closing(sqlite3.connect(tmp_path / "collection/docs/storage.sqlite")) as database:
        database.executescript(change)
    with (
        open_store(f"qdrant:{tmp_path}#docs") as store,
        pytest.raises(InputError, match="another table, index or view"),
    ):
        store.exists()


def test_what_qdrant_itself_keeps_in_a_folder_is_opened(client, tmp_path):
    from qdrant_client import models

    some = {"v": models.VectorParams(size=DIM, distance="Dot")}
    client.create_collection("docs", vectors_config=some, sparse_vectors_config={"s": models.SparseVectorParams()})
    sparse = models.SparseVector(indices=[1], values=[0.5])
    client.upsert("docs", [models.PointStruct(id=1, vector={"v": [1.0] * DIM, "s": sparse}, payload={"a": [None, {}]})])
    client.upsert(
        "docs", [models.PointStruct(id=UUID, vector={"v": [1.0] * DIM}, payload={"at": datetime(2020, 1, 1)})]
    )
    client.close()
    with closing(sqlite3.connect(tmp_path / "collection/docs/storage.sqlite")) as database:
        payload = {"at": datetime(2020, 1, 1, tzinfo=UTC), "on": date(2020, 1, 1), "price": Decimal("1.5")}
        old = models.PointStruct.model_construct(id=7, vector={"v": [1.0] * DIM}, payload=payload)
        database.execute("INSERT INTO points VALUES ('old', ?)", [pickle.dumps(old)])
        database.commit()
    with open_store(f"qdrant:{tmp_path}#docs") as store:
        assert {name for batch in store.read(5) for name in batch.ids} == {1, 7, UUID}


@pytest.mark.parametrize("name", ["..", "../../x", "a:b", "a\\b", "/v", "docs/..", "docs/a/b", "n" * 256])
def test_a_name_that_qdrant_refuses_leaves_no_folder(tmp_path, name):
    pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
    told = "a name in Qdrant has at most 255 characters"
    with (
        open_store(f"qdrant:{tmp_path / 'folder'}#{name}") as store,
        pytest.raises(InputError, match=told),
        store.lock(),
    ):
        store.create(Description(0, DIM))
    assert not (tmp_path / "folder").exists()


def test_ids_that_share_a_point_repeat(address, tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'kedge[parquet]'")
    from kedge.spaces.stores.migration import migrate

    same = str(uuid5(NAMESPACE_OID, "x"))
    source_address = f"parquet:{tmp_path / 'old'}"
    with open_store(source_address) as source:
        source.create(Description(0, DIM))
        source.write(Batch(["x", "y", same], some_vectors(3), [{}, {}, {}]))
    with open_store(source_address) as source, open_store(address) as target:
        told = rf"1 id repeats \('{same}' and 'x', which the target keeps as one, in rows 0 and 2, counted from 0\)"
        with pytest.raises(InputError, match=told):
            migrate(source, target, lambda vectors: vectors, {}, (DIM, DIM))
        done = migrate(source, target, lambda vectors: vectors, {}, (DIM, DIM), on_duplicate="suffix")
        assert done.complete
        assert (done.rows, done.written, done.repeated) == (3, 3, 1)
        assert {name for batch in target.read(5) for name in batch.ids} == {"x", "y", f"{same}-2"}


def test_a_shard_whose_creation_was_killed_is_made_anew(tmp_path):
    """The engine cannot open a folder that has segments, but neither its configuration nor a whole one."""
    pytest.importorskip("qdrant_edge", reason="needs qdrant-edge-py: pip install 'kedge[qdrant-edge]'")
    half, other = (tmp_path / name for name in ("half", "other"))
    for folder in (half, other):
        (folder / "segments" / "0b1d").mkdir(parents=True)
        (folder / "segments" / "0b1d" / "part").write_bytes(b"x")
    (half / "kedge.json").write_text("{}")
    space = Embeddings(["a", "b"], np.eye(2, 4, dtype=np.float32))
    write_embeddings(space, f"qdrant-edge:{half}")
    assert set(read_embeddings(f"qdrant-edge:{half}").keys) == {"a", "b"}
    with pytest.raises(InputError):  # not kedge's: it stays as it is
        write_embeddings(space, f"qdrant-edge:{other}")
    assert (other / "segments" / "0b1d" / "part").read_bytes() == b"x"

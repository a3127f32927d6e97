"""What is particular to Qdrant: ids that it cannot keep, several vectors a point, keys of servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from kedge import InputError
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

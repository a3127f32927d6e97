"""One suite over all kinds of stores, each with its own engine, started and stopped here."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kedge import InputError, read_embeddings
from kedge.spaces.stores import DOCUMENT, KINDS, NOTE, Address, Batch, Description, open_store
from kedge.spaces.stores.migration import Migration, migrate

DIM = 6


@pytest.fixture(scope="session")
def chroma_server(tmp_path_factory) -> Iterator[str]:
    """Chroma's own server, on loopback."""
    pytest.importorskip("chromadb", reason="needs chromadb: pip install 'kedge[chroma]'")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("chroma-server")
    command = [Path(sys.executable).with_name("chroma"), "run", "--path", folder, "--host", "127.0.0.1"]
    server = subprocess.Popen(
        [*map(str, command), "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_port(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def _await_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing answers on port {port}")


@pytest.fixture(scope="session")
def qdrant_server() -> Iterator[str]:
    """What stands in for Qdrant's server."""
    pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
    from fake_qdrant import serve

    with serve() as url:
        yield url


def in_chroma(request, folder: Path, name: str) -> str:
    pytest.importorskip("chromadb", reason="needs chromadb: pip install 'kedge[chroma]'")
    return f"chroma:{folder / 'chroma'}#{name}"


def in_chroma_server(request, folder: Path, name: str) -> str:
    return f"chroma:{request.getfixturevalue('chroma_server')}#{name}"


def in_faiss(request, folder: Path, name: str) -> str:
    pytest.importorskip("faiss", reason="needs faiss: pip install 'kedge[faiss]'")
    return f"faiss:{folder / name}.faiss"


def in_lance(request, folder: Path, name: str) -> str:
    pytest.importorskip("lancedb", reason="needs lancedb: pip install 'kedge[lancedb]'")
    return f"lancedb:{folder / 'lance'}#{name}"


def in_qdrant(request, folder: Path, name: str) -> str:
    pytest.importorskip("qdrant_client", reason="needs qdrant-client: pip install 'kedge[qdrant]'")
    return f"qdrant:{folder / 'qdrant'}#{name}"


def in_qdrant_server(request, folder: Path, name: str) -> str:
    return f"qdrant:{request.getfixturevalue('qdrant_server')}#{name}"


def in_qdrant_edge(request, folder: Path, name: str) -> str:
    pytest.importorskip("qdrant_edge", reason="needs qdrant-edge-py: pip install 'kedge[qdrant-edge]'")
    return f"qdrant-edge:{folder / name}"


def in_parquet(request, folder: Path, name: str) -> str:
    return f"parquet:{folder / name}"


def in_postgres(request, folder: Path, name: str) -> str:
    return f"pgvector:{request.getfixturevalue('postgres')}#{name}.vector"


def in_sqlite(request, folder: Path, name: str) -> str:
    pytest.importorskip("apsw", reason="needs apsw and sqlite-vec: pip install 'kedge[sqlite-vec]'")
    pytest.importorskip("sqlite_vec", reason="needs apsw and sqlite-vec: pip install 'kedge[sqlite-vec]'")
    return f"sqlite-vec:{folder / 'vectors.db'}#{name}"


# How to make the address of a new store: by kind, and by how it is reached where there are several ways.
ADDRESSES = {
    "chroma": in_chroma,
    "chroma-server": in_chroma_server,
    "lancedb": in_lance,
    "qdrant": in_qdrant,
    "qdrant-server": in_qdrant_server,
    "qdrant-edge": in_qdrant_edge,
    "faiss": in_faiss,
    "parquet": in_parquet,
    "pgvector": in_postgres,
    "sqlite-vec": in_sqlite,
}


@pytest.fixture(params=ADDRESSES)
def address(request, tmp_path) -> str:
    """The address of a store that is not there yet."""
    return ADDRESSES[request.param](request, tmp_path, _name_of(request))


@pytest.fixture(params=ADDRESSES)
def two_addresses(request, tmp_path) -> tuple[str, str]:
    """Of two stores in one place, neither of which is there yet."""
    make, name = ADDRESSES[request.param], _name_of(request)
    return make(request, tmp_path, f"old_{name}"), make(request, tmp_path, f"new_{name}")


def _name_of(request) -> str:
    return re.sub(r"\W+", "_", request.node.name)[-40:].strip("_")


def some_rows(count: int = 25) -> Batch:
    """Rows with ids, a text, and payload of several kinds."""
    vectors = np.random.default_rng(0).standard_normal((count, DIM)).astype(np.float32)
    payloads = [
        {"number": row, "half": row / 2, "name": f"n{row} \u00e9\u4e2d", DOCUMENT: f"text {row}"}
        for row in range(count)
    ]
    return Batch([str(row + 1) for row in range(count)], vectors, payloads)


def filled(store, rows: Batch, metadata: dict[str, str] | None = None) -> None:
    store.create(Description(len(rows), DIM, "cosine", metadata or {}))
    for begin in range(0, len(rows), 10):
        store.write(rows.take(range(begin, min(begin + 10, len(rows)))))
    store.finish()


def by_id(batches) -> dict:
    return {
        str(name): (vector, dict(payload))
        for batch in batches
        for name, vector, payload in zip(batch.ids, batch.vectors, batch.payloads, strict=True)
    }


def test_what_is_written_is_read(address):
    rows = some_rows()
    with open_store(address) as store:
        assert not store.exists()
        filled(store, rows, {NOTE: '{"model": "m"}'})
    with open_store(address) as store:
        assert store.exists()
        described = store.describe()
        batches = list(store.read(7))
        keeps = store.keeps_payload
    assert (described.rows, described.dim) == (25, DIM)
    assert described.metadata[NOTE] == '{"model": "m"}'
    assert max(map(len, batches)) <= 7
    found, expected = by_id(batches), by_id([rows])
    assert found.keys() == expected.keys()
    for name, (vector, payload) in expected.items():
        # Stores that compare by cosine may keep unit vectors only.
        unit, own = vector / np.linalg.norm(vector), found[name][0]
        np.testing.assert_allclose(own / np.linalg.norm(own), unit, atol=1e-6)
        if keeps:
            assert found[name][1] == payload


def test_rows_are_fetched_by_id(address):
    rows = some_rows()
    with open_store(address) as store:
        filled(store, rows)
        ids = [store.id_of(name) for name in ("3", "17", "99")]
        assert store.present(ids) == set(ids[:2])
        batch = store.fetch(ids)
        assert {str(name) for name in batch.ids} == {"3", "17"}
        assert batch.vectors.shape == (2, DIM)


def test_rows_that_were_written_before_a_kill_are_still_there(address):
    """A store that was left unfinished says which rows it has, takes the others, and is whole in the end."""
    rows = some_rows()
    with open_store(address) as store:
        store.create(Description(25, DIM, "cosine", {NOTE: "{}"}))
        store.write(rows.take(range(10)))
    with open_store(address) as store:
        assert store.exists()
        assert store.describe().metadata[NOTE] == "{}"
        there = store.present([store.id_of(name) for name in rows.ids])
        assert there == {store.id_of(name) for name in rows.ids[:10]}
        store.write(rows.take(range(10, 25)))
        store.finish()
    with open_store(address) as store:
        assert by_id(store.read(100)).keys() == set(rows.ids)


def test_a_store_is_read_as_a_space(address):
    rows = some_rows()
    with open_store(address) as store:
        filled(store, rows)
    space = read_embeddings(address)
    assert (len(space), space.dim) == (25, DIM)
    assert set(space.keys) == set(rows.ids)
    assert len(read_embeddings(address, limit=4)) == 4
    assert set(read_embeddings(address, keys=["5", "6"]).keys) == {"5", "6"}


def test_a_store_that_is_not_there(address):
    with pytest.raises(InputError, match="there is nothing of that name"):
        read_embeddings(address)
    with open_store(address) as store:
        assert not store.exists()


def turned(vectors):
    """Into a space of one dimension more."""
    rotation, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((DIM + 1, DIM + 1)))
    padded = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1)
    return (padded @ rotation).astype(np.float32)


def carry_all(source, target, **options):
    return migrate(source, target, turned, {"model": "new"}, (DIM, DIM + 1), batch_rows=4, **options)


def test_a_store_is_carried_beside_itself(two_addresses):
    rows = some_rows()
    with open_store(two_addresses[0]) as source, open_store(two_addresses[1]) as target:
        filled(source, rows)
        before = by_id(source.read(100))
        result = carry_all(source, target)
        assert result == Migration(25, 25, 0, 0, 0, 0, 25, 0)
        assert result.complete
        found, after = by_id(target.read(100)), by_id(source.read(100))
        about = target.describe()
        keeps = target.keeps_payload
    assert (about.rows, about.dim) == (25, DIM + 1)
    assert json.loads(about.metadata[NOTE]) == {"model": "new"}
    assert before.keys() == after.keys() == found.keys()
    for name, (vector, payload) in before.items():
        np.testing.assert_array_equal(vector, after[name][0])
        assert after[name][1] == payload
        carried, own = turned(vector[None])[0], found[name][0]
        np.testing.assert_allclose(own / np.linalg.norm(own), carried / np.linalg.norm(carried), atol=1e-6)
        if keeps:
            assert found[name][1] == payload


def test_a_migration_that_was_interrupted_goes_on(two_addresses, monkeypatch):
    class Killed(BaseException):
        pass

    with open_store(two_addresses[0]) as source:
        filled(source, some_rows())
        with open_store(two_addresses[1]) as target:
            write, batches = target.write, []

            def write_some(batch):
                if len(batches) == 3:
                    raise Killed
                batches.append(batch)
                write(batch)

            monkeypatch.setattr(target, "write", write_some)
            with pytest.raises(Killed):
                carry_all(source, target)
        with open_store(two_addresses[1]) as target:
            with pytest.raises(InputError, match="--resume"):
                carry_all(source, target)
            with pytest.raises(InputError, match="something other"):
                migrate(source, target, turned, {"model": "other"}, (DIM, DIM + 1), resume=True)
            result = carry_all(source, target, resume=True)
            before = sum(map(len, batches))
            assert (result.written, result.before, result.complete) == (25 - before, before, True)
        with open_store(two_addresses[1]) as target:
            again = carry_all(source, target, resume=True)
            assert (again.written, again.before, again.complete) == (0, 25, True)


def test_rows_that_came_meanwhile_are_told_and_brought_over(two_addresses):
    rows = some_rows()
    with open_store(two_addresses[0]) as source, open_store(two_addresses[1]) as target:
        if not source.keeps_payload:
            pytest.skip("a file is written once")
        filled(source, rows.take(range(20)))

        def late(done, total):
            if done == 20:
                source.write(rows.take(range(20, 25)))

        first = carry_all(source, target, on_progress=late)
        assert (first.written, first.missing, first.complete) in ((20, 5, False), (25, 0, True))
        second = carry_all(source, target, resume=True)
        assert (second.missing, second.extra, second.complete) == (0, 0, True)
        assert target.describe().rows == 25


def test_bad_rows_are_refused_or_listed(tmp_path):
    rows = some_rows()
    vectors = rows.vectors.copy()
    vectors[3], vectors[7, 2] = 0, np.nan
    with open_store(f"parquet:{tmp_path / 'old'}") as source, open_store(f"parquet:{tmp_path / 'new'}") as target:
        filled(source, replace(rows, vectors=vectors))
        with pytest.raises(InputError, match="row '4' is a zero vector.*--skip-bad"):
            carry_all(source, target)
        bad = {}
        result = carry_all(source, target, resume=True, on_bad=bad.__setitem__)
        assert bad == {"4": "is a zero vector", "8": "has NaN or infinite values"}
        assert (result.rows, result.bad, result.written, result.complete) == (25, 2, 23, True)


def test_what_did_not_arrive_is_told(tmp_path):
    """A target that loses a row, changes another and has one of its own."""
    rows = some_rows()
    with open_store(f"parquet:{tmp_path / 'old'}") as source, open_store(f"parquet:{tmp_path / 'new'}") as target:
        filled(source, rows)
        write = target.write

        def lossy(batch):
            if "1" in batch.ids:
                changed = batch.vectors.copy()
                changed[1] *= -1
                payloads = [dict(payload) for payload in batch.payloads]
                payloads[2]["name"] = "other"
                batch = Batch(["another", *batch.ids[1:]], changed, payloads)
            write(batch)

        target.write = lossy
        result = carry_all(source, target)
    assert (result.missing, result.extra, result.different, result.complete) == (1, 1, 2, False)


def test_addresses_show_no_secret():
    address = Address.parse("pgvector:postgresql://me:p%40ss@host:5432/db?sslpassword=hush&x=1#docs.vector")
    assert str(address) == "pgvector:postgresql://me:***@host:5432/db?sslpassword=***&x=1#docs.vector"
    assert "p%40ss" not in repr(address)
    assert address.hide("cannot log in with p@ss or p%40ss") == "cannot log in with *** or ***"
    assert (address.place.count("p%40ss"), address.name) == (1, "docs.vector")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("chroma:here", "has the form chroma:PLACE#NAME"),
        ("chroma:#name", "has the form chroma:PLACE#NAME"),
        ("faiss:", "has the form faiss:PLACE"),
        ("faiss:a.index#name", "without a name"),
    ],
)
def test_addresses_that_are_wrong(text, told):
    with pytest.raises(InputError, match=told):
        Address.parse(text)


def test_every_kind_is_tested():
    assert {name.removesuffix("-server") for name in ADDRESSES} == set(KINDS)

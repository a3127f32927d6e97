"""One writer per target, and batches that can be written twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from test_stores import (  # noqa: F401
    ADDRESSES,
    DIM,
    _name_of,
    address,
    by_id,
    carry_all,
    chroma_server,
    filled,
    qdrant_server,
    some_rows,
    turned,
    two_addresses,
)

from kedge import Embeddings, InputError, write_embeddings
from kedge.cli.main import main
from kedge.spaces.stores import Batch, Description, open_store
from kedge.spaces.stores.marker import MARKER, WriterMarker
from kedge.spaces.stores.registry import _store_at

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")


def test_a_second_writer_is_refused(two_addresses):  # noqa: F811
    """At the start, at --resume, and by `convert`; the first is not disturbed."""
    space = Embeddings(["a", "b"], np.ones((2, DIM), dtype=np.float32))
    with open_store(two_addresses[0]) as source:
        filled(source, some_rows())
        with open_store(two_addresses[1]) as target, target.lock() as require_held:
            for resume in (False, True):
                with open_store(two_addresses[1]) as other, pytest.raises(InputError) as refused:
                    carry_all(source, other, resume=resume)
                assert "\n" not in str(refused.value)
                assert re.search("another process is writing .*wait until it is done, stop it, or", str(refused.value))
            with pytest.raises(InputError, match="another process is writing"):
                write_embeddings(space, two_addresses[1])
            assert not target.exists()
            require_held()
        with open_store(two_addresses[1]) as target:
            assert carry_all(source, target).complete


def test_a_lock_leaves_nothing_behind(address, tmp_path):  # noqa: F811
    with open_store(address) as store:
        with store.lock():
            pass
        assert not store.exists()
    assert not [path for path in tmp_path.rglob("*") if "lock" in path.name]
    if "://" in address:
        kind, _, rest = address.partition(":")
        if kind != "pgvector":
            with open_store(f"{kind}:{rest}{MARKER}") as marker:
                assert not marker.exists()


def test_batches_that_are_written_twice_change_nothing(address):  # noqa: F811
    rows = some_rows()
    with open_store(address) as store:
        store.create(Description(25, DIM, "cosine"))
        store.write(rows.take(range(10)))
        store.write(rows.take(range(5, 15)))
        store.write(rows.take(range(10)))
        assert store.describe().rows == 15
        store.write(rows.take(range(15, 25)))
        store.finish()
    with open_store(address) as store:
        assert store.describe().rows == 25
        found = by_id(store.read(100))
    for name, vector in zip(rows.ids, rows.vectors, strict=True):
        own = found[name][0]
        np.testing.assert_allclose(own / np.linalg.norm(own), vector / np.linalg.norm(vector), atol=1e-6)


def test_a_parquet_file_that_was_deleted_is_written_anew(tmp_path):
    """Under a number that no other has."""
    with open_store(f"parquet:{tmp_path / 'old'}") as source:
        filled(source, some_rows())
        with open_store(f"parquet:{tmp_path / 'new'}") as target:
            carry_all(source, target)
            before = by_id(target.read(100))
        parts = sorted((tmp_path / "new").glob("*.parquet"))
        assert len(parts) > 3
        parts[1].unlink()
        with open_store(f"parquet:{tmp_path / 'new'}") as target:
            result = carry_all(source, target, resume=True)
            after = by_id(target.read(100))
    assert (result.complete, result.written, result.missing) == (True, 4, 0)
    assert after.keys() == before.keys()
    for name, (vector, payload) in before.items():
        np.testing.assert_array_equal(vector, after[name][0])
        assert after[name][1] == payload


SCRIPT_ROWS, SCRIPT_BATCH = 400, 10


def _carried(source_address: str, target_address: str, resume: bool, ready, go, outcome) -> None:
    """A process that migrates, and says what came of it."""
    ready.set()
    go.wait()
    try:
        with open_store(source_address) as source, open_store(target_address) as target:
            result = migrate_slowly(source, target, resume=resume)
        outcome.put("complete" if result.complete else "incomplete")
    except InputError as error:
        outcome.put(str(error))


def migrate_slowly(source, target, *, resume: bool):
    from kedge.spaces.stores.migration import migrate

    return migrate(source, target, turned, {}, (DIM, DIM + 1), batch_rows=SCRIPT_BATCH, resume=resume)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["parquet", "lancedb", "faiss", "npz", "chroma", "pgvector"])
def test_two_that_go_on_at_once_after_a_kill(request, tmp_path, kind):
    """One does all of it, the other is refused or comes after it; nothing is lost, doubled or mixed."""
    context = multiprocessing.get_context("spawn")
    vectors = np.random.default_rng(0).standard_normal((SCRIPT_ROWS, DIM)).astype(np.float32)
    old = f"parquet:{tmp_path / 'old'}"
    new = str(tmp_path / "new.npz") if kind == "npz" else ADDRESSES[kind](request, tmp_path, _name_of(request))
    rows = Batch([f"i{row}" for row in range(SCRIPT_ROWS)], vectors, [{"n": row} for row in range(SCRIPT_ROWS)])
    with open_store(old) as source:
        filled(source, rows)

    def started(resume: bool, go):
        ready, outcome = context.Event(), context.Queue()
        process = context.Process(target=_carried, args=(old, new, resume, ready, go, outcome))
        process.start()
        ready.wait(60)
        return process, outcome

    go = context.Event()
    first, _ = started(False, go)
    go.set()
    first.join(0.4)
    first.kill()
    first.join()
    go = context.Event()
    both = [started(True, go) for _ in range(2)]
    go.set()
    said = [outcome.get(timeout=120) for _, outcome in both]
    for process, _ in both:
        process.join()
    assert "complete" in said
    assert all(
        text == "complete" or "another process is writing" in text or "already accessed" in text for text in said
    )
    with open_store(new) as target:
        assert target.describe().rows == SCRIPT_ROWS
        found = by_id(target.read(100))
        keeps = target.keeps_payload
    assert found.keys() == set(rows.ids)
    for name, vector, payload in zip(rows.ids, turned(vectors), rows.payloads, strict=True):
        own = found[name][0]
        np.testing.assert_allclose(own / np.linalg.norm(own), vector / np.linalg.norm(vector), atol=1e-6)
        assert not keeps or found[name][1] == payload


@pytest.fixture(params=["chroma-server", "qdrant-server"])
def server_address(request, tmp_path) -> str:
    """Of a collection of a server."""
    return ADDRESSES[request.param](request, tmp_path, _name_of(request))


def marker_of(server_address: str) -> WriterMarker:
    """A marker that beats fast."""

    def delete(store):
        store._store._client.delete_collection(store.address.name)

    return WriterMarker(lambda: _store_at(f"{server_address}{MARKER}"), delete, server_address, beat_seconds=0.1)


def test_the_marker_of_a_dead_writer_is_cleared(server_address, monkeypatch):
    """One whose process is gone at once, one of another machine when its beats stay out; a living one is not."""
    from kedge.spaces.stores import marker

    dead = marker_of(server_address)
    with dead._opened() as store:
        store.create(Description(1, 1))
        dead._say(store, 3)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(marker, "_machine", lambda: "another")
        with marker_of(server_address) as held:
            held.require_held()
    with dead._opened() as store:
        store.create(Description(1, 1))
        with monkeypatch.context() as gone:
            gone.setattr(marker, "_beginning_of", lambda _: "long ago")
            dead._say(store, 3)
    with marker_of(server_address) as held, monkeypatch.context() as elsewhere:
        elsewhere.setattr(marker, "_machine", lambda: "another")
        with pytest.raises(InputError, match="another process is writing there"), marker_of(server_address):
            pass
        held.require_held()


def test_a_writer_that_lost_its_marker_stops(server_address):
    import time

    with open_store(f"{server_address}{MARKER}") as store, marker_of(server_address) as held:
        held.require_held()
        store.write(Batch(["1"], np.ones((1, 1), dtype=np.float32), [{"writer": "another", "beats": 0}]))
        for _ in range(100):
            time.sleep(0.05)
            if held._lost:
                break
        with pytest.raises(InputError, match="another process has begun to write there"):
            held.require_held()
        store._store._client.delete_collection(store.address.name)


def test_the_second_of_two_commands_is_refused_in_a_line(run_files, words, tmp_path, capsys):
    source = f"parquet:{tmp_path / 'old'}"
    write_embeddings(words[0].take(range(50)), source)
    target = f"parquet:{tmp_path / 'new'}"
    with open_store(target) as store, store.lock():
        assert main(["migrate", source, target, "--run", run_files[0], "--resume"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"another process is writing there (process {os.getpid()} on" in told
    assert main(["migrate", source, target, "--run", run_files[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"]
    assert not list(Path(tmp_path).rglob("*lock*"))

"""A few cases of `tools/fuzz_stores.py`, and that it can fail."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

for package in ("apsw", "sqlite_vec", "pyarrow", "chromadb", "lancedb", "qdrant_client", "qdrant_edge", "faiss"):
    pytest.importorskip(package)

TOOLS = Path(__file__).parents[1] / "tools"
LOCAL = ("parquet", "lancedb", "chroma", "qdrant", "qdrant-edge", "sqlite-vec")


@pytest.fixture(scope="module")
def fuzz():
    """The module, found as its own script finds it."""
    sys.path.insert(0, str(TOOLS))
    try:
        yield pytest.importorskip("fuzz_stores")
    finally:
        sys.path.remove(str(TOOLS))


@pytest.fixture
def place(fuzz):
    with ExitStack() as stack:
        yield fuzz.Place(stack)


@pytest.mark.parametrize("target", ["payloads", "ids"])
def test_odd_rows_arrive_or_are_reported(fuzz, place, target, capsys):
    for number, kind in enumerate((*LOCAL, *LOCAL, "faiss", "npz", "npy") if target == "ids" else LOCAL * 2):
        outcomes = fuzz.try_case(target, kind, 16, number, place)
        assert not outcomes["FAILED"], capsys.readouterr().err
        assert sum(outcomes.values()) == fuzz.ROUND


def test_odd_names_touch_nothing_beside_them(fuzz, place, capsys):
    for number in range(60):
        outcomes = fuzz.try_case("names", "sqlite-vec", 16, number, place)
        assert not outcomes["FAILED"], capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["parquet", "sqlite-vec", "npz"])
def test_kills_and_two_writers(fuzz, place, kind, capsys):
    for target in ("kills", "writers"):
        for number in range(3):
            outcomes = fuzz.try_case(target, kind, 16, number, place)
            assert not outcomes["FAILED"], capsys.readouterr().err


@pytest.mark.parametrize("fault", ["loses", "mixes", "makes up", "changes"])
def test_what_goes_wrong_is_found(fuzz, place, fault, monkeypatch, capsys):
    from kedge.spaces.stores.backends.parquet_folder import ParquetStore
    from kedge.spaces.stores.store import Batch

    write = ParquetStore.write

    def wrong(store, batch):
        ids, vectors, payloads = list(batch.ids), batch.vectors.copy(), [dict(payload) for payload in batch.payloads]
        if fault == "loses":
            ids, vectors, payloads = ids[1:], vectors[1:], payloads[1:]
        elif fault == "mixes":
            vectors = -vectors
        elif fault == "makes up":
            ids[0] = "made up"
        else:
            payloads[-1]["i"] = payloads[-1]["n"] = "changed"
        if ids:
            write(store, Batch(ids, vectors, payloads))

    monkeypatch.setattr(ParquetStore, "write", wrong)
    failed = [fuzz.try_case("ids", "parquet", 16, number, place)["FAILED"] for number in range(12)]
    assert sum(failed) >= 3
    assert "AssertionError" in capsys.readouterr().err

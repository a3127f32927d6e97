"""`kedge migrate` and `kedge stores` as a user sees them; what each store does is in test_stores.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import kedge
from kedge.cli.main import main
from kedge.runs.folder import seal
from kedge.spaces.stores import NOTE, Batch, Description, StoreKind, open_store
from kedge.spaces.stores.registry import STORE_KINDS


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def shop(tmp_path, words) -> str:
    """A store of 500 words of X, with a text and a number each."""
    address = f"parquet:{tmp_path / 'old'}"
    fill(address, words[0].take(range(500)))
    return address


def fill(address: str, space: kedge.Embeddings) -> None:
    with open_store(address) as store:
        store.create(Description(len(space), space.dim, "cosine"))
        payloads = [{"document": f"the word {key}", "place": row} for row, key in enumerate(space.keys)]
        store.write(Batch(list(space.keys), np.array(space.vectors), payloads))
        store.finish()


def test_a_store_is_carried(shop, run_files, words, tmp_path, capsys):
    target = f"parquet:{tmp_path / 'new'}"
    assert run("migrate", shop, target, "--run", run_files[0], "--dry-run") == 0
    assert "would translate 500 rows of 300 numbers" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()
    assert run("migrate", shop, target, "--run", run_files[0], "--to-model", "glove", "--batch", "64") == 0
    output = capsys.readouterr().out
    assert "500 rows translated into" in output
    assert "checked: 500 rows on both sides, " in output
    carried = kedge.read_embeddings(target)
    expected = kedge.load(run_files[0]).translate(words[0].take(range(500)), scale="raw")
    np.testing.assert_allclose(carried.vectors[carried.rows(words[0].keys[:500])], expected, atol=1e-3)
    with open_store(target) as store:
        said = json.loads(store.describe().metadata[NOTE])
        payload = store.fetch([words[0].keys[7]]).payloads[0]
    assert (said["model"], said["source"]) == ("glove", shop)
    assert payload == {"document": f"the word {words[0].keys[7]}", "place": 7}
    assert run("migrate", target, f"parquet:{tmp_path / 'third'}", "--run", run_files[0], "--back") == 0
    assert "translated before" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["parquet", "chroma", "lancedb", "sqlite-vec", "qdrant-edge"])
def test_rows_are_marked_as_translated(kind, shop, run_files, words, tmp_path, capsys):
    place = "new.db" if kind == "sqlite-vec" else "new"
    target = f"{kind}:{tmp_path / place}{'' if kind in ('parquet', 'qdrant-edge') else '#docs'}"
    code = run("migrate", shop, target, "--run", run_files[0], "--mark", "made_by", "--batch", "64")
    told = capsys.readouterr()
    if code == 2 and "pip install" in told.err:
        pytest.skip(told.err)
    assert code == 0, told
    assert "checked: 500 rows on both sides" in told.out
    # What makes them comparable with native rows is said, and stored with them.
    offset = kedge.load_translator(run_files[0]).score_offset
    assert f"add {offset:+.4f} to the cosine of those with made_by = translated" in told.err
    with open_store(target) as store:
        assert json.loads(store.describe().metadata[NOTE])["score_offset"] == offset
        payloads = [payload for batch in store.read(1000) for payload in batch.payloads]
    assert {payload["made_by"] for payload in payloads} == {"translated"}
    assert {payload["place"] for payload in payloads} == set(range(500))
    # The mark belongs to the migration: without it another one would be resumed.
    assert run("migrate", shop, target, "--run", run_files[0], "--resume") == 2
    assert "something other" in capsys.readouterr().err
    assert run("migrate", shop, target, "--run", run_files[0], "--mark", "made_by", "--resume") == 0


def test_marks_that_cannot_be_made(shop, run_files, tmp_path, capsys):
    new = f"parquet:{tmp_path / 'new'}"
    for target, mark, told in (
        (new, "place", "has an entry 'place' already"),
        (f"faiss:{tmp_path / 'new.faiss'}", "made_by", "keeps no payload"),
    ):
        assert run("migrate", shop, target, "--run", run_files[0], "--mark", mark) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--back"], "holds vectors of 300 numbers, but the map takes 100; with --back it takes them"),
        (["--resume", "--to-model", "other"], "something other"),
        ([], "already exists; continue with --resume"),
    ],
)
def test_what_cannot_be_carried_is_refused(shop, run_files, tmp_path, capsys, more, told):
    target = f"parquet:{tmp_path / 'new'}"
    assert run("migrate", shop, target, "--run", run_files[0]) == 0
    assert run("migrate", shop, target, "--run", run_files[0], *more) == 2
    assert told in capsys.readouterr().err


def test_vectors_are_not_carried_twice(rotated, tmp_path, capsys):
    """Also where both spaces have as many dimensions, so that nothing else would tell."""
    shop, same, target = (f"parquet:{tmp_path / name}" for name in ("old", "same", "new"))
    x, y = rotated()
    discovery = kedge.AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, np.stack([np.arange(200)] * 2, axis=1))
    discovery.save(tmp_path / "square")
    fill(shop, kedge.Embeddings([str(row) for row in range(300)], x))
    assert run("migrate", shop, same, "--run", tmp_path / "square") == 0
    assert run("migrate", same, target, "--run", tmp_path / "square") == 2
    assert "translated by this run before" in capsys.readouterr().err
    assert run("migrate", shop, shop, "--run", tmp_path / "square") == 2
    assert "the same store" in capsys.readouterr().err


def test_rows_that_do_not_fit_are_listed(words, run_files, tmp_path, capsys):
    space = words[0].take(range(50))
    vectors = np.array(space.vectors)
    vectors[5] = np.nan
    with open_store(f"parquet:{tmp_path / 'old'}") as store:
        store.create(Description(50, space.dim))
        store.write(Batch(list(space.keys), vectors, [{} for _ in space.keys]))
    command = ["migrate", f"parquet:{tmp_path / 'old'}", f"parquet:{tmp_path / 'new'}", "--run", run_files[0]]
    assert run(*command) == 2
    assert f"row {space.keys[5]!r} has NaN or infinite values" in capsys.readouterr().err
    assert run(*command, "--resume", "--skip-bad", tmp_path / "bad.tsv") == 0
    assert "left out: 1 rows that do not fit" in capsys.readouterr().out
    assert (tmp_path / "bad.tsv").read_text() == f"id\treason\n{space.keys[5]}\thas NaN or infinite values\n"


def test_ids_that_repeat_are_refused_left_out_or_renamed(words, run_files, tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    space = words[0].take(range(300))
    ids = list(space.keys)
    ids[250], ids[150] = ids[110], ids[10]
    (tmp_path / "old").mkdir()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.array(space.vectors).reshape(-1)), space.dim)
    pq.write_table(pa.table({"id": ids, "vector": vectors}), tmp_path / "old" / "a.parquet")
    command = ["migrate", f"parquet:{tmp_path / 'old'}", f"parquet:{tmp_path / 'new'}", "--run", run_files[0]]
    for more in ([], ["--dry-run"]):
        assert run(*command, "--batch", "100", *more) == 2
        told = capsys.readouterr().err
        assert (
            f"2 ids repeat ({ids[10]!r} in rows 10 and 150, {ids[110]!r} in rows 110 and 250, counted from 0)" in told
        )
        assert not (tmp_path / "new").exists()
    assert run(*command, "--on-duplicate", "first", "--skip-bad", tmp_path / "left.tsv") == 0
    output = capsys.readouterr().out
    assert "ids that repeat: 2 rows were left out" in output
    assert "checked: 298 rows on both sides" in output
    assert (tmp_path / "left.tsv").read_text().splitlines()[1:] == [
        f"{ids[10]}\thas the id of an earlier row",
        f"{ids[110]}\thas the id of an earlier row",
    ]
    assert run(*command, "--on-duplicate", "suffix", "--resume") == 2
    assert "something other" in capsys.readouterr().err
    command[2] = f"parquet:{tmp_path / 'all'}"
    assert run(*command, "--on-duplicate", "suffix", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["written"], result["repeated"], result["complete"]) == (300, 2, True)
    carried = kedge.read_embeddings(command[2])
    expected = kedge.load(run_files[0]).translate(space, scale="raw")
    rows = carried.rows([ids[10], f"{ids[10]}-2", f"{ids[110]}-2"])
    np.testing.assert_allclose(carried.vectors[rows], expected[[10, 150, 250]], atol=1e-3)


def test_a_map_that_is_not_right_carries_nothing(words, run_files, shop, tmp_path, capsys):
    folder = tmp_path / "run"
    kedge.load(run_files[0]).save(folder)
    described = json.loads((folder / "run.json").read_text())
    described["health"]["searching"] |= {"verdict": "failed", "score": 0.0}
    (folder / "run.json").write_text(json.dumps(described))
    seal(folder)
    assert run("migrate", shop, f"parquet:{tmp_path / 'new'}", "--run", folder) == 2
    assert "the verdict for searching is failed" in capsys.readouterr().err
    assert run("migrate", shop, f"parquet:{tmp_path / 'new'}", "--run", folder, "--ignore-verdict") == 0


def test_the_way_back_is_judged_by_its_own_known_pairs(words, run_files, tmp_path, capsys):
    folder, old = tmp_path / "run", f"parquet:{tmp_path / 'old'}"
    fill(old, words[1].take(range(50)))
    kedge.load(run_files[0]).save(folder)
    described = json.loads((folder / "run.json").read_text())
    for name, score in (("map", 0.9), ("map_back", 0.1)):
        described["maps"][name] |= {"by_known": True, "mrr": score, "overlap": score, "tested": 200}
    for health, known, code in (("ok", True, 2), ("failed", True, 2), ("ok", False, 0)):
        described["health"]["searching"]["verdict"] = health
        described["maps"]["map_back"]["by_known"] = known
        (folder / "run.json").write_text(json.dumps(described))
        seal(folder)
        assert run("migrate", old, f"parquet:{tmp_path / 'new'}", "--run", folder, "--back", "--dry-run") == code
        told = capsys.readouterr().err
        assert ("failed (From Y to X: On 200 known pairs" in told) == (code == 2)
    described["maps"]["map_back"] |= {"by_known": True, "mrr": 0.6}
    described["health"]["searching"]["verdict"] = "failed"
    (folder / "run.json").write_text(json.dumps(described))
    seal(folder)
    command = ["migrate", old, f"parquet:{tmp_path / 'new'}", "--run", folder, "--back", "--dry-run"]
    assert run(*command) == 0
    assert run(*command[:5], "--dry-run") == 2  # the other way, the verdict of the run stands


@pytest.mark.thorough
def test_a_killed_migration_is_resumed(words, run_files, tmp_path, capsys):
    """A real SIGKILL, in the middle of writing to a store that is a database."""
    pytest.importorskip("chromadb", reason="needs chromadb: pip install 'kedge[chroma]'")
    old, new = (f"chroma:{tmp_path / 'db'}#{name}" for name in ("words-old", "words-new"))
    fill(old, words[0])
    command = ["migrate", old, new, "--run", run_files[0], "--batch", "50"]
    process = subprocess.Popen([sys.executable, "-m", "kedge", *command], env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        for _ in range(600):
            time.sleep(0.1)
            with open_store(new) as store:
                if store.exists() and store.describe().rows >= 100:
                    break
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with open_store(new) as store:
        reached = store.describe().rows
    assert 100 <= reached < 2000
    assert run(*command) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(*command, "--resume", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["before"], result["written"]) == (2000, reached, 2000 - reached)
    carried = kedge.read_embeddings(new)
    expected = kedge.load(run_files[0]).translate(words[0])
    found = carried.vectors[carried.rows(words[0].keys)]
    np.testing.assert_allclose(found / np.linalg.norm(found, axis=1, keepdims=True), expected, atol=1e-5)


def test_every_command_takes_an_address(shop, run_files, small_files, tmp_path, capsys):
    assert run("info", shop) == 0
    assert "500 rows, 300 dimensions" in capsys.readouterr().out
    assert run("convert", shop, tmp_path / "words.npz") == 0
    assert run("convert", tmp_path / "words.npz", f"parquet:{tmp_path / 'again'}") == 0
    assert run("translate", run_files[0], shop, "-o", f"parquet:{tmp_path / 'translated'}") == 0
    assert kedge.read_embeddings(f"parquet:{tmp_path / 'translated'}").dim == 100
    small, out = f"parquet:{tmp_path / 'small'}", tmp_path / "found"
    assert run("convert", small_files[0], small) == 0
    options = ["--seeds", small_files[2], "--anchors", "20", "--device", "cpu"]
    assert run("discover", small, small_files[1], *options, "--out", out) == 0
    inputs = json.loads((out / "run.json").read_text())["inputs"]
    assert (inputs["x"]["file"], inputs["x"]["rows"]) == (small, 120)
    assert len(inputs["x"]["sha256"]) == 64
    assert run("convert", shop, f"parquet:{tmp_path / 'again'}") == 2
    assert "already exists" in capsys.readouterr().err


def test_stores_are_listed(capsys, monkeypatch):
    assert run("stores", "--json") == 0
    listed = {store["kind"]: store for store in json.loads(capsys.readouterr().out)["stores"]}
    assert listed.keys() == STORE_KINDS.keys()
    missing = StoreKind("faiss", ("faiss:FILE",), ("no_such_package",), "faiss", "faiss_index:FaissStore")
    monkeypatch.setitem(STORE_KINDS, "faiss", missing)
    assert run("stores") == 0
    output = capsys.readouterr().out
    assert "chroma:DIR#COLLECTION" in output
    assert "pip install 'kedge[faiss]'" in output
    assert run("info", "faiss:any.faiss") == 2
    assert (
        capsys.readouterr().err == "kedge: error: faiss:any.faiss: needs no_such_package: pip install 'kedge[faiss]'\n"
    )
    with pytest.raises(SystemExit, match="2"):
        run("info", "chroma:folder")
    assert "has the form chroma:PLACE#NAME" in capsys.readouterr().err


def test_secrets_are_shown_nowhere(run_files, tmp_path, capsys):
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'kedge[pgvector]'")
    address = "pgvector:postgresql://me:hush-hush@127.0.0.1:1/db#docs.vector"
    assert run("migrate", address, f"parquet:{tmp_path / 'new'}", "--run", run_files[0]) == 2
    told = capsys.readouterr().err
    assert "pgvector:postgresql://me:***@127.0.0.1:1/db#docs.vector" in told
    assert "hush" not in told
    assert not list(Path(tmp_path).rglob("*"))

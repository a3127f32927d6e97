"""What `kedge migrate`, `translate` and `project` write never replaces what they read or write besides."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kedge
from kedge.cli.main import main
from kedge.cli.output_files import require_apart
from kedge.errors import InputError
from kedge.spaces.stores import Address
from kedge.spaces.stores.address import is_address


def place(text: str) -> Path | Address:
    return Address.parse(text) if is_address(text) else Path(text)


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def small_run(tmp_path_factory, small_files) -> Path:
    """A run of two spaces of 120 rows, all of whose pairs are known."""
    path = tmp_path_factory.mktemp("small_run") / "run"
    x, y = (kedge.read_embeddings(name) for name in small_files[:2])
    kedge.AnchorDiscovery(device="cpu").fit(x, y, [(key, key) for key in x.keys]).save(path)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch, small_files, small_run) -> None:
    """A folder with a run, a file of X, and a folder of Parquet files of which one row is bad."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(small_files[0], tmp_path)
    shutil.copytree(small_run, tmp_path / "run")
    x = kedge.read_embeddings("x.npz")
    write_folder("old", list(x.keys), np.where(np.arange(len(x))[:, None] == 5, 0, x.vectors))


def write_folder(name: str, keys: list, vectors: np.ndarray) -> None:
    Path(name).mkdir()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.float32(vectors).reshape(-1)), vectors.shape[1])
    pq.write_table(pa.table({"id": keys, "vector": lists}), f"{name}/a.parquet", row_group_size=50)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("migrate parquet:old new.npz --run run --skip-bad new.npz", "written here, for new.npz"),
        ("migrate parquet:old new.npz --run run --skip-bad old/../new.npz", "written here, for new.npz"),
        ("migrate parquet:old new.npz --run run --skip-bad new.npz.kedge.json", "written here, for new.npz"),
        ("migrate parquet:old new.npy --run run --skip-bad new.keys.txt", "written here, for new.npy"),
        ("migrate parquet:old sqlite-vec:s.db#t --run run --skip-bad s.db", "written here, for sqlite-vec:s.db#t"),
        ("migrate parquet:old faiss:f.faiss --run run --skip-bad f.keys.txt", "written here, for faiss:f.faiss"),
        ("migrate parquet:old new.npz --run run --skip-bad old/b.parquet", "read here, and is not overwritten"),
        (
            "migrate parquet:old new.npz --run run --skip-bad old/a.parquet --resume",
            "read here, and is not overwritten",
        ),
        ("migrate parquet:old parquet:./old --run run", "read here, and is not overwritten"),
        ("translate run x.npz -o new.npz --trust new.npz", "written here, for new.npz"),
        ("translate run x.npz -o new.npy --trust new.keys.txt", "written here, for new.npy"),
        ("translate run parquet:old -o old/b.parquet", "read here, and is not overwritten"),
        ("translate run parquet:old -o parquet:./old --engine local --overwrite", "read here, and is not overwritten"),
        ("translate run old/a.parquet -o parquet:old --engine local --overwrite", "read here, and is not overwritten"),
        ("translate run x.npz -o parquet:run --engine local --overwrite", "read here, and is not overwritten"),
        ("project run X parquet:old -o parquet:old --engine local --overwrite", "read here, and is not overwritten"),
        ("translate run x.npz -o parquet:new --engine local --trust t.tsv", "--trust: cannot be used with --engine"),
    ],
)
def test_outputs_are_apart_from_inputs_and_from_each_other(here, capsys, command, told):
    before = contents()
    assert main(command.split()) == 2
    assert told in capsys.readouterr().err
    assert contents() == before


def test_outputs_that_are_apart_are_written(here):
    assert main(["migrate", "parquet:old", "new.npz", "--run", "run", "--skip-bad", "bad.tsv"]) == 0
    assert len(kedge.read_embeddings("new.npz")) == 119
    assert Path("bad.tsv").read_text() == "id\treason\nr5\tis a zero vector\n"


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("chroma:db#old", "chroma:db#new"),
        ("sqlite-vec:s.db#old", "sqlite-vec:s.db#new"),
        ("pgvector:postgresql://h/db#old.v", "pgvector:postgresql://h/db#new.v"),
        ("qdrant:http://h:1#old", "qdrant:http://h:2#old"),
        ("lancedb:db#words", "chroma:db#words"),
        ("chroma:.#old", "new.npz"),
        ("x.npz", "chroma:.#new"),
        ("parquet:old", "parquet:old/new"),
        ("parquet:.", "new.npz"),
        ("x.parquet#a", "y.parquet"),
        ("circular.npz", "new.npz"),
    ],
)
def test_what_one_place_may_hold_side_by_side(tmp_path, monkeypatch, read, written):
    monkeypatch.chdir(tmp_path)
    Path("circular.npz").symlink_to("circular.npz")
    require_apart([place(read)], [place(written), Path("bad.tsv")])


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("chroma:db#old", "chroma:./db#old"),
        ("qdrant:http://h:1#old", "qdrant:http://h:1#old"),
        ("parquet:old", "parquet:old#id,vector"),
        ("parquet:old/part", "parquet:old"),
        ("link.npz", "real.npz"),
        ("x.parquet#a", "x.parquet"),
    ],
)
def test_what_would_replace_what_is_read(tmp_path, monkeypatch, read, written):
    monkeypatch.chdir(tmp_path)
    Path("link.npz").symlink_to("real.npz")
    with pytest.raises(InputError, match="is also read here"):
        require_apart([place(read)], [place(written)])


# -- ids, which an engine checks as a migration in one go does


@pytest.mark.parametrize(
    "command",
    [
        "migrate SOURCE parquet:new --run run",
        "translate run SOURCE -o parquet:new",
        "project run X SOURCE -o parquet:new",
    ],
)
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({60: "r3", 110: "r70"}, "2 ids repeat ('r3' in rows 3 and 60, 'r70' in rows 70 and 110, counted from 0)"),
        ({7: None, 119: None}, "2 rows have no id (row 7, row 119, counted from 0)"),
    ],
)
def test_an_engine_refuses_ids_that_repeat_or_are_missing(here, monkeypatch, capsys, command, changed, told):
    monkeypatch.setattr("kedge.tasks.all_rows.rewriting.BATCH", 50)
    x = kedge.read_embeddings("x.npz")
    write_folder("odd", [changed.get(row, key) for row, key in enumerate(x.keys)], x.vectors)
    for more in ([], ["--engine", "local"]):
        if more or command.startswith("migrate"):
            assert main([*command.replace("SOURCE", "parquet:odd").split(), *more]) == 2
            assert f"parquet:odd: {told}" in (error := capsys.readouterr().err)
    assert "of `kedge migrate`, without --engine" in error
    assert not list(Path().glob("new*"))


def test_an_engine_goes_by_ids_that_do_not_repeat(here, capsys):
    for wanted in ("first", "suffix"):
        command = f"migrate x.npz parquet:new --run run --engine local --on-duplicate {wanted}"
        assert main(command.split()) == 2
        assert f"--on-duplicate {wanted}: cannot be used with --engine" in capsys.readouterr().err
    assert main(["migrate", "x.npz", "parquet:new", "--run", "run", "--engine", "local"]) == 0
    assert "compared and equal; no id repeats" in capsys.readouterr().out

"""A run names the files that were read, whatever becomes of them while it is made."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kedge import load, read_embeddings, write_embeddings
from kedge.cli import progress
from kedge.cli.main import main
from kedge.spaces import Embeddings

FILES = {"x": "x.npy", "y": "y.npz", "seeds": "seeds.tsv", "anchor_keys": "anchors.txt"}


@pytest.fixture
def files(small_files, tmp_path) -> Path:
    """Copies of the small files, one of them memory-mapped with keys beside it, and a list of anchors."""
    write_embeddings(read_embeddings(small_files[0]), tmp_path / "x.npy")
    for source in small_files[1:]:
        shutil.copy(source, tmp_path)
    (tmp_path / "anchors.txt").write_text("".join(f"r{row}\n" for row in range(20, 40)))
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    given = [str(folder / FILES["x"]), str(folder / FILES["y"]), "--seeds", str(folder / FILES["seeds"])]
    return [
        *("discover", *given, "--anchor-keys", str(folder / FILES["anchor_keys"])),
        *("--device", "cpu", "--out", str(folder / "run"), *more),
    ]


def sums(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / file).read_bytes()).hexdigest() for name, file in FILES.items()}


def named(folder: Path) -> dict[str, str]:
    told = json.loads((folder / "run" / "run.json").read_text())["inputs"]
    return {name: described["sha256"] for name, described in told.items()}


@pytest.fixture
def at_first_step(monkeypatch):
    """A function that has something done when the search makes its first step."""

    def arrange(do) -> None:
        done = []

        @contextmanager
        def bar():
            yield lambda step: done or done.append(do() or True)

        monkeypatch.setattr(progress, "progress_bar", bar)

    return arrange


def replace_all(folder: Path) -> None:
    """Every file by another of the same name, as programs that write carefully do."""
    other = Embeddings([f"r{row}" for row in range(120)], np.random.default_rng(9).standard_normal((120, 16)))
    (folder / "new").mkdir()
    for name in ("x.npy", "y.npz"):
        write_embeddings(other, folder / "new" / name)
    (folder / "new" / "seeds.tsv").write_text("x\ty\nr1\tr2\n")
    (folder / "new" / "anchors.txt").write_text("r1\n")
    for path in (folder / "new").iterdir():
        path.replace(folder / path.name)
    (folder / "new").rmdir()


def test_files_that_are_replaced_during_a_run_are_named_as_they_were_read(files, at_first_step):
    before = sums(files)
    keys_before = hashlib.sha256((files / "x.keys.txt").read_bytes()).hexdigest()
    at_first_step(lambda: replace_all(files))
    assert main(arguments(files)) == 0
    after = sums(files)
    assert all(before[name] != after[name] for name in FILES)
    assert named(files) == before
    told = json.loads((files / "run" / "run.json").read_text())["inputs"]
    assert told["x"]["keys_sha256"] == keys_before
    assert told["x"]["rows"] == 120


def test_files_that_are_deleted_during_a_run_do_not_cost_its_result(files, at_first_step):
    before = sums(files)
    at_first_step(lambda: [path.unlink() for path in files.iterdir() if path.is_file()])
    assert main(arguments(files)) == 0
    assert named(files) == before
    assert load(files / "run").health_.map.verdict == "ok"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["edited", "replaced", "deleted"])
def test_a_file_that_changes_while_it_is_read_is_refused_before_the_work(files, monkeypatch, capsys, name, change):
    from kedge import spaces

    readers = {"seeds": "read_dictionary", "anchor_keys": "read_key_list"}
    reader = getattr(spaces, readers.get(name, "read_embeddings"))
    path = files / FILES[name]

    def reads(given, *more, **options):
        content = reader(given, *more, **options)
        if Path(given) == path and change == "edited":
            with path.open("ab") as stream:
                stream.write(b"\n")
        elif Path(given) == path and change == "replaced":
            shutil.copy(path, files / "copy")
            (files / "copy").replace(path)
        elif Path(given) == path:
            path.unlink()
        return content

    monkeypatch.setattr(spaces, reader.__name__, reads)
    assert main(arguments(files)) == 2
    assert f"{path}: was changed, replaced or deleted while it was read; run this again" in capsys.readouterr().err
    assert not (files / "run").exists()


SLOWLY = """
import sys, time
from kedge.cli.main import entry_point
from kedge.solving import annealing
step = annealing.transport_step
def slow(*arguments, **options):
    time.sleep(0.05)
    return step(*arguments, **options)
annealing.transport_step = slow
entry_point()
"""


@pytest.mark.thorough
def test_a_program_that_replaces_files_meanwhile_changes_nothing(files):
    before = sums(files)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", SLOWLY, *arguments(files)], env=environment) as search:
        while not (files / "run.checkpoint").exists():
            assert search.poll() is None
            time.sleep(0.01)
        replace_all(files)
        assert search.wait(120) == 0
    assert named(files) == before
    assert sums(files) != before

"""What the commands write: nothing is lost, and what cannot be written is named in one line."""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from kedge import Embeddings, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.cli.parser import build_parser
from kedge.errors import OutputError
from kedge.estimators import load
from kedge.spaces.pairs import write_table

FORMATS = (".vec", ".vec.gz", ".bin", ".bin.gz", ".npz", ".npy", ".safetensors", ".parquet")
WORDS = [first + second for first in "abcdefghij" for second in "klmnopqrst"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small_files) -> Path:
    """A run, the files it is from, and what else a command reads."""
    path = tmp_path_factory.mktemp("writing")
    for file in small_files:
        shutil.copy(file, path)
    files = [str(path / name) for name in ("x.npz", "y.npz")]
    assert (
        main(["discover", *files, "--seeds", str(path / "seeds.tsv"), "--anchors", "40", "--out", f"{path}/run"]) == 0
    )
    keys = [f"r{row}" for row in range(120)]
    write_table(path / "labels.tsv", ("key", "label"), [(key, str(row % 2)) for row, key in enumerate(keys)])
    write_embeddings(Embeddings(WORDS, np.random.default_rng(0).standard_normal((100, 8))), path / "words.npz")
    (path / "texts.txt").write_text("\n".join(" ".join(WORDS[row % 100 :][:5]) for row in range(400)) + "\n")
    return path


COMMANDS = {
    "convert": "convert x.npz OUT.npz",
    "translate": "translate run x.npz -o OUT.npz",
    "project": "project run X x.npz -o OUT.npz",
    "encode": "encode text texts.txt --model words.npz -o OUT.npz",
    "export": "export run -o OUT.npz",
    "export onnx": "export run -o OUT.onnx",
    "export pairs": "export run -o OUT.tsv",
    "report": "report run x.npz y.npz -o OUT.html",
    "plot": "plot run x.npz y.npz -o OUT.png",
    "suggest": "suggest run x.npz y.npz -k 50 -o OUT.tsv",
    "stitch": "stitch run --train x.npz --labels labels.tsv --predict y.npz --head mlp -o OUT.tsv",
    "discover": "discover x.npz y.npz --seeds seeds.tsv --anchors 40 --out OUT",
    "discover --report": "discover x.npz y.npz --seeds seeds.tsv --anchors 40 --out run-new --report OUT.html",
}
# The quick ones; what several share is in the one function that all ask.
THOROUGH = {"encode", "export onnx", "report", "plot", "stitch", "discover --report"}


def commands(names=COMMANDS):
    marks = {name: [pytest.mark.thorough] if name in THOROUGH else [] for name in names}
    return [pytest.param(COMMANDS[name], id=name, marks=marks[name]) for name in names]


def run(folder: Path, out: Path, command: str, *more: str) -> tuple[int, Path]:
    """The exit code of a command, and what it was to write."""
    words = [word.replace("OUT", str(out / "out")) for word in command.split()]
    target = next(Path(word) for word in words if word.startswith(str(out)))
    words = [str(out / word) if word == "run-new" else word for word in words]
    return main([str(folder / word) if (folder / word).exists() else word for word in words] + list(more)), target


def everything_in(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@contextmanager
def files_of_at_most(size: int):
    """As on a full disk, files cannot grow beyond this; the reason that is given is another one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def last_line(capsys) -> str:
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.count("error:") == 1
    return err.splitlines()[-1]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_cannot_be_written_is_named_with_the_reason(folder, tmp_path, capsys, suffix):
    out = tmp_path / f"out{suffix}"
    with files_of_at_most(1000):
        assert main(["convert", str(folder / "x.npz"), str(out)]) == 2
    assert last_line(capsys) == (
        f"kedge: error: {out}: could not be written (File too large); nothing half-written is left"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", commands())
def test_what_a_command_cannot_write_is_named_with_the_reason(folder, tmp_path, capsys, command):
    with files_of_at_most(300):
        code, out = run(folder, tmp_path, command)
    assert code == 2
    error = last_line(capsys)
    named = {"encode": f"{out}.partial/", "discover": tmp_path}.get(command.split()[0], out)  # what is kept on the way
    assert error.startswith(f"kedge: error: {named}")
    assert error.endswith(": could not be written (File too large); nothing half-written is left")
    assert ".kedge-" not in error
    assert not out.exists()
    assert not list(tmp_path.rglob(".kedge-*"))


def test_a_run_that_cannot_be_written_leaves_the_one_before(folder, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(folder / "run", out)
    before = everything_in(tmp_path)
    largest = max(path.stat().st_size for path in out.iterdir())
    discovery = load(out)
    with files_of_at_most(largest - 1), pytest.raises(OutputError) as caught:
        discovery.save(out, overwrite=True)
    assert str(caught.value) == f"{out}: could not be written (File too large); nothing half-written is left"
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("address", ["faiss:OUT.index", "parquet:OUT"])
def test_a_store_in_files_that_cannot_be_written_is_not_there(folder, tmp_path, capsys, address):
    pytest.importorskip(address.partition(":")[0].replace("parquet", "pyarrow"))
    with files_of_at_most(1000):
        assert main(["convert", str(folder / "x.npz"), address.replace("OUT", str(tmp_path / "out"))]) == 2
    assert "could not be written (File too large)" in last_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(folder, tmp_path, capsys):
    """For real, where it may be tried."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "kedge", str(disk)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        for out in (*(disk / f"out{suffix}" for suffix in FORMATS), f"parquet:{disk / 'out'}"):
            assert main(["convert", str(folder / "x.npz"), str(out)]) == 2
            error = last_line(capsys)
            assert error.startswith(f"kedge: error: {str(out).removeprefix('parquet:')}")
            assert error.endswith("could not be written (No space left on device); nothing half-written is left")
            assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout(monkeypatch, capsys):
    full = Path("/dev/full").open("w")  # noqa: SIM115 - to close it fails as well
    monkeypatch.setattr(sys, "stdout", full)
    assert main(["stores", "--json"]) == 2
    assert last_line(capsys) == "kedge: error: standard output: No space left on device"
    with suppress(OSError):
        full.close()


@pytest.mark.parametrize("command", commands())
def test_what_is_there_is_replaced_only_if_asked_for(folder, tmp_path, capsys, command):
    out = tmp_path / f"out{Path(command.split()[-1]).suffix}"
    if out.suffix:
        out.write_text("mine")
    else:
        shutil.copytree(folder / "run", out)
    before = everything_in(tmp_path)
    if "discover" not in command:  # refused before anything is read
        command = command.replace("x.npz", "not-there.npz")
    assert run(folder, tmp_path, command)[0] == 2
    assert last_line(capsys) == (
        f"kedge: error: {out}: already exists; choose another name, or replace it with --overwrite"
    )
    assert everything_in(tmp_path) == before
    assert run(folder, tmp_path, command.replace("not-there.npz", "x.npz"), "--overwrite")[0] == 0
    assert everything_in(tmp_path) != before


# Commands without the option, and why: those that write nothing, or print it.
SILENT = {"check", "explore", "evaluate", "search", "serve", "info", "stores", "canary check", "canary texts"}
# These are made to be run again: they replace what an earlier one left, or go on with it, and nothing else.
REPEATED = {"demo", "reproduce", "migrate"}


def test_one_option_says_so_for_all_commands():
    (choices,) = (action.choices for action in build_parser()._actions if isinstance(action.choices, dict))
    for name, parser in choices.items():
        kinds = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        inner = {f"{name} {kind}": each for kind, each in kinds[0].items()} if kinds else {name: parser}
        for command, each in inner.items():
            helps = [action.help for action in each._actions if "--overwrite" in action.option_strings]
            if command in SILENT | REPEATED or name in REPEATED:
                assert helps == [], command
            else:
                assert helps == ["replace an existing output, but never an input"], command


@pytest.mark.parametrize(
    ("command", "onto"),
    [
        ("convert a.npz a.npz --limit 5", "a.npz"),
        ("convert a.npz ./sub/../a.npz", "a.npz"),
        ("convert link.npz a.npz", "a.npz"),
        ("convert hard.npz a.npz", "a.npz"),
        ("convert b.npy b.npy", "b.npy"),
        ("convert c.safetensors c.npy", "c.keys.txt"),
        ("convert a.npz list.npy --keys list.keys.txt", "list.keys.txt"),
        ("translate run a.npz -o a.npz", "a.npz"),
        ("project run X a.npz -o run/map.safetensors", "run/map.safetensors"),
        ("export run -o run/map.safetensors", "run/map.safetensors"),
        ("export run -o run/pairs.tsv", "run/pairs.tsv"),
        ("suggest run a.npz y.npz -k 5 -o run/seeds.tsv", "run/seeds.tsv"),
        ("report run a.npz y.npz --gold gold.html -o gold.html", "gold.html"),
        ("stitch run --train a.npz --labels t.tsv --predict y.npz -o t.tsv", "t.tsv"),
        ("encode text t.txt --model b.npy -o b.npy", "b.npy"),
        ("discover a.npz y.npz --seeds run/seeds.tsv --out run", "run"),
        ("compare run run --gold gold.html -o gold.html", "gold.html"),
        ("migrate a.npz new.npz --run run --skip-bad a.npz --resume --ignore-verdict", "a.npz"),
    ],
)
def test_nothing_is_written_onto_what_is_read(folder, tmp_path, monkeypatch, capsys, command, onto):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "run", "run")
    Path("sub").mkdir()
    space = read_embeddings(folder / "x.npz")
    for name in ("a.npz", "y.npz", "b.npy", "list.npy"):
        write_embeddings(space, name)
    Path("list.npy").unlink()
    write_embeddings(space, "c.safetensors")
    shutil.copy("list.keys.txt", "c.keys.txt")
    for name in ("gold.html", "t.tsv"):
        write_table(Path(name), ("key", "label"), [(key, key) for key in space.keys])
    Path("t.txt").write_text("r1 r2\n")
    Path("link.npz").symlink_to("a.npz")
    Path("hard.npz").hardlink_to("a.npz")
    before = everything_in(tmp_path)
    for more in ([], ["--overwrite"]) if "--resume" not in command else ([],):
        assert main(command.split() + more) == 2
        error = last_line(capsys)
        assert error.endswith(": is also read here, and is not overwritten; choose another name")
        named = error.removeprefix("kedge: error: ").partition(": is also read")[0]
    assert Path(named).resolve() == Path(onto).resolve()
    assert everything_in(tmp_path) == before


def test_keys_beside_a_matrix_are_not_overwritten_either(folder, tmp_path, capsys):
    keys = tmp_path / "out.keys.txt"
    keys.write_text("mine\n")
    assert run(folder, tmp_path, "convert x.npz OUT.npy")[0] == 2
    assert f"{keys}: already exists; choose another name, or replace it with --overwrite" in last_line(capsys)
    migrated = [str(folder / "x.npz"), str(tmp_path / "out.npy"), "--run", str(folder / "run"), "--ignore-verdict"]
    assert main(["migrate", *migrated]) == 2
    assert f"{keys}: already exists; choose another name" in last_line(capsys)
    assert keys.read_text() == "mine\n"
    assert run(folder, tmp_path, "convert x.npz OUT.npy", "--overwrite")[0] == 0
    assert keys.read_text().startswith("r0\nr1\n")


def test_a_store_that_is_there_is_never_replaced(folder, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    address = f"parquet:{tmp_path / 'out'}"
    assert main(["convert", str(folder / "x.npz"), address]) == 0
    before = everything_in(tmp_path)
    for more in ([], ["--overwrite"]):
        # Asked before anything is read: the first file is not even there.
        assert main(["convert", str(folder / "not-there.npz"), address, *more]) == 2
        assert last_line(capsys) == (
            f"kedge: error: {address}: already exists; choose another name, or delete it with its own client"
        )
    assert everything_in(tmp_path) == before


def test_in_python_a_file_is_replaced_as_by_numpy(tmp_path):
    write_embeddings(Embeddings(["a"], np.ones((1, 2))), tmp_path / "x.npz")
    write_embeddings(Embeddings(["b"], np.ones((1, 2))), tmp_path / "x.npz")
    assert list(read_embeddings(tmp_path / "x.npz").keys) == ["b"]

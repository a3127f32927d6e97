"""Memory follows the file, not its claims; what has no end is refused; a mapped file that shrinks is told."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kedge import Embeddings, InputError, read_embeddings, read_pairs, write_embeddings
from kedge.cli.main import main
from kedge.runs.folder import changed_files
from kedge.spaces import read_key_list, read_labels
from kedge.spaces.encoders import read_texts
from kedge.spaces.formats.npy import key_file
from kedge.storage.arrays import read_arrays

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account of memory")

READING = """
import json, resource, sys
import pyarrow.compute, pyarrow.parquet
from kedge import InputError, read_embeddings
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
read_embeddings(sys.argv[1])  # load everything that reading needs
for path, limit in json.loads(sys.argv[2]):
    before = peak()
    try:
        outcome = str(len(read_embeddings(path, limit=limit)))
    except InputError as error:
        outcome = str(error)
    print(json.dumps([peak() - before, outcome]))
"""


@pytest.fixture(scope="module")
def bombs(tmp_path_factory) -> Path:
    """Files of a few bytes, or of a few on the disk, that claim hundreds of megabytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path_factory.mktemp("bombs")
    write_embeddings(Embeddings(["a"], np.ones((1, 2))), folder / "honest.parquet")

    def write(name: str, keys: pa.Array, dim: int, **options: object) -> None:
        flat = pa.array(np.ones(len(keys) * dim, dtype=np.float32))
        table = pa.table({"key": keys, "vector": pa.FixedSizeListArray.from_arrays(flat, dim)})
        pq.write_table(table, folder / name, compression="zstd", **options)

    write("equal.parquet", pa.array(["a"] * 200_000), 100)
    write("groups.parquet", pa.array([str(row) for row in range(200_000)]), 100, row_group_size=20_000)
    write("one-list.parquet", pa.array(["a"]), 20_000_000)
    write("one-page.parquet", pa.array(["a"] * 20_000), 1000, use_dictionary=False, data_page_size=2**30)
    one_key = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000, dtype=np.int32)), ["k" * 10**6])
    write("one-key.parquet", one_key, 2, store_schema=False)
    row = gzip.compress(b"k " + np.ones(10**6, dtype="<f4").tobytes() + b"\n")  # such files may be put end to end
    (folder / "rows.bin.gz").write_bytes(gzip.compress(b"40 1000000\n") + 40 * row)
    (folder / "lines.bin.gz").write_bytes(gzip.compress(b"1 1\n") + 100 * gzip.compress(b"\n" * 10**6))
    (folder / "glove.txt.gz").write_bytes(100 * gzip.compress(b"k" + b" 1" * 500_000 + b"\n"))
    with (folder / "rows.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (20_000_000, 4)})
        stream.write(np.ones((10, 4), dtype="<f4").tobytes())
        stream.truncate(stream.tell() + 20_000_000 * 16)
    return folder


@linux
def test_memory_follows_the_file_and_not_its_claims(bombs):
    cases = {
        "equal.parquet": (1, "unpacks to 80 MB or more, over 250 times its"),
        "groups.parquet": (1, "1"),
        "one-list.parquet": (1, "unpacks to 80 MB"),
        "one-page.parquet": (1, "unpacks to 80 MB"),
        "one-key.parquet": (1, "1"),
        "rows.bin.gz": (None, "unpacks to 160 MB"),
        "lines.bin.gz": (None, "longer than 10000 bytes"),
        "glove.txt.gz": (1, "1"),
        "rows.npy": (10, "10"),
    }
    asked = json.dumps([[str(bombs / name), limit] for name, (limit, _) in cases.items()])
    command = [sys.executable, "-c", READING, str(bombs / "honest.parquet"), asked]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    for (name, (_, expected)), line in zip(cases.items(), done.stdout.splitlines(), strict=True):
        megabytes, outcome = json.loads(line)
        assert outcome == expected if expected.isdigit() else expected in outcome, (name, outcome)
        assert megabytes < 60, name


def test_a_text_that_goes_on_and_on_is_given_up(bombs):
    with pytest.raises(InputError, match=r"glove.txt.gz: unpacks to \d+ MB or more, over 250 times"):
        read_embeddings(bombs / "glove.txt.gz", keys={"absent"})


def test_rows_that_are_named_by_their_number_are_found_without_naming_all(bombs):
    space = read_embeddings(bombs / "rows.npy", keys={"7", "03", "x", "2", "99999999", "9" * 30})
    assert list(space.keys) == ["2", "7"]
    assert list(read_embeddings(bombs / "rows.npy", keys={"7", "2"}, limit=1).keys) == ["2"]


def test_no_row_without_numbers_is_counted(tmp_path):
    """10**12 rows of no dimension take no room in a file."""
    with (tmp_path / "x.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 0)})
        stream.write(b"more")
    header = json.dumps({"vectors": {"dtype": "F32", "shape": [10**12, 0], "data_offsets": [0, 0]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name, kind, shape in (("keys", "<U0", (10**12,)), ("vectors", "<f4", (10**12, 0))):
            with archive.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    for name in ("x.npy", "x.safetensors"):
        with pytest.raises(InputError, match="the space is empty"):
            read_embeddings(tmp_path / name)
    with pytest.raises(InputError, match="`keys` must be a list of strings"):
        read_embeddings(tmp_path / "x.npz")


def test_one_long_key_does_not_make_a_large_archive(tmp_path):
    keys = ["k" * 100_000, "", "日本\0", *(f"r{row}" for row in range(3_000))]
    space = Embeddings(keys[:2] + keys[3:], np.ones((len(keys) - 1, 2), dtype=np.float32))
    write_embeddings(space, tmp_path / "x.npz")
    assert (tmp_path / "x.npz").stat().st_size < 10**6
    assert list(read_embeddings(tmp_path / "x.npz").keys) == list(space.keys)
    assert list(read_embeddings(tmp_path / "x.npz", keys={"r7", ""}).keys) == ["", "r7"]


def test_archives_of_ordinary_keys_keep_their_layout(tmp_path):
    write_embeddings(Embeddings(["a", "日本"], np.ones((2, 2))), tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as arrays:
        assert set(arrays.files) == {"keys", "vectors"}
        assert arrays["keys"].tolist() == ["a", "日本"]


@pytest.mark.parametrize("ends", [[1, 3], [2, 1, 2], [-1, 2], [1, 2.5], []])
def test_wrong_ends_of_keys_are_refused(tmp_path, ends):
    stored = {"key_bytes": np.frombuffer(b"ab", dtype=np.uint8), "key_ends": np.asarray(ends)}
    np.savez(tmp_path / "x.npz", vectors=np.ones((len(ends), 2)), **stored)
    with pytest.raises(InputError, match="`key_ends` must say"):
        read_embeddings(tmp_path / "x.npz")


@pytest.mark.parametrize("text", [b"a\r\nb\r\nc\r\n", b"a\nb\nc", b"a\r\nb\r\nc", b"a\nb\nc\n"])
def test_keys_are_the_same_with_any_line_ends(tmp_path, text):
    np.save(tmp_path / "x.npy", np.arange(1, 7, dtype=np.float32).reshape(3, 2))
    key_file(tmp_path / "x.npy").write_bytes(text)
    assert list(read_embeddings(tmp_path / "x.npy").keys) == ["a", "b", "c"]
    some = read_embeddings(tmp_path / "x.npy", keys={"c", "a"})
    assert list(some.keys) == ["a", "c"]
    np.testing.assert_array_equal(some.vectors, [[1, 2], [5, 6]])


@pytest.fixture(params=["pipe", "device"])
def endless(request, tmp_path):
    """A function that puts something without an end in the place of a file."""

    def put(name: str) -> Path:
        path = tmp_path / name
        if request.param == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        return path

    return put


@linux
def test_what_is_no_file_is_refused_as_any_input(endless, tmp_path, capsys):
    space = Embeddings(["a", "b"], np.eye(2, dtype=np.float32))
    no_file = "is a pipe, socket or device, not a file; write what it gives to a file first"
    for suffix in (".vec", ".bin.gz", ".npz", ".npy", ".safetensors", ".parquet"):
        with pytest.raises(InputError, match=no_file):
            read_embeddings(endless(f"space{suffix}"))
    write_embeddings(space, tmp_path / "x.npy")
    key_file(tmp_path / "x.npy").unlink()
    endless("x.keys.txt")
    with pytest.raises(InputError, match=rf"x\.keys\.txt: {no_file}"):
        read_embeddings(tmp_path / "x.npy")
    for read in (lambda path: read_pairs(path, space, space), lambda path: read_labels(path, space), read_key_list):
        with pytest.raises(InputError, match=no_file):
            read(endless(f"{id(read)}.tsv"))
    (tmp_path / "folder").mkdir()
    endless("folder/part.parquet")
    with pytest.raises(InputError, match=no_file):
        read_embeddings(f"parquet:{tmp_path}/folder")
    with pytest.raises(InputError, match=no_file):  # a file of a run folder
        read_arrays(endless("map.safetensors"), {})
    with pytest.raises(InputError, match="SHA256SUMS: cannot be read"):
        changed_files(endless("SHA256SUMS").parent)
    with pytest.raises(InputError, match=no_file):
        read_texts(endless("texts.txt"), field="text")
    assert main(["info", str(tmp_path / "x.npy")]) == 2
    assert no_file in capsys.readouterr().err


@linux
def test_the_name_of_a_file_can_be_wrong_in_any_way(tmp_path):
    for name in ("a\0b.vec", "x" * 300 + ".vec", "absent/x.vec"):
        with pytest.raises(InputError, match="no such file|cannot be read"):
            read_embeddings(tmp_path / name)


SHRINKING = """
import os, sys
from kedge import read_embeddings
from kedge.cli import main as command_line
path, used_by = sys.argv[1:]
def run(*_):
    space = read_embeddings(path)
    os.truncate(path, 4096)
    return int(space.vectors.sum())
if used_by == "library":
    run()
sys.argv[1:] = ["stores"]
command_line._run = run
command_line.entry_point()
"""


@linux
@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_mapped_file_that_shrinks_is_named_in_one_line(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write_embeddings(Embeddings([str(row) for row in range(9_000)], np.ones((9_000, 16))), path)
    command = [sys.executable, "-c", SHRINKING, str(path), "command"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"kedge: error: {path}: became shorter while it was being used; write files under another name and rename "
        "them, and run this again"
    ]


@linux
def test_the_library_leaves_the_signal_to_its_user(tmp_path):
    """What the documentation says: outside the command line, the process ends as the system has it."""
    np.save(tmp_path / "x.npy", np.ones((9_000, 16), dtype=np.float32))
    command = [sys.executable, "-c", SHRINKING, str(tmp_path / "x.npy"), "library"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == -signal.SIGBUS

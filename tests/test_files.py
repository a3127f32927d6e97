"""Every format, there and back, and every way a file can be wrong."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from kedge import Embeddings, InputError, read_embeddings, write_embeddings

TEXT = (".vec", ".txt", ".vec.gz", ".txt.gz")
BINARY = (".bin", ".bin.gz")
OTHERS = (".npz", ".npy", ".safetensors", ".parquet")
ALL = TEXT + BINARY + OTHERS


@pytest.fixture
def space():
    vectors = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    return Embeddings(["the", "ünïcode", "日本", "😀", '"quoted"', "a_b", "<b>"], vectors)


@pytest.mark.parametrize("suffix", ALL)
def test_round_trip_is_exact(space, tmp_path, suffix):
    path = tmp_path / f"space{suffix}"
    write_embeddings(space, path)
    again = read_embeddings(path)
    assert list(again.keys) == list(space.keys)
    np.testing.assert_array_equal(again.vectors, space.vectors)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".kedge")] == []


@pytest.mark.parametrize("suffix", ALL)
def test_limit_and_keys(space, tmp_path, suffix):
    path = tmp_path / f"space{suffix}"
    write_embeddings(space, path)
    assert list(read_embeddings(path, limit=3).keys) == ["the", "ünïcode", "日本"]
    assert len(read_embeddings(path, limit=100)) == 7
    some = read_embeddings(path, keys={"a_b", "the", "absent"})
    assert list(some.keys) == ["the", "a_b"]
    np.testing.assert_array_equal(some.vectors, space.vectors[[0, 5]])
    assert list(read_embeddings(path, keys={"a_b", "the"}, limit=1).keys) == ["the"]
    with pytest.raises(InputError, match="none of the 1 wanted keys"):
        read_embeddings(path, keys={"absent"})
    with pytest.raises(InputError, match="limit must be at least 1"):
        read_embeddings(path, limit=0)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_key_survives(tmp_path, suffix, data):
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    if suffix == ".npz":  # NumPy strings drop trailing NULs; the writer refuses them
        text = text.filter(lambda key: not key.endswith("\0"))
    keys = data.draw(st.lists(text, min_size=1, max_size=6, unique=True))
    write_embeddings(Embeddings(keys, np.ones((len(keys), 2))), tmp_path / f"keys{suffix}")
    assert list(read_embeddings(tmp_path / f"keys{suffix}").keys) == keys


@pytest.mark.parametrize("suffix", [".vec", ".bin", ".npy"])
@pytest.mark.parametrize("key", ["", "line\nbreak"])
def test_keys_a_format_cannot_store_are_refused(tmp_path, suffix, key):
    with pytest.raises(InputError, match="cannot store"):
        write_embeddings(Embeddings([key], np.ones((1, 2))), tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_glove_text_has_no_header(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 0.1 0.2\nof 0.3 0.4\n")
    space = read_embeddings(path)
    assert list(space.keys) == ["the", "of"]
    np.testing.assert_allclose(space.vectors, [[0.1, 0.2], [0.3, 0.4]], rtol=1e-6)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path):
    (tmp_path / "x.vec").write_bytes(b"\xef\xbb\xbf1 2\na 1 2\n")
    assert list(read_embeddings(tmp_path / "x.vec").keys) == ["a"]


def test_key_files_keep_odd_characters_and_take_windows_line_ends(tmp_path):
    keys = ["a\u2028b", "c\x0bd", " "]
    write_embeddings(Embeddings(keys, np.ones((3, 2))), tmp_path / "x.npy")
    assert list(read_embeddings(tmp_path / "x.npy").keys) == keys
    (tmp_path / "x.keys.txt").write_bytes(b"a\r\nb\r\nc\r\n")
    assert list(read_embeddings(tmp_path / "x.npy").keys) == ["a", "b", "c"]


def test_fasttext_lines_end_with_a_space_and_keys_may_hold_spaces(tmp_path):
    path = tmp_path / "wiki.vec"
    path.write_text("2 2\nnew york 1 2 \nat 3 4 \n")
    assert list(read_embeddings(path).keys) == ["new york", "at"]


def test_word2vec_binary_with_and_without_line_ends(tmp_path):
    vectors = np.array([[1, 2], [3, 4]], dtype="<f4")
    path = tmp_path / "x.bin"
    path.write_bytes(b"2 2\na " + vectors[0].tobytes() + b"b " + vectors[1].tobytes())
    assert read_embeddings(path).vectors.tolist() == [[1, 2], [3, 4]]


def test_npy_stays_memory_mapped(tmp_path):
    write_embeddings(Embeddings(["a", "b"], np.eye(2, dtype=np.float32)), tmp_path / "x.npy")
    assert isinstance(read_embeddings(tmp_path / "x.npy").vectors, np.memmap)
    assert isinstance(read_embeddings(tmp_path / "x.npy", limit=1).vectors, np.memmap)


def test_safetensors_stay_memory_mapped(tmp_path):
    """Half a gigabyte can be opened, and a row of it used, without reading the rest."""
    program = (
        "import resource, sys; from kedge.spaces.formats import safetensors; "
        "from kedge.spaces.selection import Selection; from pathlib import Path; "
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak(); "
        "keys, vectors = safetensors.read(Path(sys.argv[1]), Selection()); vectors[7].sum(); "
        "print((peak() - before) // 1024)"
    )
    save_file({"vectors": torch.ones(1000, 131072)}, tmp_path / "x.safetensors")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "x.safetensors")], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 100


def test_npy_without_key_file_counts_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert list(read_embeddings(tmp_path / "x.npy").keys) == ["0", "1", "2"]
    (tmp_path / "x.keys.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"x.keys.txt: .*3 rows of x.npy, got 2 keys"):
        read_embeddings(tmp_path / "x.npy")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8])
def test_safetensors_of_other_tools(tmp_path, dtype):
    save_file({"embedding.weight": torch.ones(3, 2, dtype=dtype)}, tmp_path / "x.safetensors")
    space = read_embeddings(tmp_path / "x.safetensors")
    assert space.vectors.tolist() == [[1, 1]] * 3
    assert list(space.keys) == ["0", "1", "2"]


def test_float16_npz_and_byte_keys(tmp_path):
    np.savez(tmp_path / "x.npz", keys=np.array([b"a", b"b"]), vectors=np.ones((2, 2), dtype=np.float16))
    space = read_embeddings(tmp_path / "x.npz")
    assert list(space.keys) == ["a", "b"]
    assert space.vectors.dtype == np.float32


def test_parquet_names_its_extra_when_pyarrow_is_missing(tmp_path, monkeypatch):
    from kedge.errors import MissingExtraError

    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"kedge\[parquet\]"):
        read_embeddings(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.vec", b"3 2\na 1 2\nb 3 4\n", "header declares 3 rows, the file holds 2"),
        ("x.vec", b"1 2\na 1 2\nb 3 4\n", "header declares 1 rows, the file holds 2"),
        ("x.vec", b"2 2\na 1 2\nb 3\n", r"line 3: expected a key and 2 numbers, got 1"),
        ("x.txt", b"a 1 2\nb 3\n", r"line 2: expected a key and 2 numbers"),
        ("x.txt", b"a 1 2\nb 3 x\n", r"line 2: expected 2 numbers after the key 'b'"),
        ("x.txt", b"a 1 2\n\nb 3 4\n", r"line 2: empty line"),
        ("x.txt", b"a 1 2\n\xff\xfe 3 4\n", r"line 2: the key is not valid UTF-8"),
        ("x.txt", b"nothing\n", r"line 1: expected a key and numbers"),
        ("x.txt", b"a 1 nan\n", "key 'a' .row 0. has NaN"),
        ("x.txt", b"a 0 0\n", "key 'a' .row 0. is a zero vector"),
        ("x.txt", b"a 1 2\na 3 4\n", "duplicate key 'a'"),
        ("x.vec", b"2 2\na 1 2\nb 2 3 4\n", "line 3: expected a key and 2 numbers, got more"),
        ("x.vec", b"-2 2\na 1 2\nb 2 3\n", "line 1: looks like a header"),
        ("x.vec", b"9" * 5000 + b" 2\na 1 2\n", "line 1: looks like a header"),
        ("x.vec", b"1 2\na 1e39 2\n", "key 'a' .row 0. has NaN or infinite"),
        ("x.vec", b"", "file is empty"),
        ("x.vec", b"5 3\n", "header declares 5 rows, the file holds 0"),
        ("x.vec.gz", gzip.compress(b"1 2\na 1 2\n", mtime=0)[:-9], "not a readable .gz file"),
        ("x.vec.gz", b"1 2\na 1 2\n", "not a readable .gz file"),
        ("x.bin", b"2 2\na " + bytes(8) + b"b " + bytes(3), "ends inside row 1"),
        ("x.bin", b"2 2\na " + struct.pack("<2f", 1, 2), "ends after 1 of the 2 rows"),
        ("x.bin", b"1 1\na " + struct.pack("<f", 1) + b"junk", "more than the 1 rows"),
        ("x.bin", b"hello world\n", "not a word2vec binary"),
        ("x.bin", b"999999999999999 300\na " + bytes(10), "truncated"),
        ("x.bin", b"1 99999999999\n", "which is impossible"),
        ("x.bin", b"1 2\n" + b"k" * 20_000, "longer than 10000 bytes"),
        ("x.npz", b"not a zip", "not a readable .npz"),
        ("x.npy", b"not an array", "not a readable .npy"),
        ("x.npy", b"\x93NUMPY\x01\x00", "not a readable .npy"),
        ("x.safetensors", b"short", "not a readable .safetensors"),
        ("x.safetensors", struct.pack("<Q", 2**60) + b"{}", "not a readable .safetensors"),
        ("x.safetensors", struct.pack("<Q", 2) + b"{}", "a matrix named `vectors` is needed"),
        ("x.parquet", b"not parquet", "not a readable .parquet"),
        ("x.foo", b"1", "suffix '.foo' is not that of a known format"),
        ("x", b"1", "suffix '' is not that of a known format"),
    ],
)
def test_bad_files_get_a_clear_error(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_embeddings(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_archives_get_a_clear_error(tmp_path):
    np.savez(tmp_path / "pickle.npz", keys=np.array(["a", None], dtype=object), vectors=np.ones((2, 2)))
    with pytest.raises(InputError, match="`keys` holds Python objects"):
        read_embeddings(tmp_path / "pickle.npz")
    np.savez(tmp_path / "names.npz", words=np.array(["a"]), vectors=np.ones((1, 2)))
    with pytest.raises(InputError, match="`keys` and `vectors` are needed"):
        read_embeddings(tmp_path / "names.npz")
    np.savez(tmp_path / "count.npz", keys=np.array(["a"]), vectors=np.ones((2, 2)))
    with pytest.raises(InputError, match="1 keys for 2 vectors"):
        read_embeddings(tmp_path / "count.npz")
    np.savez(tmp_path / "numbers.npz", keys=np.array([1.5, 2.5]), vectors=np.ones((2, 2)))
    with pytest.raises(InputError, match="list of strings"):
        read_embeddings(tmp_path / "numbers.npz")
    np.save(tmp_path / "flat.npy", np.ones(4))
    with pytest.raises(InputError, match="a matrix"):
        read_embeddings(tmp_path / "flat.npy")
    truncated = tmp_path / "cut.npy"
    np.save(truncated, np.ones((100, 10)))
    truncated.write_bytes(truncated.read_bytes()[:500])
    with pytest.raises(InputError, match="not a readable .npy"):
        read_embeddings(truncated)
    encoded = torch.frombuffer(bytearray(json.dumps(["a"]).encode()), dtype=torch.uint8)
    save_file({"vectors": torch.ones(2, 2), "keys": encoded}, tmp_path / "keys.safetensors")
    with pytest.raises(InputError, match="JSON list of 2 strings"):
        read_embeddings(tmp_path / "keys.safetensors")


def test_ragged_parquet_names_the_row(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"key": ["a", "b"], "vector": [[1.0, 2.0], [1.0]]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="row 1: expected 2 numbers, got 1"):
        read_embeddings(tmp_path / "x.parquet")
    pq.write_table(pa.table({"key": ["a"], "n": [1.0]}), tmp_path / "y.parquet")
    with pytest.raises(InputError, match="no column holds lists of numbers"):
        read_embeddings(tmp_path / "y.parquet")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_embeddings(tmp_path / "absent.vec")
    (tmp_path / "folder.vec").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_embeddings(tmp_path / "folder.vec")
    with pytest.raises(InputError, match="does not exist"):
        write_embeddings(Embeddings(["a"], np.ones((1, 2))), tmp_path / "absent" / "x.npz")


def test_too_large_for_memory_is_said_before_reading(tmp_path, monkeypatch):
    from kedge.spaces import memory

    np.savez(tmp_path / "x.npz", keys=np.array(["a"]), vectors=np.ones((1, 500)))
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(InputError, match="GB of memory"):
        read_embeddings(tmp_path / "x.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.vec"
    write_embeddings(Embeddings(["old"], np.ones((1, 2))), path)
    with pytest.raises(InputError):
        write_embeddings(Embeddings(["bad key"], np.ones((1, 2))), path)
    assert list(read_embeddings(path).keys) == ["old"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.vec"]

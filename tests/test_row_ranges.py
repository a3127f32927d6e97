"""Rows read a range at a time: bad files are refused as `read_embeddings` does, and copies are checked."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kedge import Embeddings, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.errors import InputError
from kedge.spaces import row_ranges
from kedge.spaces.row_ranges import open_ranges
from kedge.spaces.stores.address import Address

pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'kedge[parquet]'")


def space_of(seed: int) -> Embeddings:
    vectors = np.random.default_rng(seed).standard_normal((30, 4)).astype(np.float32)
    return Embeddings([f"k{row}" for row in range(30)], vectors)


# -- matrices


def ones(path: Path) -> None:
    np.save(path, np.ones((3, 2), dtype=np.float32))


def cut_to(size: int):
    def damage(path: Path) -> None:
        ones(path)
        path.write_bytes(path.read_bytes()[:size])

    return damage


def holding(array: np.ndarray):
    return lambda path: np.save(path, array, allow_pickle=True)


def with_keys(keys: bytes):
    def damage(path: Path) -> None:
        ones(path)
        path.with_suffix(".keys.txt").write_bytes(keys)

    return damage


BAD = {
    "header": cut_to(100),
    "end": cut_to(140),
    "nothing": cut_to(0),
    "text": holding(np.array([["a", "b"]])),
    "objects": holding(np.array([["a", None]], dtype=object)),
    "complex": holding(np.ones((3, 2), dtype=complex)),
    "list": holding(np.ones(3)),
    "empty": holding(np.ones((0, 3))),
    "encoding": with_keys(b"a\n\xff\nc\n"),
    "few keys": with_keys(b"a\nb\n"),
    "folder": lambda path: (ones(path), path.with_suffix(".keys.txt").mkdir()),
}


@pytest.mark.parametrize("damage", BAD)
def test_a_bad_matrix_is_refused_as_when_it_is_read_at_once(tmp_path, damage):
    path = tmp_path / "x.npy"
    BAD[damage](path)
    with pytest.raises(InputError) as usual:
        read_embeddings(path)
    with pytest.raises(InputError) as found:
        open_ranges(path, tmp_path, "x")
    assert str(found.value) == str(usual.value)


def test_numbers_too_large_are_named(tmp_path):
    np.save(tmp_path / "x.npy", np.full((3, 2), 1e300))
    with pytest.raises(InputError, match=r"key '0' \(row 0\) has NaN or infinite values"):
        list(open_ranges(tmp_path / "x.npy", tmp_path, "x").blocks((0, 3), 3))


@pytest.mark.parametrize("keys", [
    b"a\nb\nc\n", b"a\nb\nc", b"a\r\nb\r\nc\r\n", b"a\r\nb\r\nc", b"a\r\nb\nc\r\n", b"a\r\r\nb\r\nc\r", b"a\rx\nb\r\nc",
])  # fmt: skip
def test_keys_are_those_of_reading_all_at_once(tmp_path, monkeypatch, keys):
    monkeypatch.setattr(row_ranges, "_LINES", 2)
    with_keys(keys)(tmp_path / "x.npy")
    expected = list(read_embeddings(tmp_path / "x.npy").keys)
    rows = open_ranges(tmp_path / "x.npy", tmp_path, "x")
    assert rows.keys((0, 3)).to_pylist() == expected
    assert rows.keys((2, 3)).to_pylist() == expected[2:]


@pytest.mark.parametrize("damage", ["header", "text", "encoding"])
def test_commands_refuse_a_bad_matrix_in_a_line(run_files, tmp_path, capsys, damage):
    path = tmp_path / "x.npy"
    BAD[damage](path)
    for arguments in (
        ["match", run_files[0], str(path), run_files[2], "-o", str(tmp_path / "out")],
        ["translate", run_files[0], str(path), "-o", f"parquet:{tmp_path / 'out'}", "--engine", "local"],
    ):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"kedge: error: {tmp_path}/x.")
        assert said.count("\n") == 1
    assert not list(tmp_path.glob("out*"))


# -- Parquet


@pytest.mark.parametrize("place", ["whole", "middle"])
def test_a_damaged_parquet_file_is_refused_in_a_line(tmp_path, place):
    path = tmp_path / "x.parquet"
    write_embeddings(space_of(0), path)
    content = bytearray(path.read_bytes())
    content[20:60] = b"\xff" * 40
    path.write_bytes(bytes(content) if place == "middle" else b"PAR1 and no more")
    with pytest.raises(
        InputError, match=r"x.parquet: not a readable .parquet file \(.*\); truncated or of another format"
    ):
        open_ranges(path, tmp_path, "x").keys((0, 3))


class CountingFile:
    """A Parquet file that counts the batches taken from it."""

    taken = 0

    def __init__(self, file) -> None:
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def iter_batches(self, *arguments, **options):
        for batch in self.file.iter_batches(*arguments, **options):
            type(self).taken += 1
            yield batch


def test_a_row_group_is_read_no_further_than_its_range(tmp_path, monkeypatch):
    write_embeddings(space_of(0), tmp_path / "x.parquet")
    rows = open_ranges(tmp_path / "x.parquet", tmp_path, "x")
    opened = []

    def counting(path):
        opened.append(path)
        return CountingFile(row_ranges_open(path))

    row_ranges_open = row_ranges.open_parquet
    monkeypatch.setattr(row_ranges, "open_parquet", counting)
    monkeypatch.setattr(CountingFile, "taken", 0)
    assert [begin for begin, _ in rows.blocks((3, 8), 4)] == [3, 4]
    assert CountingFile.taken == 2


def test_a_file_is_opened_once_per_range(tmp_path, monkeypatch):
    write_embeddings(space_of(0), tmp_path / "a.parquet")
    pq.write_table(pq.read_table(tmp_path / "a.parquet"), tmp_path / "x.parquet", row_group_size=5)
    rows = open_ranges(tmp_path / "x.parquet", tmp_path, "x")
    opened = []
    plain = row_ranges.open_parquet
    monkeypatch.setattr(row_ranges, "open_parquet", lambda path: (opened.append(path), plain(path))[1])
    assert rows.keys((7, 26)).to_pylist() == [f"k{row}" for row in range(7, 26)]
    assert len(opened) == 1


# -- copies


def test_a_copy_is_used_for_the_same_file_only(tmp_path):
    for name, seed in (("x.npz", 0), ("other.npz", 1)):
        write_embeddings(space_of(seed), tmp_path / name)
    first = open_ranges(tmp_path / "x.npz", tmp_path, "x")
    assert open_ranges(tmp_path / "x.npz", tmp_path, "x").identity() == first.identity()
    with pytest.raises(InputError, match=r"other.npz: the job in \S+ was begun with \S+/x.npz in its place"):
        open_ranges(tmp_path / "other.npz", tmp_path, "x")
    os.utime(tmp_path / "x.npz", ns=(1, 1))
    with pytest.raises(InputError, match=r"x.npz: has changed since the job in .* was begun; delete that folder"):
        open_ranges(tmp_path / "x.npz", tmp_path, "x")
    (tmp_path / "x.npz").unlink()
    with pytest.raises(InputError, match=r"x.npz: has changed since"):
        open_ranges(tmp_path / "x.npz", tmp_path, "x")


def test_a_copy_of_an_earlier_version_is_refused(tmp_path):
    write_embeddings(space_of(0), tmp_path / "a.npz")
    open_ranges(tmp_path / "a.npz", tmp_path, "x")
    table = pq.read_table(tmp_path / "x.parquet")
    pq.write_table(table.replace_schema_metadata(None), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="was begun by an earlier version of kedge"):
        open_ranges(tmp_path / "a.npz", tmp_path, "x")


def test_a_copy_is_used_for_the_same_store_only(tmp_path, monkeypatch):
    pytest.importorskip("faiss", reason="needs faiss: pip install 'kedge[faiss]'")
    for name, seed in (("x", 0), ("other", 1)):
        (tmp_path / name).mkdir()
        write_embeddings(space_of(seed), f"faiss:{tmp_path / name}/s.index")
    monkeypatch.chdir(tmp_path / "x")
    open_ranges(Address.parse("faiss:s.index"), tmp_path, "x")
    open_ranges(Address.parse(f"faiss:{tmp_path}/x/s.index"), tmp_path, "x")
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(InputError, match=r"faiss:s.index: the job in \S+ was begun with faiss:\S+/x/s.index in its"):
        open_ranges(Address.parse("faiss:s.index"), tmp_path, "x")


def test_a_password_is_not_kept_in_a_copy():
    address = Address.parse("pgvector:postgresql://me:secret@host/db#t.v")
    (origin,) = row_ranges._origin(address)
    assert "secret" not in origin
    assert origin.startswith("pgvector:postgresql://me:")

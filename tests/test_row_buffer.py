"""Rows that wait beside a file until all are there: readers change nothing, and nobody is misled by what lies there."""

from __future__ import annotations

import json
import os
import re
import sys

import numpy as np
import pytest

import kedge
from kedge import Embeddings, InputError, write_embeddings
from kedge.spaces.stores import NOTE, Batch, Description, open_store
from kedge.spaces.stores import buffer as row_buffer
from kedge.spaces.stores.buffer import RowBuffer

DIM = 4


def rows(begin: int, end: int) -> Batch:
    vectors = np.arange(begin * DIM, end * DIM, dtype=np.float32).reshape(-1, DIM) + 1
    return Batch([f"i{row}" for row in range(begin, end)], vectors, [{}] * (end - begin))


def begun(path, count: int = 3) -> RowBuffer:
    """The buffer of a file whose writer was killed after some rows."""
    buffer = RowBuffer(path)
    buffer.create(Description(9, DIM, "cosine", {NOTE: "{}"}))
    buffer.append(rows(0, count))
    return buffer


def file_store_refusal(path) -> str:
    """The one line that a store of this file answers with."""
    with pytest.raises(InputError) as refused, open_store(path) as store:
        store.describe()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_reader_in_the_middle_of_a_write_changes_nothing(tmp_path, monkeypatch):
    """Vectors are written before their ids: who looks in between sees neither, and the ids still find their vectors."""
    path = tmp_path / "new.npz"
    opened, seen = row_buffer._opened, []

    def watched(file, mode):
        if mode == "r+b" and file.name == "ids.jsonl":
            with open_store(path) as reader:
                seen.append((reader.exists(), reader.describe().rows, reader.present(["i0", "i3"])))
        return opened(file, mode)

    with open_store(path) as store:
        store.create(Description(6, DIM))
        store.write(rows(0, 3))
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(row_buffer, "_opened", watched)
            store.write(rows(3, 5))
        store.write(rows(5, 6))
        store.finish()
    assert seen == [(True, 3, {"i0"})]
    with open_store(path) as store:
        batch = next(store.read(10))
    assert batch.ids == rows(0, 6).ids
    np.testing.assert_array_equal(batch.vectors, rows(0, 6).vectors)


@pytest.mark.parametrize("half", ["vectors.f32", "ids.jsonl"])
def test_what_a_kill_left_half_written_is_replaced_by_the_next_writer_only(tmp_path, half):
    path = tmp_path / "new.npz"
    file = begun(path).folder / half
    with file.open("ab") as stream:
        stream.write(b'"i' * 50)
    before = file.read_bytes()
    with open_store(path) as store:
        assert store.describe().rows == 3
        assert store.fetch(["i2", "i3"]).ids == ["i2"]
        assert file.read_bytes() == before
        store.write(rows(2, 4))
        assert [path.stat().st_size for path in (file.with_name("vectors.f32"), file.with_name("ids.jsonl"))] == [
            64,
            20,
        ]
        store.write(rows(4, 6))
        store.finish()
        np.testing.assert_array_equal(next(store.read(10)).vectors, rows(0, 6).vectors)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_rows_that_another_added_meanwhile_are_known(tmp_path):
    """Whoever waited for the lock may have looked before."""
    path = tmp_path / "new.npz"
    first = begun(path)
    second = RowBuffer(path)
    assert len(second.places()) == 3
    first.append(rows(3, 5))
    second.append(rows(4, 6))
    assert list(second.places()) == rows(0, 6).ids
    np.testing.assert_array_equal(second.vectors(), rows(0, 6).vectors)


def test_an_unfinished_file_is_no_source(tmp_path):
    path = tmp_path / "new.npz"
    folder = begun(path).folder
    with open_store(path) as store:
        for read in (store.read, store.ids):
            with pytest.raises(InputError, match=r"is not complete, its rows wait in .*--resume\), or delete"):
                next(read(10))
        assert str(folder) in file_of(store.read)


def file_of(read) -> str:
    with pytest.raises(InputError) as refused:
        next(read(10))
    return str(refused.value)


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
@pytest.mark.parametrize("about", [False, True], ids=["planted", "with a description"])
def test_a_link_in_the_buffer_is_not_written_through(tmp_path, about):
    """As an archive may bring it, with or without what looks like an interrupted migration."""
    victim = tmp_path / "bashrc"
    victim.write_text("alias ls=ls\n")
    place = tmp_path / "repo"
    place.mkdir()
    folder = begun(place / "new.npz").folder
    (folder / "vectors.f32").unlink()
    (folder / "vectors.f32").symlink_to(victim)
    if not about:
        (folder / "about.json").unlink()
    with open_store(place / "new.npz") as store:
        assert store.exists() == about
        with pytest.raises(InputError, match=r"\.kedge-rows-new\.npz.* holds something already; move it elsewhere"):
            store.create(Description(3, DIM))
        if about:
            for change in (lambda: store.write(rows(3, 4)), store.describe, store.finish):
                with pytest.raises(InputError, match=r"vectors\.f32: cannot be used .*\(it is a link\); delete the fo"):
                    change()
    assert victim.read_text() == "alias ls=ls\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_buffer_that_is_a_link_is_none(tmp_path):
    private = tmp_path / "private"
    begun(tmp_path / "other.npz").folder.rename(private)
    (tmp_path / ".kedge-rows-new.npz").symlink_to(private)
    with open_store(tmp_path / "new.npz") as store:
        assert not store.exists()
        with pytest.raises(InputError, match="holds something already"):
            store.create(Description(3, DIM))
        store.abandon()
    assert len(list(private.iterdir())) == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_in_the_buffer_keeps_nobody_waiting(tmp_path):
    folder = begun(tmp_path / "new.npz").folder
    (folder / "about.json").unlink()
    os.mkfifo(folder / "about.json")
    assert "it is not an ordinary file" in file_store_refusal(tmp_path / "new.npz")


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ("garbage", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ("{}", "dim must be"),
        ('{"dim": true}', "dim must be"),
        ('{"dim": 0}', "dim must be"),
        (f'{{"dim": 1{"0" * 30}}}', "dim must be"),
        ('{"dim": 4, "metric": "far"}', "metric must be"),
        ('{"dim": 4, "metric": []}', "metric must be"),
        ('{"dim": 4, "id_type": {}}', "id_type must be"),
        ('{"dim": 4, "metadata": {"kedge": 5}}', "metadata must be"),
        ('{"dim": 4, "metadata": []}', "metadata must be"),
    ],
)
def test_a_damaged_description_is_refused_in_a_line(tmp_path, about, why):
    folder = begun(tmp_path / "new.npz").folder
    (folder / "about.json").write_text(about)
    told = file_store_refusal(tmp_path / "new.npz")
    assert told.startswith(f"{folder / 'about.json'}: cannot be used to go on")
    assert why in told
    assert told.endswith("delete the folder " + str(folder) + ", and write from the beginning")


@pytest.mark.parametrize("line", ["garbage", "[]", "1.5", "true", "null", '"\\ud800"', '"i0"', f"{2**63}"])
def test_a_damaged_list_of_ids_is_refused_in_a_line(tmp_path, line):
    folder = begun(tmp_path / "new.npz").folder
    (folder / "ids.jsonl").write_text(f'"i0"\n{line}\n"i2"\n')
    assert f"{folder / 'ids.jsonl'}: cannot be used" in file_store_refusal(tmp_path / "new.npz")
    (folder / "ids.jsonl").unlink()
    assert "No such file" in file_store_refusal(tmp_path / "new.npz")


@pytest.mark.parametrize(
    "text", [b"garbage", b"[1, 2]", b"null", b'{"kedge": 5}', b'{"kedge": "\\ud800"}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_note_beside_a_file_is_refused_in_a_line(tmp_path, text):
    path, note = tmp_path / "x.npz", tmp_path / "x.npz.kedge.json"
    write_embeddings(Embeddings(["a"], np.ones((1, DIM))), path)
    note.write_bytes(text)
    assert re.match(
        re.escape(str(note)) + ": must be a JSON object of texts, .* or delete it", file_store_refusal(path)
    )


def test_a_file_that_is_not_there_says_so(tmp_path):
    assert file_store_refusal(tmp_path / "x.npz") == f"{tmp_path / 'x.npz'}: no such file"


def test_a_note_about_a_file_that_was_replaced_does_not_count(tmp_path):
    path = tmp_path / "new.npz"
    with open_store(path) as store:
        store.create(Description(3, DIM, None, {NOTE: "{}"}))
        store.write(rows(0, 3))
        store.finish()
        assert store.describe().metadata == {NOTE: "{}"}
    with open_store(path) as store:
        assert store.describe().metadata == {NOTE: "{}"}
    write_embeddings(Embeddings(["i0", "i1", "i2"], -rows(0, 3).vectors), path)
    with open_store(path) as store:
        assert store.describe().metadata == {}
    note = tmp_path / "new.npz.kedge.json"
    note.write_text(json.dumps({NOTE: "of an earlier version"}))  # which did not say what file it is about
    with open_store(path) as store:
        assert store.describe().metadata == {NOTE: "of an earlier version"}


def test_a_file_without_rows_is_finished(tmp_path):
    with open_store(tmp_path / "new.npz") as store:
        store.create(Description(0, DIM))
        assert store.describe().rows == 0
        assert store.fetch(["a"]).vectors.shape == (0, DIM)


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ("garbage", "is not as kedge wrote it"),
        ("[1, 2]", "is not as kedge wrote it"),
        ('{"dim": 1e308, "metric": null, "metadata": {}, "id_type": "str"}', "is not as kedge wrote it"),
        ('{"dim": 4, "metric": null, "metadata": [], "id_type": "str"}', "is not as kedge wrote it"),
        ('{"dim": 2147483647, "metric": null, "metadata": {}, "id_type": "str", "fields": null}', "vectors of 4"),
    ],
)
def test_a_damaged_description_of_a_folder_is_refused_in_a_line(tmp_path, about, why):
    """It must not decide how much memory is taken."""
    place = f"parquet:{tmp_path / 'folder'}"
    write_embeddings(Embeddings(["a", "b"], np.ones((2, DIM), dtype=np.float32), "x"), place)
    (tmp_path / "folder" / "_kedge.json").write_text(about)
    with pytest.raises(InputError, match=f"_kedge.json: .*{why}"):
        kedge.read_embeddings(place)

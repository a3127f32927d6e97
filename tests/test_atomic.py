import errno
import itertools
import os
import pickle
import re
import signal
import sys
import warnings
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np
import pytest
from safetensors import SafetensorError

from kedge import Embeddings, InputError, write_embeddings
from kedge.errors import OutputError
from kedge.spaces.writing import staging
from kedge.spaces.writing.atomic import atomic_folder, atomic_path, delete_folder


def test_file_appears_only_on_success(tmp_path):
    target = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with atomic_path(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"


def test_folder_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as temporary:
        (temporary / "new").write_text("half")
        raise KeyboardInterrupt
    assert [path.name for path in target.iterdir()] == ["old"]
    with atomic_folder(target) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(InputError, match="does not exist"), atomic_folder(tmp_path / "no" / "such"):
        pass


def test_an_interrupt_between_two_renames_restores_the_old_folder(tmp_path, monkeypatch):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("old")
    rename, calls = Path.rename, []

    def interrupted(self, to):
        calls.append(to)
        rename(self, to)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(staging, "_exchange", lambda one, other: False)  # as where the system cannot
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def write_folder(place: Path, what: str) -> None:
    with atomic_folder(place / "run") as temporary:
        for name in ("one", "two"):
            (temporary / name).write_text(what)


def write_file(place: Path, what: str) -> None:
    with atomic_path(place / "out.txt") as temporary:
        temporary.write_text(what)


def write_matrix(place: Path, what: str) -> None:
    """The number is how many letters the key has, so that each of the two files tells when it was written."""
    write_embeddings(Embeddings([what], np.full((1, 1), len(what))), place / "out.npy")


def found_in(place: Path) -> dict[str, str]:
    """What a reader finds, by name: the text of files, of a matrix its number."""
    files = sorted(path for path in place.rglob("*") if path.is_file() and ".kedge-" not in str(path))
    return {
        str(path.relative_to(place)): str(int(np.load(path)[0, 0]))
        if path.suffix == ".npy"
        else path.read_text().strip()
        for path in files
    }


def killed_at(step: int, write, place: Path) -> bool:
    """Whether a process that writes got that far: it is killed before the given thing that it does to files."""
    steps = itertools.count()

    def watch(event: str, _: object) -> None:
        if event.startswith(("os.", "open", "shutil.", "tempfile.", "fcntl.")) and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads do not matter to what the child does
        child = os.fork()
    if child == 0:
        try:
            sys.addaudithook(watch)
            write(place, "afterwards")
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


RUNS = ({"run/one": "before", "run/two": "before"}, {"run/one": "afterwards", "run/two": "afterwards"})
FILES = ({"out.txt": "before"}, {"out.txt": "afterwards"})
MATRICES = ({"out.keys.txt": "before", "out.npy": "6"}, {"out.keys.txt": "afterwards", "out.npy": "10"})


@pytest.mark.skipif(sys.platform != "linux", reason="forks, and changes folders in one step")
@pytest.mark.parametrize(
    ("write", "whole", "in_one_step"),
    [
        pytest.param(write_file, FILES, True, id="file"),
        pytest.param(write_folder, RUNS, True, id="folder"),
        pytest.param(write_folder, RUNS, False, id="folder by two renames"),
        pytest.param(write_matrix, MATRICES, False, id="matrix and keys"),
    ],
)
def test_who_is_killed_while_overwriting_leaves_the_old_or_the_new(tmp_path, monkeypatch, write, whole, in_one_step):
    """At every step. Where it takes several, there may be nothing to read until somebody writes there again."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # the disk is slow, and nobody pulls its plug here
    if not in_one_step:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    outcomes = []
    for step in itertools.count():
        place = tmp_path / str(step)
        place.mkdir()
        write(place, "before")
        killed = killed_at(step, write, place)
        found = found_in(place)
        assert found in whole or not (in_one_step or {"run/one", "out.npy"} & set(found))
        staging.clear_leftovers(place)  # as the next writer does
        assert found_in(place) in whole
        assert list(place.glob(".*")) == []
        outcomes.append(whole.index(found_in(place)))
        if not killed:
            break
    assert len(outcomes) > 15
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {0, 1}


def test_who_still_writes_is_left_alone_and_who_died_is_cleared_away(tmp_path):
    with atomic_path(tmp_path / "slow") as slow:
        slow.write_text("still")
        (tmp_path / ".kedge-new-died").mkdir()  # before it did anything
        died = tmp_path / ".kedge-new-died-later"
        (died / "new").mkdir(parents=True)
        (died / "new" / "half").write_text("ha")
        (died / "lock").write_bytes(staging._identity(died))
        (tmp_path / ".kedge-new-died-between").mkdir()  # it had made its lock file, and not written in it
        (tmp_path / ".kedge-new-died-between" / "lock").touch()
        rows = tmp_path / ".kedge-rows-y.npz"  # what a migration goes on with is no leftover
        rows.mkdir()
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "lock").touch()
        (tmp_path / ".kedge-new-link").symlink_to(tmp_path / "mine")
        with atomic_path(tmp_path / "quick") as quick:
            quick.write_text("done")
        assert {path.name for path in tmp_path.iterdir()} == {
            slow.parent.parent.name, rows.name, "mine", ".kedge-new-link", "quick",
        }  # fmt: skip
    assert (tmp_path / "mine" / "lock").exists()
    assert (tmp_path / "slow").read_text() == "still"


def planted(place: Path) -> Path:
    """What looks like the leftover of a killed writer that had moved two files aside, as an archive may bring it."""
    folder = place / ".kedge-new-abcd1234"
    (folder / "old").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "old" / "important.npz").write_text("planted")
    (folder / "old" / "another").write_text("planted")
    return folder


def everything_in(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
@pytest.mark.parametrize("lock", ["", "a copy"])
def test_a_copy_of_a_leftover_is_none(tmp_path, lock):
    """Nor is what an archive or a repository brings, whose files would be put over those that are there."""
    (tmp_path / "important.npz").write_text("precious")
    folder = planted(tmp_path)
    if lock:
        folder.rename(tmp_path / "original")
        (tmp_path / "original" / "lock").write_bytes(staging._identity(tmp_path / "original"))
        copytree(tmp_path / "original", folder)
    before = everything_in(tmp_path)
    with atomic_path(tmp_path / "out") as out:
        out.write_text("done")
    assert everything_in(tmp_path) == before | {"out": "done"}


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl, and links")
@pytest.mark.parametrize("link", ["old", "new", "lock", "folder"])
def test_links_in_a_leftover_are_not_followed(tmp_path, link):
    """Even where all else is as it should be, nothing is moved out of the folder that a link leads to."""
    place, private = tmp_path / "repo", tmp_path / "private"
    private.mkdir()
    (private / "id_rsa").write_text("secret")
    folder = planted(place)
    (folder / "lock").write_bytes(staging._identity(folder))
    if link in ("old", "new"):
        (place / "another").touch()  # one of those aside is there again: the new ones would follow
        if link == "old":
            rmtree(folder / "old")
        (folder / link).symlink_to(private)
    elif link == "lock":
        (private / "lock").write_bytes(staging._identity(folder))
        (folder / "lock").unlink()
        (folder / "lock").symlink_to(private / "lock")
    else:
        folder.rename(private / "leftover")
        (private / "leftover" / "lock").write_bytes(staging._identity(private / "leftover"))
        folder.symlink_to(private / "leftover")
    before = everything_in(private)
    names = {path.name for path in place.iterdir()}
    staging.clear_leftovers(place)
    assert everything_in(private) == before
    assert {path.name for path in place.iterdir()} == names


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
def test_a_leftover_of_another_user_is_left_alone(tmp_path, monkeypatch):
    folder = planted(tmp_path)
    (folder / "lock").write_bytes(staging._identity(folder))
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        staging.clear_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    staging.clear_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "important.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
def test_what_is_put_back_replaces_nothing(tmp_path):
    folder = planted(tmp_path)
    (folder / "lock").write_bytes(staging._identity(folder))
    (folder / "new").mkdir()
    (folder / "new" / "important.npz").write_text("planted")
    (tmp_path / "important.npz").write_text("precious")
    staging.clear_leftovers(tmp_path)
    assert everything_in(tmp_path) == {"important.npz": "precious"}


def test_a_folder_is_deleted_as_a_whole(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "one").touch()
    monkeypatch.setattr("shutil.rmtree", lambda path: pytest.fail(str(path)) if path == folder else rmtree(path))
    delete_folder(folder)
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_on_the_disk_before_they_are_in_place(tmp_path, monkeypatch):
    """`fsync` of all that is in a folder, and then of the entry that names it."""
    synced, fsync = [], os.fsync

    def watched(handle):
        synced.append((os.path.realpath(f"/proc/self/fd/{handle}"), (tmp_path / "run").exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    with atomic_folder(tmp_path / "run") as temporary:
        (temporary / "inside").mkdir()
        (temporary / "inside" / "file").touch()
    assert {(Path(path).name, in_place) for path, in_place in synced} == {
        ("file", False), ("inside", False), ("run", False), (tmp_path.name, True),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]"), "No space left on device"),
        (OSError("300000 requested and 15328 written"), "300000 requested and 15328 written"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "No space left on device"),
    ],
)
def test_what_cannot_be_written_is_named_with_the_reason(tmp_path, error, reason):
    target = tmp_path / "out.npz"
    with pytest.raises(OutputError) as caught, atomic_path(target):
        raise error
    assert str(caught.value) == f"{target}: could not be written ({reason}); nothing half-written is left"
    assert isinstance(caught.value, OSError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with (
        pytest.raises(OutputError, match=f"^{re.escape(str(tmp_path / 'run'))}: could"),
        atomic_folder(tmp_path / "run") as folder,
        atomic_path(folder / "inside"),
    ):
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [ValueError("a mistake"), SafetensorError("a mistake"), FileNotFoundError(errno.ENOENT, "No such file", "input")],
)
def test_other_errors_pass_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, atomic_path(tmp_path / "out.npz"):
        raise error
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_no_place_for_a_file():
    with pytest.raises(InputError, match="/dev/null: is not an ordinary file"), atomic_path(Path("/dev/null")):
        pass

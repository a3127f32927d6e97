"""A hidden folder beside an output, in which it is made: locked while its maker lives, else cleared by the next writer.

.kedge-new-XXXXXXXX/
    lock        held by the process that writes
    new/        what it writes
    old/        what that replaces, where the two cannot be exchanged in one step
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HIDDEN = ".kedge-"
"""How the names begin of what kedge keeps beside an output until it is complete."""

_PREFIX = f"{HIDDEN}new-"
_LOCK, _NEW, _OLD = "lock", "new", "old"
# As defined by Linux.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Staging:
    """The folder `new`, whose contents are moved to `parent` once they are complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.new, self.parent = folder / _NEW, folder.parent
        self.new.mkdir()

    def move_out(self, *names: str) -> None:
        """Flush what was made to disk, and move it to its place in `parent`.

        Of several names, the first is put in place last, and an interruption restores what was there before, so that
        nobody reads the old version of one beside the new version of another.
        """
        for name in names:
            _settle(self.new / name)
        if len(names) > 1 or not _take_place(self.new / names[0], self.parent / names[0]):
            old = self._folder / _OLD
            old.mkdir()
            for name in names:
                if os.path.lexists(self.parent / name):
                    (self.parent / name).rename(old / name)
            for name in reversed(names):
                (self.new / name).rename(self.parent / name)
        _settle_entries(self.parent)


@contextmanager
def staging(parent: Path) -> Iterator[Staging]:
    """A staging folder in `parent`, which must exist; what is left in it at the end is deleted."""
    clear_leftovers(parent)
    folder, lock = _locked_folder(parent)
    try:
        yield Staging(folder)
    finally:
        with suppress(OSError):  # what cannot be deleted now, the next writer deletes
            _clear(folder)
        os.close(lock)


def clear_leftovers(parent: Path) -> None:
    """Clear up what processes left in `parent` that died while writing; what they had moved aside is put back."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is gone by now, or belongs to another user
            if not folder.is_symlink():
                _clear_if_left(folder)


def _clear_if_left(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:  # its maker died early; if it lives, it will make another
        folder.rmdir()
        return
    try:
        if _locked(lock, wait=False):
            _clear(folder)
    finally:
        os.close(lock)


def _clear(folder: Path) -> None:
    """Put back what was moved aside, unless all replacements are in place; delete the folder, the lock last."""
    old = folder / _OLD
    aside = list(old.iterdir()) if old.is_dir() else []
    in_place = {path: os.path.lexists(folder.parent / path.name) for path in aside}
    if not all(in_place.values()):
        # Missing ones come last: should this be interrupted too, it is still recognised as unfinished.
        for path in sorted(aside, key=lambda path: not in_place[path]):
            path.replace(folder.parent / path.name)
    for path in folder.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path)
    (folder / _LOCK).unlink(missing_ok=True)
    folder.rmdir()


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, and its open lock file, whose lock shows others that it is in use."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=_PREFIX))
        with suppress(FileNotFoundError):  # between any two steps another process may take it for a leftover
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            _locked(lock, wait=True)
            if os.fstat(lock).st_nlink:
                return folder, lock
            os.close(lock)


def _locked(lock: int, *, wait: bool) -> bool:
    """Try to take the lock; where there are no such locks, it always fails, and nothing counts as a leftover."""
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


def _take_place(new: Path, target: Path) -> bool:
    """Replace `target` by `new` in one step, so that one of the two always exists; False if that is impossible."""
    if new.is_dir() and target.exists():
        return _exchange(new, target)
    new.replace(target)
    return True


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths in one step; False if the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    swapped: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return swapped == 0


def _settle(path: Path) -> None:
    """Flush a file, or a folder with all its content, to disk: the rename might be persisted before the data."""
    for each in (*path.rglob("*"), path):
        if each.is_dir():
            _settle_entries(each)
        else:
            _sync(each, os.O_RDWR)


def _settle_entries(folder: Path) -> None:
    """Flush the entries of a folder, where the file system supports that."""
    with suppress(OSError):
        _sync(folder, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""A hidden folder beside an output, in which it is made: locked while its maker lives, else cleared by the next writer.

.kedge-new-XXXXXXXX/
    lock        held by the process that writes; says which folder it is for, so that a copy is not taken for a leftover
    new/        what it writes
    old/        what that replaces, where the two cannot be exchanged in one step
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HIDDEN = ".kedge-"
"""How the names begin of what kedge keeps beside an output until it is complete."""

_PREFIX = f"{HIDDEN}new-"
_LOCK, _NEW, _OLD = "lock", "new", "old"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
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

        Of several names, the first is put in place last. What is interrupted is undone, or done in full once one of
        the new is in place, so that nobody reads the old version of one beside the new version of another.
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
        os.write(lock, _identity(folder))
        yield Staging(folder)
    finally:
        with suppress(OSError):  # what cannot be deleted now, the next writer deletes
            _clear(folder)
        os.close(lock)


def clear_leftovers(parent: Path) -> None:
    """Clear up what processes left in `parent` that died while writing; what they had moved aside is put back."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is gone by now, or belongs to another user
            if _is_own_folder(folder):
                _clear_if_left(folder)


def _clear_if_left(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | _NO_LINKS)
    except FileNotFoundError:  # its maker died early; if it lives, it will make another
        folder.rmdir()
        return
    try:
        if not stat.S_ISREG(os.fstat(lock).st_mode) or not _locked(lock, wait=False):
            return
        said = os.read(lock, 100)
        if said == _identity(folder):
            _clear(folder)
        elif not said and [path.name for path in folder.iterdir()] == [_LOCK]:  # its maker died before it wrote
            (folder / _LOCK).unlink()
            folder.rmdir()
    finally:
        os.close(lock)


def _is_own_folder(path: Path) -> bool:
    """Whether this is a folder of this user, and no link to one."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and (sys.platform == "win32" or found.st_uid == os.geteuid())


def _identity(folder: Path) -> bytes:
    """What the lock file of a folder says: a copy of the folder, as from an archive, is another folder."""
    found = folder.lstat()
    return f"{found.st_dev}:{found.st_ino}\n".encode()


def _clear(folder: Path) -> None:
    """Finish an interrupted move, or put back what was moved aside; delete the folder, the lock last.

    Nothing outside the folder is replaced.
    """
    aside, made = _inside(folder / _OLD), _inside(folder / _NEW)
    # The new ones come only after all old ones are aside: a name that is there again is new, and the rest can follow.
    begun = any(os.path.lexists(folder.parent / path.name) for path in aside)
    for path in made if begun else aside:
        if not os.path.lexists(folder.parent / path.name):
            path.rename(folder.parent / path.name)
    for path in folder.iterdir():
        if path.name != _LOCK:
            shutil.rmtree(path)
    (folder / _LOCK).unlink(missing_ok=True)
    folder.rmdir()


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if os.path.lexists(folder) and _is_own_folder(folder) else []


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, and its open lock file, whose lock shows others that it is in use."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=_PREFIX))
        with suppress(FileNotFoundError):  # between any two steps another process may take it for a leftover
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o600)
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

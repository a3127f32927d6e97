"""A lock that dies with its process, so that two processes never mix their output in one place."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

from kedge.errors import InputError
from kedge.spaces.writing.atomic import require_parent

if sys.platform != "win32":
    import fcntl

LOCK_NAME = ".kedge-lock"
"""How the name of a lock file ends; inside a folder, the whole name."""


class FolderLock:
    """An exclusive lock, held between `acquire` and `release` or inside `with`, also against others in this process.

    The lock is on a file: `.NAME.kedge-lock` beside the folder, which need not exist; or, with `inside`, `.kedge-lock`
    in the folder, which is created, and removed again if it is otherwise empty. The file says who holds it, and
    is deleted on release. A killed process leaves the file, but not the lock. If the system or file system has no such
    locks, nothing is locked.

    Parameters
    ----------
    folder : Path
        What is to be written: a folder, or a file.
    activity : str
        What to call the holder in the message that refuses a second one.
    inside : bool
        For the folder of a database: whoever may write in it need not be allowed to write beside it.
    """

    def __init__(self, folder: Path, activity: str = "discovery", *, inside: bool = False) -> None:
        self._folder, self._activity, self._inside = folder, activity, inside
        target = folder.resolve()
        self._path = target / LOCK_NAME if inside else target.parent / f".{target.name}{LOCK_NAME}"
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock; raises `InputError` if another holder has it."""
        if sys.platform == "win32":
            return
        while self._handle is None:
            handle = self._opened()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.read(handle, 200).decode("utf-8", "replace").strip()
                os.close(handle)
                raise InputError(
                    f"{self._folder}: another {self._activity} is writing there ({holder or 'process unknown'}); wait "
                    "until it is done, stop it, or choose another name"
                ) from error
            except OSError:  # the file system has no locks
                pass
            if self._is_at_path(handle):
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {platform.node()}\n".encode())
                self._handle = handle
            else:  # the last holder deleted it between our opening and locking it
                os.close(handle)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._handle is not None:
            if self._is_at_path(self._handle):
                self._path.unlink()
            os.close(self._handle)
            self._handle = None
            if self._inside:
                with suppress(OSError):  # the folder is not empty
                    self._path.parent.rmdir()

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _opened(self) -> int:
        """Open the lock file; the last holder may have deleted its folder a moment ago."""
        while True:
            try:
                if self._inside and not self._path.parent.is_dir():
                    require_parent(self._folder)
                    self._path.parent.mkdir(exist_ok=True)
                elif not self._inside:
                    require_parent(self._folder)
                return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            except FileNotFoundError:
                if not self._inside:
                    raise
            except OSError as error:
                raise InputError(f"{self._path}: cannot be made to lock {self._folder} ({error.strerror})") from error

    def _is_at_path(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False

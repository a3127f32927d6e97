"""A lock on a folder that dies with its process: two that would write there do not mix what they write."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from kedge.errors import InputError
from kedge.spaces.atomic import require_parent

if sys.platform != "win32":
    import fcntl


class FolderLock:
    """Held between `acquire` and `release`, or inside `with`; by one process, and there by one holder, at a time.

    What is locked is a file beside the folder, which need not be there, named `.NAME.kedge-lock`; it says who holds the
    lock, and is deleted on release. A process that is killed leaves the file, but not the lock. Where the system or the
    file system has no such locks, nothing is locked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        target = folder.resolve()
        self._path = target.parent / f".{target.name}.kedge-lock"
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock; raises `InputError` where another has it."""
        if sys.platform == "win32":
            return
        require_parent(self._folder)
        while self._handle is None:
            try:
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            except OSError as error:
                raise InputError(f"{self._path}: cannot be made, to lock {self._folder} ({error.strerror})") from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.read(handle, 200).decode("utf-8", "replace").strip()
                os.close(handle)
                raise InputError(
                    f"{self._folder}: another discovery is writing there ({holder or 'process unknown'}); wait until "
                    "it is done, stop it, or choose another name"
                ) from error
            except OSError:  # the file system has no locks
                pass
            if self._is_at_path(handle):
                os.ftruncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {platform.node()}\n".encode())
                self._handle = handle
            else:  # the last holder has deleted it between our opening and locking it
                os.close(handle)

    def release(self) -> None:
        """Let go of it, if it is held."""
        if self._handle is not None:
            if self._is_at_path(self._handle):
                self._path.unlink()
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_at_path(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False

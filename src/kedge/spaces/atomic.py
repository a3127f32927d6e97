"""Write under a temporary name, then rename: a reader sees the whole output or none of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kedge.errors import InputError


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success it becomes `target`, on any error it vanishes.

    The temporary name ends like the target's, so that a suffix still tells the format.
    """
    require_target(target)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".kedge-", suffix=f"-{target.name}")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes private files; outputs are ordinary ones
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that takes its place on success and vanishes on error.

    What `target` held before is deleted, but only when the new folder is complete and in its place.
    """
    target = target.resolve()  # through a link, to the folder itself
    require_parent(target)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".kedge-", suffix=f"-{target.name}"))
    old = temporary.with_name(temporary.name + "-old")
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if target.exists():
            target.rename(old)
        temporary.rename(target)
    finally:
        if old.exists() and not target.exists():  # interrupted between the two
            old.rename(target)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def require_target(target: Path) -> None:
    """Refuse a file name in a folder that is not there, or that is a folder itself."""
    require_parent(target)
    if target.is_dir():
        raise InputError(f"{target}: is a folder, a file name is needed")


def require_parent(target: Path) -> None:
    """Refuse a target whose folder is not there, or may not be written to."""
    parent = target.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{target}: the folder {str(parent)!r} does not exist; create it first")
    if not os.access(parent, os.W_OK):
        raise InputError(f"{target}: no permission to write in {str(parent)!r}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Write under a temporary name, then rename: a reader sees the whole output or none of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from kedge.errors import InputError, OutputError
from kedge.spaces.writing.staging import HIDDEN, staging

# How safetensors reports the number of a system error.
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success it becomes `target`, on any error it vanishes.

    The temporary file has the same name in another folder, so that its suffix still names the format. If it cannot be
    written, e.g. on a full disk, an `OutputError` names the target.
    """
    with atomic_paths(target) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(*targets: Path) -> Iterator[tuple[Path, ...]]:
    """Like `atomic_path`, for files in one folder that belong together.

    The first is absent while the others are renamed, so it should be the one without which nobody reads the others.
    """
    for target in targets:
        require_target(target)
    with writing(targets[0]), staging(targets[0].parent) as made_in:
        made = tuple(made_in.new / target.name for target in targets)
        for temporary in made:
            temporary.touch()
        yield made
        for temporary in made:
            temporary.chmod(0o666 & ~_umask())  # some libraries create private files; outputs get the usual permissions
        made_in.move_out(*(target.name for target in targets))


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that takes its place on success and vanishes on error.

    The old content of `target` is deleted only when the new folder is complete and in place. The two are exchanged
    atomically where the system can do that; where it cannot, and the process is killed halfway, the next process that
    writes there puts the old folder back.
    """
    target = target.resolve()  # follow a symlink to the folder itself
    require_parent(target)
    with writing(target), staging(target.parent) as made_in:
        temporary = made_in.new / target.name
        temporary.mkdir()
        yield temporary
        made_in.move_out(target.name)


def delete_folder(folder: Path) -> None:
    """Delete a folder so that it vanishes in one step, even if the deletion is interrupted."""
    folder = folder.resolve()
    with staging(folder.parent) as made_in:
        folder.rename(made_in.new / folder.name)


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turn errors that keep `target` from being written, such as a full disk, into an `OutputError` that names it.

    Other errors, and those that name another file, pass unchanged.
    """
    try:
        yield
    except SafetensorError as error:
        found = _RUST_ERROR.search(str(error))
        if found is None:
            raise
        raise OutputError(int(found[1]), os.strerror(int(found[1])), str(target)) from error
    except OSError as error:  # also NumPy's, which have no number, and Arrow's
        if error.filename is not None and HIDDEN not in str(error.filename):
            raise
        reason = " ".join(str(error).split()) if error.errno is None else os.strerror(error.errno)
        raise OutputError(error.errno, reason, str(target)) from error


def require_target(target: Path) -> None:
    """Refuse a file name whose folder does not exist, or that exists but is not a regular file."""
    require_parent(target)
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "not an ordinary file"
        raise InputError(f"{target}: is {kind}; give the name of a file")


def require_parent(target: Path) -> None:
    """Refuse a target whose folder does not exist or is not writable."""
    parent = target.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{target}: the folder {str(parent)!r} does not exist; create it first")
    if not os.access(parent, os.W_OK):
        raise InputError(f"{target}: no permission to write in {str(parent)!r}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

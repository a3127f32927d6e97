"""The folder where a job collects its files until all are there: OUT.unfinished, of which a part becomes OUT."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kedge.errors import InputError
from kedge.spaces.writing.atomic import atomic_path, delete_folder, require_parent
from kedge.spaces.writing.lock import FolderLock

REGROUPING = "groups-"
"""How the names of folders begin through which an engine regroups rows; of no use to a later call."""

_CALL = "call.json"


@contextmanager
def job_folder(out: Path, result: str, *, resume: bool, overwrite: bool, activity: str) -> Iterator[Path]:
    """A working folder beside `out`, whose subfolder `result` takes the place of `out` on success.

    If the job fails, what it has finished stays there; another call with `resume` goes on from it.
    """
    out = out.absolute()
    require_parent(out)
    unfinished = out.with_name(f"{out.name}.unfinished")
    if out.exists() and not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(f"{out}: already exists; choose another name, or replace it with --overwrite")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give the name of a folder")
    with FolderLock(out, activity):
        if unfinished.exists() and not resume:
            if any(unfinished.iterdir()):
                raise InputError(
                    f"{unfinished}: holds an unfinished {activity}; continue it with --resume, or delete that folder"
                )
        elif resume and not unfinished.exists():
            raise InputError(f"{unfinished}: does not exist, so there is nothing to resume; omit --resume")
        unfinished.mkdir(exist_ok=True)
        for left in unfinished.glob(f"{REGROUPING}*"):  # by a process that was killed; thanks to the lock, none lives
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield unfinished
        except BaseException:
            if not (unfinished / _CALL).exists():  # nothing to resume from
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        if out.exists():
            delete_folder(out)
        (unfinished / result).rename(out)
        shutil.rmtree(unfinished)


def require_same_call(folder: Path, call: Mapping[str, Any]) -> None:
    """Record the arguments of a job, or refuse to resume one that was called with others."""
    text = json.dumps(call, indent=1, sort_keys=True) + "\n"
    path = folder / _CALL
    if path.exists():
        before = json.loads(path.read_text())
        now = json.loads(text)
        differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        if differing:
            raise InputError(
                f"{folder}: was begun with another {differing[0]}; continue with the same, or delete that folder"
            )
    else:
        with atomic_path(path) as temporary:
            temporary.write_text(text)


def run_pass(
    folder: Path,
    file_of: Callable[[int], Path],
    count: int,
    work: Callable[[frozenset[int]], Iterable[Any]],
    report: Callable[[int, int], None],
) -> None:
    """Do what is missing of a pass that writes a file for each of `count` groups, except those that are empty.

    `work` takes the groups that are done, and yields once for each of the others that it finishes.
    """
    folder.mkdir(exist_ok=True)
    all_done = folder.with_name(f"{folder.name}.done")
    if all_done.exists():
        return
    done = frozenset(number for number in range(count) if file_of(number).exists())
    finished = len(done)
    report(finished, count)
    for _ in work(done):
        finished += 1
        report(finished, count)
    report(count, count)
    all_done.touch()

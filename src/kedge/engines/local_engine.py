"""The engine on this machine: one task after another, each on all cores; groups wait in files, which bounds memory."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kedge.engines.engine import Finish, Split
from kedge.engines.job_folder import REGROUPING
from kedge.engines.messages import packed, unpacked
from kedge.spaces.writing.atomic import writing

_LENGTH = struct.Struct("<q")


class LocalEngine:
    """Runs tasks in this process, and regroups through files in a temporary folder inside `scratch`."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def each(self, tasks: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Any]:
        """See `Engine.each`."""
        return (work(task) for task in tasks)

    def regroup(self, tasks: Sequence[Any], split: Split, finish: Finish, groups: int) -> Iterator[Any]:
        """See `Engine.regroup`."""
        with tempfile.TemporaryDirectory(dir=self._scratch, prefix=REGROUPING) as folder:
            files = [Path(folder, f"{group:05d}") for group in range(groups)]
            for task in tasks:
                for group, table in split(task):
                    message = packed(table)
                    with writing(self._scratch), files[group].open("ab") as file:
                        file.write(_LENGTH.pack(len(message)) + message)
            for group, path in enumerate(files):
                if path.exists():
                    yield finish(group, unpacked(_messages(path)))
                    path.unlink()

    def close(self) -> None:
        """Nothing was started."""


def _messages(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            yield file.read(_LENGTH.unpack(head)[0])

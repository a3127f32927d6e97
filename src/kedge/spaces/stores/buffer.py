"""A buffer for files that can only be written as a whole: a folder beside the file that keeps rows until all are there.

about.json      the description of the file
vectors.f32     one vector after the other
ids.jsonl       their ids, one line of JSON each
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kedge.spaces.stores.store import Batch, Description, Id
from kedge.spaces.writing.atomic import atomic_path, delete_folder, require_parent, writing
from kedge.spaces.writing.staging import HIDDEN


class RowBuffer:
    """The rows appended so far; once `append` returns, its rows survive a kill."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._folder = target.with_name(f"{HIDDEN}rows-{target.name}")
        self._about, self._vectors, self._ids = (
            self._folder / name for name in ("about.json", "vectors.f32", "ids.jsonl")
        )
        self._known: dict[Id, int] | None = None

    def exists(self) -> bool:
        """Whether the buffer exists."""
        return self._about.is_file()

    def create(self, like: Description) -> None:
        """Create an empty buffer."""
        require_parent(self._folder)
        self._known = {}
        with writing(self._target):
            self._folder.mkdir(exist_ok=True)
            self._vectors.write_bytes(b"")
            self._ids.write_bytes(b"")
        with writing(self._target), atomic_path(self._about) as temporary:
            temporary.write_text(json.dumps(asdict(like) | {"fields": None, "metadata": dict(like.metadata)}))

    def describe(self) -> Description:
        """The description that `create` got, with the current number of rows."""
        about = json.loads(self._about.read_text())
        return Description(**(about | {"rows": len(self.places())}))

    def append(self, batch: Batch) -> None:
        """Add the rows that do not exist yet."""
        places = self.places()
        batch = batch.take([row for row, name in enumerate(batch.ids) if name not in places])
        with writing(self._target):
            with self._vectors.open("ab") as stream:
                stream.write(np.ascontiguousarray(batch.vectors, dtype=np.float32).tobytes())
            with self._ids.open("a", encoding="utf-8") as stream:
                stream.writelines(json.dumps(name) + "\n" for name in batch.ids)
        places.update({name: len(places) + row for row, name in enumerate(batch.ids)})

    def places(self) -> dict[Id, int]:
        """The row number of each id; truncates what a kill left half-written."""
        if self._known is None:
            width = 4 * json.loads(self._about.read_text())["dim"]
            whole = self._vectors.stat().st_size // width
            self._known, end = {}, 0
            with self._ids.open("rb") as stream:
                for line in stream:
                    if not line.endswith(b"\n") or len(self._known) == whole:
                        break
                    self._known[json.loads(line)] = len(self._known)
                    end += len(line)
            with self._ids.open("r+b") as stream:
                stream.truncate(end)
            with self._vectors.open("r+b") as stream:
                stream.truncate(len(self._known) * width)
        return self._known

    def vectors(self) -> NDArray[np.float32]:
        """All vectors (n, d), memory-mapped."""
        dim = json.loads(self._about.read_text())["dim"]
        return np.memmap(self._vectors, dtype=np.float32, mode="r").reshape(-1, dim)

    def clear(self) -> None:
        """Delete the buffer: the file is written, or no longer wanted."""
        if self._folder.is_dir():
            delete_folder(self._folder)
        self._known = None

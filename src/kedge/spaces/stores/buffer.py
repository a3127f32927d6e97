"""A buffer for files that can only be written as a whole: a folder beside the file that keeps rows until all are there.

about.json      the description of the file
vectors.f32     one vector after the other
ids.jsonl       their ids, one line of JSON each
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.stores.store import Batch, Description, Id, Metric
from kedge.spaces.writing.atomic import atomic_folder, delete_folder, require_parent, writing
from kedge.spaces.writing.staging import HIDDEN

_LARGEST_DIM = 2**31
_INTEGERS = range(-(2**63), 2**63)
_ABOUT, _VECTORS, _IDS = "about.json", "vectors.f32", "ids.jsonl"


class RowBuffer:
    """The rows appended so far; once `append` returns, its rows survive a kill.

    Only `create`, `append` and `clear` change it; whoever calls them holds the lock of the target. Others may read at
    the same time: they see the rows that are whole.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self.folder = target.with_name(f"{HIDDEN}rows-{target.name}")
        self._about, self._vectors, self._ids = (self.folder / name for name in (_ABOUT, _VECTORS, _IDS))
        self._known: dict[Id, int] = {}
        self._end = 0  # of the last whole line of ids
        self._seen: object = None  # the state of the files in which that was so

    def exists(self) -> bool:
        """Whether the buffer exists."""
        return self._is_folder() and os.path.lexists(self._about)

    def create(self, like: Description) -> None:
        """Create an empty buffer."""
        require_parent(self.folder)
        if os.path.lexists(self.folder) and not (self._is_folder() and not any(self.folder.iterdir())):
            raise InputError(
                f"{self.folder}: rows for {self._target.name} are kept there until all are written, but it holds "
                "something already; move it elsewhere or delete it"
            )
        about = asdict(like) | {"fields": None, "metadata": dict(like.metadata)}
        with writing(self._target), atomic_folder(self.folder) as temporary:
            (temporary / _ABOUT).write_text(json.dumps(about))
            (temporary / _VECTORS).touch()
            (temporary / _IDS).touch()
        self._seen = None

    def describe(self) -> Description:
        """The description that `create` got, with the current number of rows."""
        return replace(self._described(), rows=len(self.places()))

    def append(self, batch: Batch) -> None:
        """Add the rows that do not exist yet, in place of what a kill left half-written."""
        places = self.places()
        new: dict[Id, int] = {}
        for row, name in enumerate(batch.ids):
            if name not in places:
                new.setdefault(name, row)
        vectors = np.ascontiguousarray(batch.vectors[list(new.values())], dtype=np.float32).tobytes()
        ids = "".join(f"{json.dumps(name)}\n" for name in new).encode()
        before = (4 * self._described().dim * len(places), self._end)
        with writing(self._target):
            for path, size, data in zip((self._vectors, self._ids), before, (vectors, ids), strict=True):
                with _opened(path, "r+b") as stream:
                    stream.truncate(size)
                    stream.seek(size)
                    stream.write(data)
        places.update({name: len(places) + count for count, name in enumerate(new)})
        self._end += len(ids)
        self._seen = self._state()

    def places(self) -> dict[Id, int]:
        """The row number of each id; rows that are not written in full do not count."""
        state = self._state()
        if state != self._seen:
            self._known, self._end = self._read_ids()
            self._seen = state
        return self._known

    def vectors(self) -> NDArray[np.float32]:
        """All vectors (n, d), memory-mapped."""
        shape = (len(self.places()), self._described().dim)
        if not shape[0]:
            return np.zeros(shape, dtype=np.float32)
        with _opened(self._vectors, "rb") as stream:
            return np.memmap(stream, dtype=np.float32, mode="r", shape=shape)

    def clear(self) -> None:
        """Delete the buffer: the file is written, or no longer wanted."""
        if self._is_folder():
            delete_folder(self.folder)
        self._seen = None

    def _is_folder(self) -> bool:
        """Whether the folder is there; a link to one is not ours, and what is behind it none of our business."""
        return self.folder.is_dir() and not self.folder.is_symlink()

    def _state(self) -> object:
        """What changes whenever the rows do."""
        found = [os.lstat(path) for path in (self._vectors, self._ids) if os.path.lexists(path)]
        return [(each.st_ino, each.st_size, each.st_mtime_ns) for each in found]

    def _described(self) -> Description:
        with _opened(self._about, "rb") as stream:
            about = _parsed(stream.read())
        if not isinstance(about, dict):
            raise _damaged(self._about, "it is no JSON object")
        dim, metric, id_type = about.get("dim"), about.get("metric"), about.get("id_type", "str")
        metadata = about.get("metadata", {})
        if not isinstance(dim, int) or isinstance(dim, bool) or not 0 < dim < _LARGEST_DIM:
            raise _damaged(self._about, "dim must be a whole number of at least 1")
        if metric is not None and metric not in get_args(Metric):
            raise _damaged(self._about, f"metric must be null or one of {', '.join(get_args(Metric))}")
        if id_type not in ("int", "str"):
            raise _damaged(self._about, "id_type must be 'int' or 'str'")
        if not _are_texts(metadata):
            raise _damaged(self._about, "metadata must be an object of texts")
        return Description(0, dim, metric, metadata, id_type=id_type)

    def _read_ids(self) -> tuple[dict[Id, int], int]:
        """The row number of each id whose line and vector are whole, and where the last of these lines ends."""
        width = 4 * self._described().dim
        with _opened(self._vectors, "rb") as stream:
            whole = os.fstat(stream.fileno()).st_size // width
        known: dict[Id, int] = {}
        end = 0
        with _opened(self._ids, "rb") as stream:
            for line in stream:
                if not line.endswith(b"\n") or len(known) == whole:
                    break
                name = _parsed(line)
                if not _is_id(name) or name in known:
                    raise _damaged(self._ids, f"line {len(known) + 1} is not an id of its own")
                known[name] = len(known)
                end += len(line)
        return known, end


def read_texts_of(path: Path) -> dict[str, str]:
    """Read the metadata kept beside a file: an object of texts, as JSON."""
    parsed = _parsed(path.read_bytes())
    if not _are_texts(parsed):
        raise InputError(
            f"{path}: must be a JSON object of texts, as kedge writes it to say where vectors come from; restore it, "
            "or delete it to go without"
        )
    return dict(parsed)


def _opened(path: Path, mode: Literal["rb", "r+b"]) -> IO[bytes]:
    """Open a file of the buffer; a link is not followed: whoever made the folder may have aimed it at another file."""
    try:
        stream = open(path, mode, opener=_not_following)  # noqa: SIM115 - Path.open takes no opener
    except OSError as error:
        raise _damaged(path, "it is a link" if path.is_symlink() else error.strerror) from error
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise _damaged(path, "it is not an ordinary file")
    return stream


def _not_following(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def _damaged(path: Path, why: str | None) -> InputError:
    return InputError(
        f"{path}: cannot be used to go on with what was interrupted ({why}); delete the folder {path.parent}, and "
        "write from the beginning"
    )


def _parsed(text: bytes) -> Any:
    """Parse JSON; None if it is not valid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _are_texts(value: object) -> bool:
    """Whether this is an object whose names and entries are texts."""
    return isinstance(value, dict) and all(map(_is_text, (*value, *value.values())))


def _is_text(value: object) -> bool:
    """Whether this is text that can be written again: JSON may contain lone surrogates."""
    return isinstance(value, str) and value == value.encode("utf-8", "replace").decode("utf-8")


def _is_id(value: object) -> bool:
    return _is_text(value) or (isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS)

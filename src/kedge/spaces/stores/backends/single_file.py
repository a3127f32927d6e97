"""Stores in files that are read and written as a whole; rows have no payload."""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.files import files_read, files_written, key_fault, read_file, require_writable, write_file
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.buffer import RowBuffer, read_texts_of
from kedge.spaces.stores.store import Batch, Description, Id, Metric, Store
from kedge.spaces.writing.atomic import atomic_path, require_target

_FILE = "kedge-file"  # the entry of a note that says which file it is about
_SUMMED_BYTES = 2**16


class Contents(NamedTuple):
    """What a file holds: n ids, vectors (n, d) or an object that slices like them, and a metric if known."""

    ids: list[Id]
    vectors: NDArray[np.float32]
    metric: Metric | None = None


class WholeFile(Store):
    """A file that appears once all rows are written; until then they are buffered beside it.

    Metadata is kept in NAME.kedge.json, since few such formats have a place for it. A note about a file that was
    replaced since then does not count.
    """

    keeps_payload = False
    is_folder = False
    grows = False

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._path = path = Path(address.place)
        self._note = path.with_name(path.name + ".kedge.json")
        self._buffer = RowBuffer(path)

    @abstractmethod
    def _load(self) -> Contents:
        """Load the file."""

    @abstractmethod
    def _files(self) -> list[Path]:
        """The file, and the file of its keys if there is one beside it."""

    @abstractmethod
    def _save(self, contents: Contents) -> None:
        """Write the file, completely or not at all."""

    @property
    def _contents(self) -> Contents:
        """The buffered rows, or else the contents of the file."""
        if self._buffer.exists():
            return Contents(list(self._buffer.places()), self._buffer.vectors(), self._buffer.describe().metric)
        return self._whole

    @cached_property
    def _whole(self) -> Contents:
        return self._load()

    @property
    def _places(self) -> dict[Id, int]:
        """The row of each id in `_contents`."""
        return self._buffer.places() if self._buffer.exists() else self._whole_places

    @cached_property
    def _whole_places(self) -> dict[Id, int]:
        return {name: row for row, name in enumerate(self._whole.ids)}

    def exists(self) -> bool:
        """Whether the file or its buffer exists."""
        return self._path.is_file() or self._buffer.exists()

    def describe(self) -> Description:
        """Describe what the file holds or will hold."""
        if self._buffer.exists():
            return self._buffer.describe()
        metadata = self._noted()
        ids, vectors, metric = self._contents
        id_type: Literal["int", "str"] = "int" if ids and isinstance(ids[0], int) else "str"
        return Description(len(ids), vectors.shape[1], metric, metadata, id_type=id_type)

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:  # noqa: ARG002
        """Iterate over the rows in file order."""
        if self._buffer.exists():
            raise InputError(
                f"{self.address}: is not complete, its rows wait in {self._buffer.folder}; wait for the process that "
                "writes it, run that command again (kedge migrate with --resume), or delete that folder"
            )
        ids, vectors, _ = self._contents
        for begin in range(0, len(ids), size):
            yield _batch(ids[begin : begin + size], vectors[begin : begin + size])

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        places = self._places
        there = [name for name in ids if name in places]
        return _batch(there, self._contents.vectors[[places[name] for name in there]])

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist."""
        places = self._places
        return {name for name in ids if name in places}

    def create(self, like: Description) -> None:
        """Create the buffer of rows beside the future file."""
        for path in self._files():
            require_target(path)
            if path.exists():
                raise InputError(f"{path}: already exists; choose another name")
        self._buffer.create(like)

    def write(self, batch: Batch) -> None:
        """Add rows to the buffer."""
        if not self._buffer.exists():
            raise InputError(f"{self.address}: is complete, and written only once; choose another name for more rows")
        self._buffer.append(replace(batch, ids=[self.id_of(name) for name in batch.ids]))

    def finish(self) -> None:
        """Write the file from the buffer, unless that is done already."""
        if not self._buffer.exists():
            return
        about = self._buffer.describe()
        self._save(Contents(list(self._buffer.places()), self._buffer.vectors(), about.metric))
        with atomic_path(self._note) as temporary:
            noted = {**about.metadata, _FILE: _digest_of_ends(self._path)}
            temporary.write_text(json.dumps(noted, indent=2) + "\n")
        self._buffer.clear()
        vars(self).pop("_whole", None)
        vars(self).pop("_whole_places", None)

    def abandon(self) -> None:
        """Delete the buffer."""
        self._buffer.clear()

    def _noted(self) -> dict[str, str]:
        """The metadata of the file, if there is a note about it."""
        if not (self._note.is_file() and self._path.is_file()):
            return {}
        noted = read_texts_of(self._note)
        about = noted.pop(_FILE, None)  # earlier versions of kedge did not say
        return noted if about in (None, _digest_of_ends(self._path)) else {}


class FileStore(WholeFile):
    """A file in one of the formats of spaces."""

    def exists(self) -> bool:
        """Whether there is something to read, including `FILE#NAME` and datasets, or buffered rows."""
        return super().exists() or files_read(self._path)[0].is_file()

    def _load(self) -> Contents:
        space = read_file(self._path)
        return Contents(list(space.keys), space.vectors)

    def create(self, like: Description) -> None:
        """Create the buffer of rows beside the future file."""
        require_writable(self._path)
        super().create(like)

    def _files(self) -> list[Path]:
        return files_written(self._path)

    def _save(self, contents: Contents) -> None:
        keys = [str(name) for name in contents.ids]
        write_file(Embeddings(keys, contents.vectors, str(self._path)), self._path)

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Some formats cannot hold some keys; payloads are not written anyway."""
        return key_fault(self._path, str(key))

    def id_of(self, key: Id) -> Id:
        """The id as text, like all keys."""
        return str(key)


def _digest_of_ends(path: Path) -> str:
    """Tells a file from what replaces it: a digest of its size, beginning and end, quick for large files too."""
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        summed = hashlib.sha256(f"{size}:".encode() + stream.read(_SUMMED_BYTES))
        stream.seek(max(size - _SUMMED_BYTES, 0))
        summed.update(stream.read(_SUMMED_BYTES))
    return summed.hexdigest()


def _batch(ids: list[Id], vectors: NDArray[np.float32]) -> Batch:
    return Batch(ids, np.array(vectors, dtype=np.float32), [{} for _ in ids])

"""Files that are read and written whole, as stores: rows without payload."""

from __future__ import annotations

import json
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
from kedge.spaces.stores.buffer import RowBuffer
from kedge.spaces.stores.store import Batch, Description, Id, Metric, Store
from kedge.spaces.writing.atomic import atomic_path, require_target


class Contents(NamedTuple):
    """What a file holds: n ids, vectors (n, d) or what gives them by slices, and a metric where it has one."""

    ids: list[Id]
    vectors: NDArray[np.float32]
    metric: Metric | None = None


class WholeFile(Store):
    """A file that appears when everything is written; until then its rows wait beside it.

    What is known of the vectors lies in NAME.kedge.json, since few such files have a place for it.
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
        """What the file holds."""

    @abstractmethod
    def _files(self) -> list[Path]:
        """The file, and that of its keys where there is one beside it."""

    @abstractmethod
    def _save(self, contents: Contents) -> None:
        """Write the file, whole or not at all."""

    @property
    def _contents(self) -> Contents:
        """What waits, or what the file holds."""
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
        """Whether the file is there, or rows for it."""
        return self._path.is_file() or self._buffer.exists()

    def describe(self) -> Description:
        """What the file holds, or will."""
        if self._buffer.exists():
            return self._buffer.describe()
        metadata = json.loads(self._note.read_text()) if self._note.is_file() else {}
        ids, vectors, metric = self._contents
        id_type: Literal["int", "str"] = "int" if ids and isinstance(ids[0], int) else "str"
        return Description(len(ids), vectors.shape[1], metric, metadata, id_type=id_type)

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:  # noqa: ARG002
        """The rows in their order."""
        ids, vectors, _ = self._contents
        for begin in range(0, len(ids), size):
            yield _batch(ids[begin : begin + size], vectors[begin : begin + size])

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        places = self._places
        there = [name for name in ids if name in places]
        return _batch(there, self._contents.vectors[[places[name] for name in there]])

    def present(self, ids: Collection[Id]) -> set[Id]:
        """Those of the ids that are there."""
        places = self._places
        return {name for name in ids if name in places}

    def create(self, like: Description) -> None:
        """Make room for rows beside the file to be."""
        for path in self._files():
            require_target(path)
            if path.exists():
                raise InputError(f"{path}: already exists; choose another name")
        self._buffer.create(like)

    def write(self, batch: Batch) -> None:
        """Add rows to those that wait."""
        if not self._buffer.exists():
            raise InputError(f"{self.address}: is complete, and written only once; choose another name for more rows")
        self._buffer.append(replace(batch, ids=[self.id_of(name) for name in batch.ids]))

    def finish(self) -> None:
        """Make the file of the rows, unless it is there."""
        if not self._buffer.exists():
            return
        about = self._buffer.describe()
        with atomic_path(self._note) as temporary:
            temporary.write_text(json.dumps(dict(about.metadata), indent=2) + "\n")
        self._save(Contents(list(self._buffer.places()), self._buffer.vectors(), about.metric))
        self._buffer.clear()
        vars(self).pop("_whole", None)
        vars(self).pop("_whole_places", None)

    def abandon(self) -> None:
        """Forget the rows that wait."""
        self._buffer.clear()


class FileStore(WholeFile):
    """A file of one of the formats of spaces."""

    def exists(self) -> bool:
        """Whether there is something to read, also `FILE#NAME` or a dataset, or rows for the file."""
        return super().exists() or files_read(self._path)[0].is_file()

    def _load(self) -> Contents:
        space = read_file(self._path)
        return Contents(list(space.keys), space.vectors)

    def create(self, like: Description) -> None:
        """Make room for rows beside the file to be."""
        require_writable(self._path)
        super().create(like)

    def _files(self) -> list[Path]:
        return files_written(self._path)

    def _save(self, contents: Contents) -> None:
        keys = [str(name) for name in contents.ids]
        write_file(Embeddings(keys, contents.vectors, str(self._path)), self._path)

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Some formats have no place for some keys; payload is not written anyway."""
        return key_fault(self._path, str(key))

    def id_of(self, key: Id) -> Id:
        """As text, which all keys are."""
        return str(key)


def _batch(ids: list[Id], vectors: NDArray[np.float32]) -> Batch:
    return Batch(ids, np.array(vectors, dtype=np.float32), [{} for _ in ids])

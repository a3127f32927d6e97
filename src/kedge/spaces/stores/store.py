"""The interface of all stores: describe, create, read in batches, write in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.spaces.stores.address import Address
from kedge.spaces.writing.lock import FolderLock

Id: TypeAlias = str | int
Metric: TypeAlias = Literal["cosine", "l2", "ip"]

DOCUMENT = "document"
"""The payload entry with the text of a row, whatever the store itself calls it."""

NOTE = "kedge"
"""The metadata entry in which kedge notes, as JSON, where the vectors come from."""

NO_ID = "has no id (rows are counted from 0)"
"""What is wrong with a row whose id is null; it is named by its row number."""


@dataclass(frozen=True)
class Batch:
    """A batch of rows.

    Parameters
    ----------
    ids : sequence of str or int, length n
    vectors : float array, shape (n, d)
    payloads : sequence of mappings, length n
        Everything else that is stored for each row; its text, if any, under `DOCUMENT`.
    bad : sequence of (id, reason)
        Rows left out of this batch: they have no id, no vector, or a vector of another dimension.
    """

    ids: Sequence[Id]
    vectors: NDArray[np.float32]
    payloads: Sequence[Mapping[str, Any]]
    bad: Sequence[tuple[Id, str]] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int]) -> Batch:
        """The batch with only these rows, and without `bad`."""
        index = np.asarray(rows, dtype=np.int64)
        chosen = index.tolist()
        return Batch([self.ids[row] for row in chosen], self.vectors[index], [self.payloads[row] for row in chosen])


@dataclass(frozen=True)
class Description:
    """What a store holds: `rows` vectors of dimension `dim`, compared by `metric` if known.

    `fields` is the Arrow schema of the payload if the store has one, so that a target with one keeps the types;
    `id_type` is "int" if all ids are known to be integers of at most 64 bits.
    """

    rows: int
    dim: int
    metric: Metric | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: Any = None
    id_type: Literal["int", "str"] = "str"


class Store(ABC):
    """One collection, table, column or file of vectors, which need not exist yet.

    Reading never changes it. Database clients are imported only by the modules in `backends`.
    """

    keeps_payload = True
    is_folder = True  # whether a place that is not a URL is a folder rather than a file
    grows = True  # whether rows can be added after `finish`
    metrics: tuple[Metric, ...] = ("cosine", "l2", "ip")  # those it can search by
    by_graph = False  # whether it searches a graph of neighbours (HNSW), which works badly with inner products

    def __init__(self, address: Address) -> None:
        self.address = address

    @abstractmethod
    def exists(self) -> bool:
        """Whether the store exists, finished or not."""

    @abstractmethod
    def describe(self) -> Description:
        """Describe the store. `rows` counts all rows, even if some share an id."""

    @abstractmethod
    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over all rows, at most `size` at a time, in an order that is stable while nothing is written.

        Without `payload`, only ids and vectors are read, and payloads are empty.
        """

    @abstractmethod
    def fetch(self, ids: Collection[Id]) -> Batch:
        """The existing rows with these ids, in any order."""

    @abstractmethod
    def create(self, like: Description) -> None:
        """Create an empty store for vectors of dimension `like.dim`, with the metric, metadata and fields of `like`."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Add rows. An interruption may leave some of them written; writing the same rows again changes nothing."""

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids of all rows, including bad ones, in the order of `read`; None if an id is null.

        An id is the primary key if the store has one, with several columns as a JSON list, or else its internal id.
        """
        for batch in self.read(size, payload=False):
            yield [*batch.ids, *(None if why == NO_ID else name for name, why in batch.bad)]

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist in the store."""
        return set(self.fetch(ids).ids)

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Why a row with this id and payload cannot be written unchanged, e.g. "has bytes in ..."; None if it can."""
        return None

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Keep other writers out of a `with` block; raises `InputError` if another is writing.

        Yields a function to call before each write; it raises `InputError` if the lock was lost meanwhile. Stores in
        the file system use a lock file whose lock dies with its process.
        """
        with FolderLock(Path(self.address.place), "process", inside=self.is_folder):
            yield lambda: None

    def finish(self) -> None:  # noqa: B027
        """Finish writing, called after the last `write`; most stores have nothing to do."""

    def abandon(self) -> None:  # noqa: B027
        """Delete what `create` and `write` made, if nobody will resume it; databases are left to their own clients."""

    def close(self) -> None:  # noqa: B027
        """Close the client, if it needs closing."""

    def id_of(self, key: Id) -> Id:
        """The id under which this store keeps a row with the id `key`."""
        return key

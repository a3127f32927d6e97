"""What every store can do: say what it holds, be read in batches, be made beside another, be written in batches."""

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
"""The entry of a payload under which the text of a row is found, whatever a store calls it."""

NOTE = "kedge"
"""The entry of a store's metadata in which kedge says, as JSON, where the vectors come from."""

NO_ID = "has no id (rows are counted from 0)"
"""What is wrong with a row whose id is null; such a row is named by its number."""


@dataclass(frozen=True)
class Batch:
    """Some rows of a store.

    Parameters
    ----------
    ids : sequence of str or int, length n
    vectors : float array, shape (n, d)
    payloads : sequence of mappings, length n
        Whatever else is kept of each row; its text, if any, under `DOCUMENT`.
    bad : sequence of (id, reason)
        Rows that were to be in this batch and have no id, no vector, or one of another dimension.
    """

    ids: Sequence[Id]
    vectors: NDArray[np.float32]
    payloads: Sequence[Mapping[str, Any]]
    bad: Sequence[tuple[Id, str]] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int]) -> Batch:
        """Some of the rows, without the bad ones."""
        index = np.asarray(rows, dtype=np.int64)
        chosen = index.tolist()
        return Batch([self.ids[row] for row in chosen], self.vectors[index], [self.payloads[row] for row in chosen])


@dataclass(frozen=True)
class Description:
    """What a store holds: rows of `dim` numbers, compared by `metric` where it says so.

    `fields` is the Arrow schema of the payload where the store has one, so that another that has one keeps its types;
    `id_type` says "int" where all ids are known to be whole numbers of at most 64 bits.
    """

    rows: int
    dim: int
    metric: Metric | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: Any = None
    id_type: Literal["int", "str"] = "str"


class Store(ABC):
    """One collection, table, column or file of vectors, which need not exist yet.

    Reading never changes it. Every client it needs is imported here and nowhere else.
    """

    keeps_payload = True
    is_folder = True  # whether a place that is no URL is a folder, and not a file
    grows = True  # whether rows can be added to one that is finished
    metrics: tuple[Metric, ...] = ("cosine", "l2", "ip")  # those that can be searched by
    by_graph = False  # whether searches follow a graph of neighbours (HNSW), which inner products lead astray

    def __init__(self, address: Address) -> None:
        self.address = address

    @abstractmethod
    def exists(self) -> bool:
        """Whether it exists, finished or not."""

    @abstractmethod
    def describe(self) -> Description:
        """What it holds. `rows` are counted one by one, also where two have the same id."""

    @abstractmethod
    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """All rows, at most `size` at a time, in an order that stays the same while nothing is written.

        Without `payload` nothing but ids and vectors is read, and the payloads are empty.
        """

    @abstractmethod
    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids that are there, in any order."""

    @abstractmethod
    def create(self, like: Description) -> None:
        """Make it, empty, for rows of `like.dim` numbers with `like.metric`, `like.metadata` and `like.fields`."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Add rows: all of them or, if this is interrupted, some. Rows that are there already change nothing."""

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """What identifies each row, also of the bad ones, in the order of `read`; None where an id is null.

        That is the primary key where a store has one, several columns as one JSON list, or the store's internal id.
        """
        for batch in self.read(size, payload=False):
            yield [*batch.ids, *(None if why == NO_ID else name for name, why in batch.bad)]

    def present(self, ids: Collection[Id]) -> set[Id]:
        """Which of these ids are there."""
        return set(self.fetch(ids).ids)

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Why a row with this id and payload cannot be written as it is, such as "has bytes in ..."; None if it can."""
        return None

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Keep other writers out for as long as the context lasts; an `InputError` where another is writing.

        Gives a function to call before each write, which raises `InputError` if the lock was lost meanwhile. What is
        in this file system is locked by a file whose lock dies with its process.
        """
        with FolderLock(Path(self.address.place), "process", inside=self.is_folder):
            yield lambda: None

    def finish(self) -> None:  # noqa: B027
        """Called when everything is written; most stores have nothing left to do then."""

    def abandon(self) -> None:  # noqa: B027
        """Delete what `create` and `write` made of it, which nobody goes on with; databases are left to clients."""

    def close(self) -> None:  # noqa: B027
        """Let go of the client, where it wants that."""

    def id_of(self, key: Id) -> Id:
        """The id under which this store keeps a row that has the id `key` elsewhere."""
        return key

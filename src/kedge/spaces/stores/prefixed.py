"""A store read with a prefix on its ids, so that they do not clash with those of another store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from kedge.spaces.stores.store import Batch, Description, Id, Store


class PrefixedStore(Store):
    """A read-only view of another store whose ids get a `prefix`."""

    def __init__(self, store: Store, prefix: str) -> None:
        super().__init__(store.address)
        self._store, self._prefix = store, prefix

    def exists(self) -> bool:
        """Whether the store exists."""
        return self._store.exists()

    def describe(self) -> Description:
        """Describe the store; the ids are text."""
        return replace(self._store.describe(), id_type="str")

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over all rows."""
        for batch in self._store.read(size, payload=payload):
            yield replace(batch, ids=[self._longer(name) for name in batch.ids])

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids with the prefix; None if an id is null."""
        for names in self._store.ids(size):
            yield [None if name is None else self._longer(name) for name in names]

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids, given with the prefix."""
        found = self._store.fetch([str(name).removeprefix(self._prefix) for name in ids])
        return replace(found, ids=[self._longer(name) for name in found.ids])

    def create(self, like: Description) -> None:
        """Not supported: the view is read-only."""
        raise NotImplementedError(f"{self.address} is read under other ids, not written")

    def write(self, batch: Batch) -> None:
        """Not supported: the view is read-only."""
        raise NotImplementedError(f"{self.address} is read under other ids, not written: {len(batch)} rows")

    def _longer(self, name: Id) -> str:
        return f"{self._prefix}{name}"

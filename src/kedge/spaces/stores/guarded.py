"""A store whose client's errors become one clear line that names the address and shows no secret."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from kedge.errors import InputError, KedgeError
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.store import Batch, Description, Id, Store


class GuardedStore(Store):
    """Passes everything on to the store that `make` makes of the address."""

    def __init__(self, address: Address, make: Callable[[Address], Store]) -> None:
        super().__init__(address)
        with self._guard():
            self._store = make(address)
        self.keeps_payload = self._store.keeps_payload

    def exists(self) -> bool:  # noqa: D102
        with self._guard():
            return self._store.exists()

    def describe(self) -> Description:  # noqa: D102
        with self._guard():
            if not self._store.exists():
                raise InputError(f"{self.address}: there is nothing of that name")
            return self._store.describe()

    def read(self, size: int) -> Iterator[Batch]:  # noqa: D102
        with self._guard():
            batches = self._store.read(size)
        while True:
            with self._guard():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def fetch(self, ids: Collection[Id]) -> Batch:  # noqa: D102
        with self._guard():
            return self._store.fetch(ids)

    def present(self, ids: Collection[Id]) -> set[Id]:  # noqa: D102
        with self._guard():
            return self._store.present(ids)

    def create(self, like: Description) -> None:  # noqa: D102
        with self._guard():
            self._store.create(like)

    def write(self, batch: Batch) -> None:  # noqa: D102
        if len(batch):
            with self._guard():
                self._store.write(batch)

    def finish(self) -> None:  # noqa: D102
        with self._guard():
            self._store.finish()

    def abandon(self) -> None:  # noqa: D102
        with self._guard():
            self._store.abandon()

    def close(self) -> None:  # noqa: D102
        with self._guard():
            self._store.close()

    def id_of(self, key: Id) -> Id:  # noqa: D102
        with self._guard():
            return self._store.id_of(key)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (KedgeError, MemoryError):
            raise
        except Exception as error:  # whatever a client stumbles over
            told = " ".join(str(error).split()) or type(error).__name__
            # The client's own error may show what was hidden here, so it does not travel along.
            raise InputError(f"{self.address}: {self.address.hide(told)}") from None

"""A wrapper that turns errors of a store's client into one clear line with the address and without secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from kedge.errors import InputError, KedgeError
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.store import Batch, Description, Id, Store

_T = TypeVar("_T")


class GuardedStore(Store):
    """Delegates everything to the store that `make` makes from the address."""

    def __init__(self, address: Address, make: Callable[[Address], Store]) -> None:
        super().__init__(address)
        with self._guard():
            self._store = make(address)
        self.keeps_payload = self._store.keeps_payload
        self.is_folder = self._store.is_folder
        self.grows, self.metrics, self.by_graph = self._store.grows, self._store.metrics, self._store.by_graph

    def exists(self) -> bool:  # noqa: D102
        with self._guard():
            return self._store.exists()

    def describe(self) -> Description:  # noqa: D102
        with self._guard():
            if self.address.kind and not self._store.exists():  # a file says itself what is wrong
                raise InputError(f"{self.address}: there is nothing of that name")
            return self._store.describe()

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:  # noqa: D102
        with self._guard():
            batches = self._store.read(size, payload=payload)
        yield from self._each(batches)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:  # noqa: D102
        with self._guard():
            ids = self._store.ids(size)
        yield from self._each(ids)

    def fetch(self, ids: Collection[Id]) -> Batch:  # noqa: D102
        with self._guard():
            return self._store.fetch(ids)

    def present(self, ids: Collection[Id]) -> set[Id]:  # noqa: D102
        with self._guard():
            return self._store.present(ids)

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: D102
        with self._guard():
            return self._store.unfit(key, payload)

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:  # noqa: D102
        with ExitStack() as stack:
            with self._guard():
                require_held = stack.enter_context(self._store.lock())
            yield require_held

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

    def _each(self, parts: Iterator[_T]) -> Iterator[_T]:
        while True:
            with self._guard():
                part = next(parts, None)
            if part is None:
                return
            yield part

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (KedgeError, MemoryError):
            raise
        except Exception as error:  # anything a client may raise
            message = " ".join(str(error).split()) or type(error).__name__
            # No chaining: the client's own error may show the secrets hidden here.
            raise InputError(f"{self.address}: {self.address.hide(message)}") from None

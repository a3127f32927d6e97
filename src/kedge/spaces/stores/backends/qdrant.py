"""Qdrant: a folder of its client's local mode, or its server."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams

from kedge.errors import InputError
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.backends.qdrant_points import (
    DISTANCES,
    METRICS,
    ORIGINAL,
    chosen_vector,
    point_id,
    point_payload,
    row_id,
    row_ids,
    rows_of,
    unfit_point,
)
from kedge.spaces.stores.marker import MARKER, WriterMarker
from kedge.spaces.stores.store import Batch, Description, Id, Store

_API_KEY = "QDRANT_API_KEY"
_PATIENCE = 60  # seconds for one answer; the client's own five are few for a page of vectors
_MAX_POINTS = 128  # per request: servers take no more than 32 MB


class QdrantStore(Store):
    """A collection, or COLLECTION/VECTOR where its points have several vectors.

    The key of a server is taken from the variable QDRANT_API_KEY; one before 1.16 keeps no metadata.
    """

    by_graph = True

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._name, _, self._wanted = address.name.partition("/")
        self._client = _server(address.place) if address.is_url else None
        self._found: tuple[str, VectorParams] | None = None

    def exists(self) -> bool:
        """Whether the collection is there; a folder is opened only if it is Qdrant's, since opening makes one."""
        if self._client is None:
            folder = Path(self.address.place)
            if not (folder / "meta.json").is_file():
                if folder.exists() and not folder.is_dir():
                    raise InputError(f"{self.address}: a folder is needed, {str(folder)!r} is a file")
                return False
        return self._opened().collection_exists(self._name)

    def describe(self) -> Description:
        """What the collection holds."""
        _, params = self._vector()
        metadata = self._opened().get_collection(self._name).config.metadata or {}
        return Description(
            self._rows(),
            params.size,
            METRICS.get(params.distance.value),
            {name: str(value) for name, value in metadata.items()},
        )

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """The rows in the order of Qdrant's ids."""
        name, params = self._vector()
        for records in self._pages(size, payload or [ORIGINAL], [name] if name else True):
            yield rows_of(records, name, params.size)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """The ids in the same order, without a look at the vectors."""
        for records in self._pages(size, [ORIGINAL], False):
            yield row_ids(records)

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        name, params = self._vector()
        points = [point_id(key) for key in ids]
        return rows_of(self._retrieve(points, True, [name] if name else True), name, params.size)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """Those of the ids that are there, without a look at the vectors."""
        points = [point_id(key) for key in ids]
        return set(row_ids(self._opened().retrieve(self._name, points, with_payload=[ORIGINAL]))) if points else set()

    def create(self, like: Description) -> None:
        """Make the collection, with the metric of `like`. Where that is cosine, Qdrant keeps unit vectors."""
        params = VectorParams(size=like.dim, distance=Distance(DISTANCES[like.metric or "cosine"]))
        self._opened().create_collection(
            self._name,
            vectors_config={self._wanted: params} if self._wanted else params,
            metadata=dict(like.metadata) or None,
        )

    def write(self, batch: Batch) -> None:
        """Add rows, no more at once than a server takes."""
        name, _ = self._vector()
        points = [
            PointStruct(
                id=point_id(key),
                vector={name: vector.tolist()} if name else vector.tolist(),
                payload=point_payload(key, payload),
            )
            for key, vector, payload in zip(batch.ids, batch.vectors, batch.payloads, strict=True)
        ]
        for begin in range(0, len(points), _MAX_POINTS):
            self._opened().upsert(self._name, points[begin : begin + _MAX_POINTS])

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Points have no bytes, and one entry is kedge's own."""
        return unfit_point(payload)

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Keep other writers out: of a folder by a lock, of a server's collection by a marker beside it."""
        if not self.address.is_url:
            with super().lock() as require_held:
                yield require_held
            return
        beside = replace(self.address, name=self._name + MARKER)
        with WriterMarker(lambda: QdrantStore(beside), _delete, str(self.address)) as marker:
            yield marker.require_held

    def close(self) -> None:
        """Let go of the client."""
        if self._client is not None and self.address.is_url:
            self._client.close()
        elif self._client is not None:
            _LOCAL.let_go(self.address.place)
        self._client = None

    def id_of(self, key: Id) -> Id:
        """A number where it can be one."""
        return row_id(key)

    def _opened(self) -> QdrantClient:
        if self._client is None:
            self._client = _LOCAL.take(self.address.place)
        return self._client

    def _vector(self) -> tuple[str, VectorParams]:
        """The name of the vector, empty where it has none, and what is known of it."""
        if self._found is None:
            vectors = self._opened().get_collection(self._name).config.params.vectors or {}
            named = vectors if isinstance(vectors, dict) else {"": vectors}
            dense = {name: params for name, params in named.items() if params.multivector_config is None}
            form = f"name it: #{self._name}/VECTOR"
            name = chosen_vector(dense, self._wanted, self.address, form)
            self._found = name, dense[name]
        return self._found

    def _rows(self) -> int:
        return int(self._opened().count(self._name, exact=True).count)

    def _pages(self, size: int, payload: bool | list[str], vectors: bool | list[str]) -> Iterator[Sequence[Any]]:
        if not self.address.is_url:
            # Each scroll of the local mode sorts all ids, so that is asked for once.
            found, _ = self._opened().scroll(self._name, limit=max(self._rows(), 1), with_payload=False)
            ids = [record.id for record in found]
            for begin in range(0, len(ids), size):
                yield self._retrieve(ids[begin : begin + size], payload, vectors)
            return
        following: Any = None
        while True:
            found, following = self._opened().scroll(
                self._name, limit=size, offset=following, with_payload=payload, with_vectors=vectors
            )
            if found:
                yield found
            if following is None:
                return

    def _retrieve(self, points: Sequence[Any], payload: bool | list[str], vectors: bool | list[str]) -> Sequence[Any]:
        if not points:
            return []
        return self._opened().retrieve(self._name, points, with_payload=payload, with_vectors=vectors)


def _delete(store: Store) -> None:
    assert isinstance(store, QdrantStore)
    store._opened().delete_collection(store._name)


class _LocalClients:
    """One client per folder, since it locks out any other, and both sides of a migration may be in one folder."""

    def __init__(self) -> None:
        self._clients: dict[Path, QdrantClient] = {}
        self._users: Counter[Path] = Counter()

    def take(self, place: str) -> QdrantClient:
        folder = Path(place).resolve()
        if folder not in self._clients:
            self._clients[folder] = QdrantClient(path=str(folder))
        self._users[folder] += 1
        return self._clients[folder]

    def let_go(self, place: str) -> None:
        folder = Path(place).resolve()
        self._users[folder] -= 1
        if not self._users[folder]:
            self._clients.pop(folder).close()


_LOCAL = _LocalClients()


def _server(place: str) -> QdrantClient:
    # The check of versions would ask the server at once, and only warn.
    return QdrantClient(url=place, api_key=os.environ.get(_API_KEY), timeout=_PATIENCE, check_compatibility=False)

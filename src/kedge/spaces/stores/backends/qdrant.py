"""Qdrant: a folder of its client's local mode, or a server."""

from __future__ import annotations

import json
import os
import pickle
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from io import BytesIO
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
_PATIENCE = 60  # timeout in seconds; the client's default of 5 is short for a page of vectors
_MAX_POINTS = 128  # per request: servers accept at most 32 MB
# What the client pickles in a local folder; older versions also kept these values of a payload as they were.
_PICKLED = {
    "qdrant_client.http.models.models": {"PointStruct", "SparseVector"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "uuid": {"UUID"},
}
_SCHEMA = "CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)"
_REFUSED_NAME = re.compile(r'|\.|\.\.|.*[<>:"/\\|?*\0\x1f].*|.{256,}', re.DOTALL)


class QdrantStore(Store):
    """A collection, or COLLECTION/VECTOR if its points have several vectors.

    The key for a server is read from the environment variable QDRANT_API_KEY. Servers before 1.16 keep no metadata.
    """

    by_graph = True

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._name, _, self._wanted = address.name.partition("/")
        self._client = _server(address.place) if address.is_url else None
        self._found: tuple[str, VectorParams] | None = None

    def exists(self) -> bool:
        """Whether the collection exists; only an existing Qdrant folder is opened, since opening would create one."""
        if self._client is None:
            folder = Path(self.address.place)
            if not (folder / "meta.json").is_file():
                if folder.exists() and not folder.is_dir():
                    raise InputError(f"{self.address}: a folder is needed, {str(folder)!r} is a file")
                return False
        return self._opened().collection_exists(self._name)

    def describe(self) -> Description:
        """Describe the collection."""
        _, params = self._vector()
        metadata = self._opened().get_collection(self._name).config.metadata or {}
        return Description(
            self._rows(),
            params.size,
            METRICS.get(params.distance.value),
            {name: str(value) for name, value in metadata.items()},
        )

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows in the order of Qdrant's ids."""
        name, params = self._vector()
        for records in self._pages(size, payload or [ORIGINAL], [name] if name else True):
            yield rows_of(records, name, params.size)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids in the same order, without reading vectors."""
        for records in self._pages(size, [ORIGINAL], False):
            yield row_ids(records)

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        name, params = self._vector()
        points = [point_id(key) for key in ids]
        return rows_of(self._retrieve(points, True, [name] if name else True), name, params.size)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist, without reading vectors."""
        points = [point_id(key) for key in ids]
        return set(row_ids(self._opened().retrieve(self._name, points, with_payload=[ORIGINAL]))) if points else set()

    def create(self, like: Description) -> None:
        """Create the collection, with the metric of `like`. With cosine, Qdrant normalises vectors to unit norm."""
        # The client refuses these names too, but only after it has made a folder.
        names = (self._name, self._wanted or self._name)
        if not self.address.is_url and any(map(_REFUSED_NAME.fullmatch, names)):
            raise InputError(
                f'{self.address}: a name in Qdrant has at most 255 characters, none of them < > : " / \\ | ? or *, and '
                "is not . or ..; choose another"
            )
        params = VectorParams(size=like.dim, distance=Distance(DISTANCES[like.metric or "cosine"]))
        self._opened().create_collection(
            self._name,
            vectors_config={self._wanted: params} if self._wanted else params,
            metadata=dict(like.metadata) or None,
        )

    def write(self, batch: Batch) -> None:
        """Add rows, at most as many at once as a server accepts."""
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
        """Points cannot hold bytes, and kedge reserves one payload entry."""
        return unfit_point(payload)

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Keep other writers out: of a folder with a lock, of a collection on a server with a marker beside it."""
        if not self.address.is_url:
            with super().lock() as require_held:
                yield require_held
            return
        beside = replace(self.address, name=self._name + MARKER)
        with WriterMarker(lambda: QdrantStore(beside), _delete, str(self.address)) as marker:
            yield marker.require_held

    def close(self) -> None:
        """Close the client; a local one only if nobody else uses its folder."""
        if self._client is not None and self.address.is_url:
            self._client.close()
        elif self._client is not None:
            _LOCAL.let_go(self.address)
        self._client = None

    def id_of(self, key: Id) -> Id:
        """The id as an integer if possible, else as text."""
        return row_id(key)

    def _opened(self) -> QdrantClient:
        if self._client is None:
            self._client = _LOCAL.take(self.address)
        return self._client

    def _vector(self) -> tuple[str, VectorParams]:
        """The name of the vector, empty if it has none, and its parameters."""
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
            # Each scroll in local mode sorts all ids, so scroll only once.
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
    """One shared client per folder: a client locks out others, and both sides of a migration may be in one folder."""

    def __init__(self) -> None:
        self._clients: dict[Path, QdrantClient] = {}
        self._users: Counter[Path] = Counter()

    def take(self, address: Address) -> QdrantClient:
        folder = Path(address.place).resolve()
        if folder not in self._clients:
            _require_plain(folder, address)
            self._clients[folder] = QdrantClient(path=str(folder))
        self._users[folder] += 1
        return self._clients[folder]

    def let_go(self, address: Address) -> None:
        folder = Path(address.place).resolve()
        self._users[folder] -= 1
        if not self._users[folder]:
            self._clients.pop(folder).close()


_LOCAL = _LocalClients()


def _require_plain(folder: Path, address: Address) -> None:
    """Raise `InputError` if opening this folder could run code from it: the client unpickles all points.

    Pickles have no branches, so that one which names nothing but `_PICKLED` here names nothing else in the client.
    """
    if not (folder / "meta.json").is_file():
        return
    for name in json.loads((folder / "meta.json").read_text())["collections"]:  # decoded as the client does
        storage = folder / "collection" / name / "storage.sqlite"
        try:
            if storage.is_file():
                _require_plain_points(storage)
            elif any(storage.parent.glob("storage.dbm*")):
                raise pickle.UnpicklingError("a format of old clients")
        except Exception as error:  # anything that damaged data may raise
            why = " ".join(str(error).split()) or type(error).__name__
            raise InputError(
                f"{address}: not opened, since Qdrant's client unpickles what is in the folder, which can run code, "
                f"and {str(storage)!r} does not hold points alone ({why}); if you trust it, copy it to a new folder or "
                "a server with Qdrant's client"
            ) from None


def _require_plain_points(storage: Path) -> None:
    # A killed writer leaves a journal, without which the points are not whole, and which SQLite has to write back.
    mode = "rw" if storage.with_name(f"{storage.name}-journal").exists() else "ro"
    with closing(sqlite3.connect(f"{storage.absolute().as_uri()}?mode={mode}", uri=True)) as database:
        # A view or another index could show other points here than in the client.
        made = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        if made not in ([], [(_SCHEMA,)]):
            raise pickle.UnpicklingError("another table, index or view")
        for (point,) in database.execute("SELECT point FROM points ORDER BY rowid") if made else ():
            _PlainUnpickler(BytesIO(point)).load()


class _PlainUnpickler(pickle.Unpickler):
    """Runs nothing: in place of what it knows by name, it makes objects that do nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Stand in for what the client pickles, and refuse anything else."""
        if name not in _PICKLED.get(module, ()):
            raise pickle.UnpicklingError(f"a pickle of {f'{module}.{name}'[:80]!r}")
        return _Nothing


class _Nothing:
    def __new__(cls, *_: object, **__: object) -> _Nothing:
        return super().__new__(cls)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __setstate__(self, _: object) -> None:
        pass


def _server(place: str) -> QdrantClient:
    # The version check would contact the server right away, and only warn.
    return QdrantClient(url=place, api_key=os.environ.get(_API_KEY), timeout=_PATIENCE, check_compatibility=False)

"""Chroma: a folder of its persistent client, or a server."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import chromadb
import numpy as np
from chromadb.config import Settings
from chromadb.errors import NotFoundError

from kedge.errors import InputError
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.marker import MARKER, WriterMarker
from kedge.spaces.stores.payloads import as_json, as_number_text, unfit_for_json
from kedge.spaces.stores.store import DOCUMENT, Batch, Description, Id, Metric, Store

_TOKEN = "CHROMA_TOKEN"
_INCLUDED = ("embeddings", "metadatas", "documents")
_INT64 = range(-(2**63), 2**63)


class ChromaStore(Store):
    """A collection. The token for a server is read from the environment variable CHROMA_TOKEN."""

    by_graph = True

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._client = _server(address.place) if address.is_url else None
        self._opened: Any = None

    def exists(self) -> bool:
        """Whether the collection exists."""
        return self._collection() is not None

    def describe(self) -> Description:
        """Describe the collection; the dimension of an empty one is 0."""
        collection = self._collection()
        first = collection.get(limit=1, include=["embeddings"])["embeddings"]
        space = (collection.configuration_json.get("hnsw") or {}).get("space")
        metadata = {name: str(value) for name, value in (collection.metadata or {}).items()}
        metric = space if space in get_args(Metric) else None
        return Description(collection.count(), first.shape[1] if len(first) else 0, metric, metadata)

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows in Chroma's internal order."""
        collection, begin = self._collection(), 0
        included = list(_INCLUDED) if payload else ["embeddings"]
        while True:
            batch = _batch(collection.get(limit=size, offset=begin, include=included))
            if not len(batch):
                return
            yield batch
            begin += len(batch)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids in the same order, without reading vectors."""
        collection, begin = self._collection(), 0
        while found := collection.get(limit=size, offset=begin, include=[])["ids"]:
            yield found
            begin += len(found)

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        return _batch(self._collection().get(ids=[str(name) for name in ids], include=list(_INCLUDED)))

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist, without reading vectors."""
        return set(self._collection().get(ids=[str(name) for name in ids], include=[])["ids"]) if ids else set()

    def create(self, like: Description) -> None:
        """Create the collection, with the metric of `like`."""
        client = self._client = self._client or chromadb.PersistentClient(self.address.place, settings=_settings())
        self._opened = client.create_collection(
            self.address.name,
            metadata=dict(like.metadata) or None,
            configuration={"hnsw": {"space": like.metric or "cosine"}},
            embedding_function=None,
        )

    def write(self, batch: Batch) -> None:
        """Add rows, at most as many at once as Chroma accepts."""
        limit = self._client.get_max_batch_size() if self._client else len(batch)
        documents = [_document(payload) for payload in batch.payloads]
        for begin in range(0, len(batch), limit):
            part = slice(begin, begin + limit)
            self._collection().upsert(
                ids=[str(name) for name in batch.ids[part]],
                embeddings=batch.vectors[part],
                metadatas=[_metadata(payload) for payload in batch.payloads[part]],
                documents=documents[part] if any(text is not None for text in documents[part]) else None,
            )

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:
        """Chroma has no type for bytes, allows no empty id, and reserves some entry names."""
        if not str(key):
            return "has an empty id, which Chroma does not accept"
        own = [name for name in payload if not name or name.startswith(("#", "$", "chroma:"))]
        return unfit_for_json(payload, reserved=own)

    @contextmanager
    def lock(self) -> Iterator[Callable[[], None]]:
        """Keep other writers out: of a folder with a lock, of a collection on a server with a marker beside it."""
        if not self.address.is_url:
            with super().lock() as require_held:
                yield require_held
            return
        beside = replace(self.address, name=self.address.name + MARKER)
        with WriterMarker(lambda: ChromaStore(beside), _delete, str(self.address)) as marker:
            yield marker.require_held

    def close(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            self._client.close()

    def id_of(self, key: Id) -> Id:
        """The id as text, like all ids in Chroma."""
        return str(key)

    def _collection(self) -> Any:
        """The collection, or None; only an existing Chroma folder is opened, since opening would create one."""
        if self._opened is None:
            if self._client is None:
                folder = Path(self.address.place)
                if not (folder / "chroma.sqlite3").is_file():
                    if folder.exists() and not folder.is_dir():
                        raise InputError(f"{self.address}: a folder is needed, {str(folder)!r} is a file")
                    return None
                self._client = chromadb.PersistentClient(str(folder), settings=_settings())
            try:
                self._opened = self._client.get_collection(self.address.name, embedding_function=None)
            except NotFoundError:
                return None
        return self._opened


def _settings() -> Settings:
    return Settings(anonymized_telemetry=False)


def _server(place: str) -> Any:
    url, token = urlsplit(place), os.environ.get(_TOKEN)
    secure = url.scheme == "https"
    return chromadb.HttpClient(
        host=url.hostname or "",
        port=url.port or (443 if secure else 8000),
        ssl=secure,
        headers={"Authorization": f"Bearer {token}"} if token else None,
        settings=_settings(),
    )


def _delete(store: Store) -> None:
    assert isinstance(store, ChromaStore)
    assert store._client is not None, "a server has one"
    store._client.delete_collection(store.address.name)


def _batch(got: Mapping[str, Any]) -> Batch:
    payloads: list[dict[str, Any]] = []
    nothing = [None] * len(got["ids"])
    for metadata, document in zip(got["metadatas"] or nothing, got["documents"] or nothing, strict=True):
        payloads.append(dict(metadata or {}) | ({} if document is None else {DOCUMENT: document}))
    return Batch(got["ids"], np.asarray(got["embeddings"], dtype=np.float32), payloads)


def _document(payload: Mapping[str, Any]) -> str | None:
    document = payload.get(DOCUMENT)
    return document if isinstance(document, str) else None


def _metadata(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """The payload as Chroma accepts it: no None, numbers that it would change as text, nested values as JSON."""
    kept = {
        name: value
        for name, value in payload.items()
        if value is not None and not (name == DOCUMENT and isinstance(value, str))
    }
    return {name: value if _is_plain(value) else _as_text(value) for name, value in kept.items()} or None


def _as_text(value: Any) -> str:
    if isinstance(value, float):
        return as_number_text(value)
    return as_json(value) if isinstance(value, dict | list | tuple) else str(value)


def _is_plain(value: object) -> bool:
    """Whether Chroma returns the value unchanged; it drops NaN, and turns large integers into floats."""
    if isinstance(value, list):
        one_type = len({type(part) for part in value}) == 1 and isinstance(value[0], str | int | float)
        return one_type and all(map(_is_plain, value))
    if isinstance(value, int):
        return value in _INT64
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))

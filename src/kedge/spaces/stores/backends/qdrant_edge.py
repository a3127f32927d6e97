"""Qdrant Edge: a shard in a folder, used by Qdrant's engine within this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    Point,
    ScrollRequest,
    UpdateOperation,
)

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
from kedge.spaces.stores.store import Batch, Description, Id, Store
from kedge.spaces.writing.atomic import atomic_path

_CONFIG = "edge_config.json"  # written by the engine, which has no call to read it
_METADATA = "kedge.json"  # in a file, since shards keep no metadata


class QdrantEdgeStore(Store):
    """A shard. Fast search needs `EdgeShard.optimize`, which is left to whoever searches it."""

    by_graph = True

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._folder = Path(address.place)
        self._shard: EdgeShard | None = None
        self._found: tuple[str, dict[str, Any]] | None = None

    def exists(self) -> bool:
        """Whether the folder holds a shard."""
        if self._folder.exists() and not self._folder.is_dir():
            raise InputError(f"{self.address}: a folder is needed, {str(self._folder)!r} is a file")
        whole = (self._folder / _CONFIG).is_file() or any((self._folder / "segments").glob("*/segment.json"))
        # Without either, a folder of kedge's is what a killed creation left; another's is the engine's to judge.
        return whole or ((self._folder / "segments").is_dir() and not (self._folder / _METADATA).is_file())

    def describe(self) -> Description:
        """Describe the shard."""
        _, params = self._vector()
        kept = self._folder / _METADATA
        metadata = json.loads(kept.read_text("utf-8")) if kept.is_file() else {}
        rows = self._opened().count(CountRequest(exact=True))
        return Description(rows, params["size"], METRICS.get(params["distance"]), metadata)

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows in the order of Qdrant's ids."""
        name, params = self._vector()
        for records in self._pages(size, payload or [ORIGINAL], vectors=True):
            yield rows_of(records, name, params["size"])

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the ids in the same order, without reading vectors."""
        for records in self._pages(size, [ORIGINAL], vectors=False):
            yield row_ids(records)

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids."""
        name, params = self._vector()
        return rows_of(self._opened().retrieve([point_id(key) for key in ids], True, True), name, params["size"])

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist, without reading vectors."""
        return set(row_ids(self._opened().retrieve([point_id(key) for key in ids], [ORIGINAL], False)))

    def create(self, like: Description) -> None:
        """Create the shard, with the metric of `like`. With cosine, Qdrant normalises vectors to unit norm."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if (self._folder / _METADATA).is_file() and not self.exists():  # left by a creation that was killed
            for part in ("segments", "wal"):
                shutil.rmtree(self._folder / part, ignore_errors=True)
        with atomic_path(self._folder / _METADATA) as temporary:
            temporary.write_text(json.dumps(dict(like.metadata)), "utf-8")
        params = EdgeVectorParams(like.dim, getattr(Distance, DISTANCES[like.metric or "cosine"]))
        self._shard = EdgeShard.create(str(self._folder), EdgeConfig(params))

    def write(self, batch: Batch) -> None:
        """Add rows; once this returns, they are in the engine's log and survive a kill."""
        name, _ = self._vector()
        points = [
            Point(point_id(key), {name: vector.tolist()} if name else vector.tolist(), point_payload(key, payload))
            for key, vector, payload in zip(batch.ids, batch.vectors, batch.payloads, strict=True)
        ]
        self._opened().update(UpdateOperation.upsert_points(points))

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Points cannot hold bytes, and kedge reserves one payload entry."""
        return unfit_point(payload)

    def close(self) -> None:
        """Close the shard, which holds a lock on the folder."""
        if self._shard is not None:
            self._shard.close()

    def id_of(self, key: Id) -> Id:
        """The id as an integer if possible, else as text."""
        return row_id(key)

    def _opened(self) -> EdgeShard:
        if self._shard is None:
            self._shard = EdgeShard.load(str(self._folder))
        return self._shard

    def _pages(self, size: int, payload: bool | list[str], *, vectors: bool) -> Iterator[Sequence[Any]]:
        following: Any = None
        while True:
            asked = ScrollRequest(limit=size, offset=following, with_payload=payload, with_vector=vectors)
            found, following = self._opened().scroll(asked)
            if found:
                yield found
            if following is None:
                return

    def _vector(self) -> tuple[str, dict[str, Any]]:
        """The name of the vector, empty if it has none, and its parameters."""
        if self._found is None:
            self._opened()  # writes the configuration if a shard, e.g. from a snapshot, has none
            vectors = json.loads((self._folder / _CONFIG).read_text("utf-8"))["vectors"]
            dense = {name: params for name, params in vectors.items() if not params.get("multivector_config")}
            name = chosen_vector(dense, "", self.address, "shards with several are not read")
            self._found = name, dense[name]
        return self._found

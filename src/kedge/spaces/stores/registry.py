"""The kinds of stores: their addresses, extras and modules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kedge.extras import needing
from kedge.spaces.stores.address import Address, as_address, is_address
from kedge.spaces.stores.guarded import GuardedStore
from kedge.spaces.stores.store import Store


@dataclass(frozen=True)
class StoreKind:
    """A kind of store: its forms of address, what it needs, and the class that reads and writes it."""

    name: str
    addresses: tuple[str, ...]
    packages: tuple[str, ...]  # import names
    extra: str
    home: str  # module:class

    @property
    def installed(self) -> bool:
        """Whether the packages it needs are installed."""
        return all(find_spec(package) is not None for package in self.packages)


_KINDS = (
    StoreKind(
        "chroma",
        ("chroma:DIR#COLLECTION", "chroma:http://HOST:PORT#COLLECTION"),
        ("chromadb",),
        "chroma",
        "chroma:ChromaStore",
    ),
    StoreKind("lancedb", ("lancedb:DIR#TABLE",), ("lancedb",), "lancedb", "lance:LanceStore"),
    StoreKind(
        "qdrant",
        ("qdrant:DIR#COLLECTION", "qdrant:http://HOST:PORT#COLLECTION"),
        ("qdrant_client",),
        "qdrant",
        "qdrant:QdrantStore",
    ),
    StoreKind("qdrant-edge", ("qdrant-edge:DIR",), ("qdrant_edge",), "qdrant-edge", "qdrant_edge:QdrantEdgeStore"),
    StoreKind(
        "pgvector",
        ("pgvector:postgresql://USER@HOST/DB#TABLE.COLUMN",),
        ("psycopg",),
        "pgvector",
        "postgres:PostgresStore",
    ),
    StoreKind(
        "sqlite-vec", ("sqlite-vec:FILE#TABLE",), ("apsw", "sqlite_vec"), "sqlite-vec", "sqlite_vec:SqliteVecStore"
    ),
    StoreKind("faiss", ("faiss:FILE",), ("faiss",), "faiss", "faiss_index:FaissStore"),
    StoreKind(
        "parquet", ("parquet:DIR", "parquet:DIR#KEYS,VECTORS"), ("pyarrow",), "parquet", "parquet_folder:ParquetStore"
    ),
)
STORE_KINDS = {kind.name: kind for kind in _KINDS}


@contextmanager
def open_store(address: str | Path | Address) -> Iterator[Store]:
    """Open a store, or a file of vectors as one, for a `with` block.

    Whatever a store's client raises becomes an `InputError` with the address, without its secrets.
    """
    store = _store_at(address)
    try:
        yield store
    finally:
        store.close()


def _store_at(address: str | Path | Address) -> Store:
    if not is_address(address):
        from kedge.spaces.stores.backends.single_file import FileStore

        return GuardedStore(Address.of_file(Path(address)), FileStore)  # type: ignore[arg-type]
    where = as_address(address)
    kind = STORE_KINDS[where.kind]
    module, _, name = kind.home.partition(":")
    with needing(f"{where}: needs", *kind.packages, install=f"kedge[{kind.extra}]"):
        for package in kind.packages:
            importlib.import_module(package)
        made = getattr(importlib.import_module(f"kedge.spaces.stores.backends.{module}"), name)
    return GuardedStore(where, made)

"""Read and write stores as spaces: all rows at once, with ids as keys."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, KedgeError, did_you_mean
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.packed_bits import unpack_numbers
from kedge.spaces.selection import Selection
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.registry import open_store
from kedge.spaces.stores.store import DOCUMENT, NO_ID, Batch, Description

_ROWS = 2000


def read_space(address: Address, selection: Selection, *, packed: bool = False, dims: int | None = None) -> Embeddings:
    """Read the selected rows of a store, in its order; raises `InputError` if one has no id or no vector."""
    with open_store(address) as store:
        about = store.describe()
        limit = min(about.rows, selection.limit or about.rows)
        keys: list[str] = []
        vectors = np.empty((limit, about.dim), dtype=np.float32)
        for batch in store.read(min(_ROWS, max(limit, 1)), payload=False):
            wanted = [row for row, name in enumerate(batch.ids) if selection.wants(str(name))]
            bad = [(name, why) for name, why in batch.bad if why == NO_ID or selection.wants(str(name))]
            if bad:
                raise InputError(
                    f"{address}: row {bad[0][0]!r} {bad[0][1]}; give it one, or read a table or view without such rows"
                )
            wanted = wanted[: limit - len(keys)]
            vectors[len(keys) : len(keys) + len(wanted)] = batch.vectors[wanted]
            keys += [str(batch.ids[row]) for row in wanted]
            if len(keys) == limit:
                break
    if not keys and selection.keys is not None:
        raise InputError(f"{address}: none of the {len(selection.keys)} wanted keys is in it")
    found = vectors[: len(keys)]
    if packed:
        found = unpack_numbers(found, str(address))
    space = Embeddings(keys, found, str(address))
    return space if dims is None else space.first_dims(dims)


def read_space_with_field(
    address: str | Path | Address, name: str, *, limit: int | None = None
) -> tuple[Embeddings, list[Any]]:
    """Read all rows of a store, or the first `limit`, and the payload entry `name` of each, or None."""
    keys: list[str] = []
    parts: list[NDArray[np.float32]] = []
    values: list[Any] = []
    seen: set[str] = set()
    with open_store(address) as store:
        for batch in store.read(_ROWS):
            if batch.bad:
                raise InputError(f"{address}: row {batch.bad[0][0]!r} {batch.bad[0][1]}; give it one")
            keys += [str(key) for key in batch.ids]
            parts.append(np.asarray(batch.vectors, dtype=np.float32))
            values += [payload.get(name) for payload in batch.payloads]
            seen.update(*batch.payloads)
            if limit is not None and len(keys) >= limit:
                break
    if name not in seen:
        known = f"it has {', '.join(sorted(seen))}" if seen else "it has no payload"
        raise InputError(f"{address}: no row has a field {name!r} in its payload; {known}{did_you_mean(name, seen)}")
    space = Embeddings(keys[:limit], np.concatenate(parts)[:limit], str(address))
    return space, values[:limit]


def read_texts(address: Address, keys: Collection[str]) -> dict[str, str]:
    """Read the texts of the rows with these keys, by key; rows without a text are left out."""
    wanted, texts = set(keys), {}
    with open_store(address) as store:
        for batch in store.read(_ROWS):
            for name, payload in zip(batch.ids, batch.payloads, strict=True):
                text = payload.get(DOCUMENT)
                if isinstance(text, str) and str(name) in wanted:
                    texts[str(name)] = text
    return texts


def write_space(space: Embeddings, address: Address) -> None:
    """Write a space to a new store, under its keys and without payload."""
    with open_store(address) as store, store.lock() as require_held:
        if store.exists():
            raise InputError(f"{address}: already exists; choose another name, or delete it with its own client")
        try:
            store.create(Description(len(space), space.dim))
            for begin in range(0, len(space), _ROWS):
                keys = list(space.keys[begin : begin + _ROWS])
                require_held()
                store.write(
                    Batch(keys, np.array(space.vectors[begin : begin + _ROWS], dtype=np.float32), [{} for _ in keys])
                )
            store.finish()
        except BaseException:
            with suppress(KedgeError, OSError):  # report the original error
                store.abandon()
            raise

"""Points, shared by Qdrant's client and engine: their ids are integers or UUIDs, and their payload is JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import numpy as np

from kedge.errors import InputError, did_you_mean
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.payloads import plain, unfit_for_json
from kedge.spaces.stores.store import Batch, Id, Metric

ORIGINAL = "_kedge_id"
"""The payload entry that keeps a row's id if a point cannot have it as its own."""

METRICS: Mapping[str, Metric] = {"Cosine": "cosine", "Euclid": "l2", "Dot": "ip"}
DISTANCES = {metric: name for name, metric in METRICS.items()}


def row_id(key: Id) -> Id:
    """The id of a row as kedge sees it: an integer if Qdrant can keep it as one, else text."""
    text = str(key)
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,19}", text) and int(text) < 2**64 else text


def point_id(key: Id) -> int | str:
    """The id of a row's point: the row's own if it is an integer or a UUID, else a UUID derived from it."""
    row = row_id(key)
    return row if isinstance(row, int) or _is_uuid(row) else str(uuid5(NAMESPACE_OID, row))


def point_payload(key: Id, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of a row in JSON types, with the row's id if the point has another."""
    said: dict[str, Any] = {name: _within_64_bits(plain(value)) for name, value in payload.items()}
    row = row_id(key)
    return said if point_id(row) == row else said | {ORIGINAL: row}


def unfit_point(payload: Mapping[str, Any]) -> str | None:
    """Why a point cannot hold this payload; None if it can."""
    return unfit_for_json(payload, reserved=(ORIGINAL,))


def row_ids(records: Iterable[Any]) -> list[Id]:
    """The row ids of these points."""
    return [
        record.payload[ORIGINAL] if ORIGINAL in (record.payload or {}) else row_id(str(record.id)) for record in records
    ]


def rows_of(records: Iterable[Any], vector: str, dim: int) -> Batch:
    """Convert points, retrieved with payload and the vector of this name, to rows."""
    ids: list[Id] = []
    vectors: list[list[float]] = []
    payloads: list[dict[str, Any]] = []
    bad: list[tuple[Id, str]] = []
    for name, record in zip(row_ids(records := list(records)), records, strict=True):
        found = record.vector.get(vector) if isinstance(record.vector, dict) else record.vector
        if found is None:
            bad.append((name, "has no vector"))
            continue
        ids.append(name)
        vectors.append(found)
        payloads.append({entry: value for entry, value in (record.payload or {}).items() if entry != ORIGINAL})
    return Batch(ids, np.asarray(vectors, dtype=np.float32).reshape(len(ids), dim), payloads, bad)


def chosen_vector(names: Collection[str], wanted: str, address: Address, form: str) -> str:
    """The name of the vector to use: the wanted one, else the only one."""
    known = ", ".join(map(repr, sorted(names))) or "none"
    if wanted and wanted not in names:
        near = did_you_mean(wanted, names) or f"; there are {known}"
        raise InputError(f"{address}: no dense vector is called {wanted!r}{near}")
    if wanted or len(names) == 1:
        return wanted or next(iter(names))
    if not names:
        raise InputError(
            f"{address}: one dense vector per point is needed, and there is none: sparse vectors and multi-vectors "
            "(late interaction) are not read"
        )
    raise InputError(f"{address}: one dense vector per point is needed, there are {known}; {form}")


def _is_uuid(text: str) -> bool:
    """Whether it is a UUID in the form that Qdrant returns."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _within_64_bits(value: Any) -> Any:
    """A JSON value in which integers that Qdrant would turn into floats become text."""
    if isinstance(value, dict):
        return {name: _within_64_bits(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_within_64_bits(part) for part in value]
    is_large = isinstance(value, int) and not -(2**63) <= value < 2**64
    return str(value) if is_large else value

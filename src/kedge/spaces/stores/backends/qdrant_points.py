"""What Qdrant's client and its engine share: points, whose ids are whole numbers or UUIDs and whose payload is JSON."""

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
"""The payload entry with the id of a row whose id no point can have."""

METRICS: Mapping[str, Metric] = {"Cosine": "cosine", "Euclid": "l2", "Dot": "ip"}
DISTANCES = {metric: name for name, metric in METRICS.items()}


def row_id(key: Id) -> Id:
    """The id of a row as kedge sees it: a number where Qdrant can keep it as one, else text."""
    text = str(key)
    return int(text) if re.fullmatch(r"0|[1-9][0-9]{0,19}", text) and int(text) < 2**64 else text


def point_id(key: Id) -> int | str:
    """The id of the point of a row: the row's own if it is a number or a UUID, else a UUID made of it."""
    row = row_id(key)
    return row if isinstance(row, int) or _is_uuid(row) else str(uuid5(NAMESPACE_OID, row))


def point_payload(key: Id, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of a row as JSON can say it, and its id where the point has another."""
    said: dict[str, Any] = {name: _within_64_bits(plain(value)) for name, value in payload.items()}
    row = row_id(key)
    return said if point_id(row) == row else said | {ORIGINAL: row}


def unfit_point(payload: Mapping[str, Any]) -> str | None:
    """Why a payload cannot be that of a point."""
    return unfit_for_json(payload, reserved=(ORIGINAL,))


def row_ids(records: Iterable[Any]) -> list[Id]:
    """The ids of the rows that these points are."""
    return [
        record.payload[ORIGINAL] if ORIGINAL in (record.payload or {}) else row_id(str(record.id)) for record in records
    ]


def rows_of(records: Iterable[Any], vector: str, dim: int) -> Batch:
    """Rows of points that were asked for with their payload and the vector of this name."""
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
    """The vector meant where points may have several: the wanted one, else the only one."""
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
    """Whether it is a UUID in the form in which Qdrant gives it back."""
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _within_64_bits(value: Any) -> Any:
    """A value of JSON's types; whole numbers that Qdrant would make floats of become text."""
    if isinstance(value, dict):
        return {name: _within_64_bits(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_within_64_bits(part) for part in value]
    is_large = isinstance(value, int) and not -(2**63) <= value < 2**64
    return str(value) if is_large else value

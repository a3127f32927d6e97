"""Payloads in JSON types: how stores without column types keep them, and how payloads of two stores are compared."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from kedge.spaces.stores.store import DOCUMENT

PAYLOAD = "payload"
"""The column with the payload as JSON, in tables with one for all of it; the text is in the column `DOCUMENT`."""


class UnfitError(ValueError):
    """A payload holds something that the store cannot keep; the message says what."""


def to_columns(payload: Mapping[str, Any]) -> tuple[str, str | None]:
    """Split a payload into JSON, see `plain`, and its document text, or None if it has none."""
    document = payload.get(DOCUMENT)
    if document is None or isinstance(document, str):
        payload = {name: value for name, value in payload.items() if name != DOCUMENT}
    else:
        document = None
    return as_json(payload), document


def from_columns(payload: Any, document: str | None) -> dict[str, Any]:
    """Undo `to_columns`, with the JSON already parsed; JSON that kedge did not write may be any value."""
    kept = payload if isinstance(payload, dict) else {} if payload is None else {PAYLOAD: payload}
    return kept | ({} if document is None else {DOCUMENT: document})


def as_json(value: Any) -> str:
    """Serialise a value to JSON, after `plain`."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Convert a value to JSON types; NaN, infinities, dates, decimals and the like become text.

    Raises `UnfitError` for text that is not valid Unicode and for bytes, which could not be told from text afterwards.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _valid(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else as_number_text(value)
    if isinstance(value, Mapping):
        return {_valid(str(name)): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    if isinstance(value, bytes | bytearray | memoryview):
        raise UnfitError("bytes, which it has no type for")
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def as_number_text(value: float) -> str:
    """NaN and infinities, spelled as JSON libraries commonly do."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unfit_for_json(payload: Mapping[str, Any], *, reserved: Collection[str] = (), nul: bool = True) -> str | None:
    """Why a payload cannot be kept as JSON: bytes, invalid text, a `reserved` name or, unless `nul`, NUL; else None."""
    for name, value in payload.items():
        if name in reserved:
            return f"has an entry {name!r} in its payload, a name that the target uses itself"
        try:
            text = as_json({name: value})
        except UnfitError as error:
            return f"has {error} in {name!r} of its payload"
        if not nul and "\\u0000" in text and _has_nul([plain(value), name]):
            return f"has a NUL character in {name!r} of its payload, which the target cannot keep"
    return None


def same_payload(payload: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether all entries arrived, unchanged or as text; None values need not arrive."""
    return all(
        name in found and (same_value(value, found[name]) or same_as_text(value, found[name]))
        for name, value in payload.items()
        if value is not None
    )


def same_value(value: Any, found: Any) -> bool:
    """Whether two values are equal; NaN equals NaN, and booleans do not equal numbers."""
    if isinstance(value, Mapping) and isinstance(found, Mapping):
        return value.keys() == found.keys() and all(same_value(value[name], found[name]) for name in value)
    if isinstance(value, list | tuple) and isinstance(found, list | tuple):
        return len(value) == len(found) and all(map(same_value, value, found))
    if isinstance(value, float) and isinstance(found, float) and math.isnan(value):
        return math.isnan(found)
    if isinstance(value, bool) != isinstance(found, bool):
        return False
    return bool(value == found)


def same_as_text(value: Any, found: Any) -> bool:
    """Whether `found` is what a store without a type for `value` keeps in its place."""
    try:
        expected = plain(value)
        if _same_plain(expected, plain(found)):
            return True
        return isinstance(found, str) and not isinstance(expected, str) and _same_plain(expected, json.loads(found))
    except (UnfitError, ValueError, OverflowError):
        return False


def _same_plain(expected: Any, found: Any) -> bool:
    """Whether two values of JSON types are equal.

    An integer of more than 64 bits may have become text, and a float an integer, since JSON does not tell them apart.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(_same_plain(expected[name], found[name]) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_same_plain, expected, found))
    if isinstance(expected, float) and isinstance(found, int) and not isinstance(found, bool):
        return expected == float(found)
    is_large = isinstance(expected, int) and not -(2**63) <= expected < 2**63
    return same_value(expected, found) or (is_large and found == str(expected))


def _valid(text: str) -> str:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UnfitError("text that is not valid Unicode") from None
    return text


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return _has_nul([*value, *value.values()])
    return isinstance(value, list) and any(map(_has_nul, value))

"""Payload in JSON's types: what stores without types of their own keep, and what two stores are compared by."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from kedge.spaces.stores.store import DOCUMENT

PAYLOAD = "payload"
"""The column with the JSON, of tables that have one for all payload; the one with the text is called `DOCUMENT`."""


class UnfitError(ValueError):
    """A payload holds something that a store has no place for; the message says what."""


def to_columns(payload: Mapping[str, Any]) -> tuple[str, str | None]:
    """The payload without its text as JSON, and the text. What JSON has no type for becomes text."""
    document = payload.get(DOCUMENT)
    if document is None or isinstance(document, str):
        payload = {name: value for name, value in payload.items() if name != DOCUMENT}
    else:
        document = None
    return as_json(payload), document


def from_columns(payload: Any, document: str | None) -> dict[str, Any]:
    """What `to_columns` was given, with the JSON read; another's JSON may be anything."""
    kept = payload if isinstance(payload, dict) else {} if payload is None else {PAYLOAD: payload}
    return kept | ({} if document is None else {DOCUMENT: document})


def as_json(value: Any) -> str:
    """A value as JSON, after `plain`."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """A value in JSON's types. NaN, infinities, dates, decimals and the like become text.

    Bytes are refused with `UnfitError`, since as text nothing would distinguish them from a text, and so is text that
    is not valid Unicode.
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
    """NaN and infinities, as JSON's readers and writers commonly call them."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unfit_for_json(payload: Mapping[str, Any], *, reserved: Collection[str] = (), nul: bool = True) -> str | None:
    """Why a payload cannot be kept as JSON: bytes, broken text, a `reserved` name or, without `nul`, a NUL."""
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
    """Whether all entries arrived, as they are or as text; an entry of nothing need not."""
    return all(
        name in found and (same_value(value, found[name]) or same_as_text(value, found[name]))
        for name, value in payload.items()
        if value is not None
    )


def same_value(value: Any, found: Any) -> bool:
    """Whether two values are equal, with their types; NaN is equal to NaN."""
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
    """Whether what was found is what a store without the type of `value` keeps instead of it."""
    try:
        expected = plain(value)
        if _same_plain(expected, plain(found)):
            return True
        return isinstance(found, str) and not isinstance(expected, str) and _same_plain(expected, json.loads(found))
    except (UnfitError, ValueError, OverflowError):
        return False


def _same_plain(expected: Any, found: Any) -> bool:
    """Whether two values of JSON's types are equal.

    A whole number may have become text, having too many bits, and a float a whole number, of which JSON knows nothing.
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

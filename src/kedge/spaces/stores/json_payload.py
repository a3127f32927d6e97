"""Payload as JSON, for tables with one column for all of it and one for the text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kedge.spaces.stores.store import DOCUMENT

PAYLOAD = "payload"
"""The column with the JSON; the one with the text is called `DOCUMENT`."""


def to_columns(payload: Mapping[str, Any]) -> tuple[str, str | None]:
    """The payload without its text as JSON, and the text. What JSON has no type for becomes text."""
    document = payload.get(DOCUMENT)
    if document is None or isinstance(document, str):
        payload = {name: value for name, value in payload.items() if name != DOCUMENT}
    else:
        document = None
    return _as_json(payload), document


def from_columns(payload: Any, document: str | None) -> dict[str, Any]:
    """What `to_columns` was given, with the JSON read; another's JSON may be anything."""
    kept = payload if isinstance(payload, dict) else {} if payload is None else {PAYLOAD: payload}
    return kept | ({} if document is None else {DOCUMENT: document})


def _as_json(payload: Mapping[str, Any]) -> str:
    try:
        return json.dumps(payload, default=str, ensure_ascii=False, allow_nan=False)
    except ValueError:  # NaN or an infinity, which databases do not take for JSON
        plain = json.loads(json.dumps(payload, default=str), parse_constant=str)
        return json.dumps(plain, ensure_ascii=False)

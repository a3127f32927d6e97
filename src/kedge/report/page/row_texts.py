"""The texts that a store keeps with its vectors, shown to people instead of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kedge.report.picture.neighbourhoods import Side

_MAX_LETTERS = 120


@dataclass(frozen=True)
class RowTexts:
    """Texts by key for rows of X and of Y; some or all may be missing."""

    x: Mapping[str, str]
    y: Mapping[str, str]

    def of(self, side: Side, key: str) -> str | None:
        """The beginning of a row's text on one line, or None if it has no text."""
        text = (self.x if side == "x" else self.y).get(key)
        if not text or not text.strip():
            return None
        line = " ".join(text.split())
        return line if len(line) <= _MAX_LETTERS else f"{line[:_MAX_LETTERS].rstrip()}..."

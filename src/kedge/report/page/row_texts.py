"""What rows say: the texts that a store keeps beside its vectors, for people to read instead of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kedge.report.picture.neighbourhoods import Side

_MAX_LETTERS = 120


@dataclass(frozen=True)
class RowTexts:
    """Texts by key, of rows of X and of Y; either may lack some, or all."""

    x: Mapping[str, str]
    y: Mapping[str, str]

    def of(self, side: Side, key: str) -> str | None:
        """The beginning of a row's text, on one line, if it has one."""
        text = (self.x if side == "x" else self.y).get(key)
        if not text or not text.strip():
            return None
        line = " ".join(text.split())
        return line if len(line) <= _MAX_LETTERS else f"{line[:_MAX_LETTERS].rstrip()}..."

"""Which rows of a file are wanted; shared by all readers so that they can skip the rest early."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """At most `limit` rows, and only those whose key is in `keys` (None: no restriction)."""

    limit: int | None = None
    keys: Collection[str] | None = None

    @property
    def everything(self) -> bool:
        """Whether no row is left out."""
        return self.limit is None and self.keys is None

    def wants(self, key: str) -> bool:
        """Whether a row with this key is wanted, the limit aside."""
        return self.keys is None or key in self.keys

    def full(self, count: int) -> bool:
        """Whether `count` rows reach the limit."""
        return self.limit is not None and count >= self.limit

    def max_rows(self, total: int) -> int:
        """The most rows that can be wanted out of `total`, given that keys are unique."""
        limit = total if self.limit is None else min(total, self.limit)
        return limit if self.keys is None else min(limit, len(self.keys))

    def rows(self, keys: Sequence[str]) -> list[int]:
        """The row numbers to keep, given all keys."""
        chosen = [row for row, key in enumerate(keys) if self.wants(key)]
        return chosen[: self.limit]

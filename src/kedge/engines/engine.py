"""What an engine does: one function over many tasks, with or without a regrouping in between.

Functions and tasks are plain picklable objects, the same for every engine. A function that writes a file does so under
a temporary name and renames it, so that it may be called again for the same task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

Table: TypeAlias = Any
"""A `pyarrow.Table`."""

Split: TypeAlias = Callable[[Any], Iterable[tuple[int, Table]]]
"""Makes of a task tables, each with the number of the group that it belongs to."""

Finish: TypeAlias = Callable[[int, Table], Any]
"""Makes of all rows of a group, in any order, something small."""


class Engine(Protocol):
    """Where and how functions over batches are called: scheduling, retries and the regrouping are its own."""

    def each(self, tasks: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Any]:
        """What `work` makes of each task, in any order; it should be small."""

    def regroup(self, tasks: Sequence[Any], split: Split, finish: Finish, groups: int) -> Iterator[Any]:
        """What `finish` makes of each group that any task has rows for, in any order; at most so many groups."""

    def close(self) -> None:
        """Let go of what was started."""

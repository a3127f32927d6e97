"""The engine protocol: one function over many tasks, with or without a regrouping in between.

Functions and tasks are plain picklable objects, the same for every engine. A function that writes a file does so under
a temporary name and renames it, so that it may be called again for the same task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

Table: TypeAlias = Any
"""A `pyarrow.Table`."""

Split: TypeAlias = Callable[[Any], Iterable[tuple[int, Table]]]
"""Turns a task into tables, each with the number of the group that it belongs to."""

Finish: TypeAlias = Callable[[int, Table], Any]
"""Turns all rows of a group, in any order, into something small."""


class Engine(Protocol):
    """Calls functions over batches; scheduling, retries and regrouping are its responsibility."""

    def each(self, tasks: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Any]:
        """The result of `work` for each task, in any order; results should be small."""

    def regroup(self, tasks: Sequence[Any], split: Split, finish: Finish, groups: int) -> Iterator[Any]:
        """The result of `finish` for each group that any task has rows for, in any order; at most `groups` of them."""

    def close(self) -> None:
        """Release what was started."""

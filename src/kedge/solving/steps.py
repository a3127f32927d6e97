"""What a long computation reports while it runs, and where its stages end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Step:
    """One finished step: `index` of `total` in `stage`, with figures worth showing.

    `total` is the maximum number of steps of the stage, which may end earlier. `attempt` describes the current attempt,
    where several are made.
    """

    stage: str
    index: int
    total: int
    figures: Mapping[str, float] = field(default_factory=dict)
    attempt: str = ""


OnStep = Callable[[Step], None]


class Keeper(Protocol):
    """Keeps the results of finished stages, so that an interrupted computation can resume."""

    def recall(self, stage: str, kind: type[Value]) -> tuple[Value, list[Step]] | None:
        """The kept result of a stage, a dataclass of this kind, and the steps that led to it; None if there is none."""

    def keep(self, stage: str, value: object, steps: Sequence[Step]) -> None:
        """Keep the result of a stage and the steps that led to it."""


@dataclass(frozen=True)
class Log:
    """Reports every step to `on_step` and remembers it in `history`; results of whole stages go to a `keeper`.

    Both are optional: the numerics say where a stage ends, and the caller decides what happens then. `stage` is the
    prefix of the names under which results are kept, `attempt` the description that steps carry.
    """

    on_step: OnStep | None = None
    keeper: Keeper | None = None
    history: list[Step] = field(default_factory=list)
    stage: str = ""
    attempt: str = ""

    def within(self, stage: str, attempt: str = "") -> Log:
        """The same log for a part of the work, whose stages get a further prefix."""
        return replace(self, stage=f"{self.stage}{stage}-", attempt=attempt or self.attempt)

    def aside(self) -> Log:
        """The same log for work whose steps do not belong in the discovery's history."""
        return replace(self, history=[])

    def report(self, stage: str, index: int, total: int, **figures: float) -> None:
        """Report a finished step."""
        step = Step(stage, index, total, figures, self.attempt)
        self.history.append(step)
        if self.on_step is not None:
            self.on_step(step)

    def once(self, stage: str, kind: type[Value], compute: Callable[[], Value]) -> Value:
        """The result of a stage, a dataclass of this kind: recalled if an earlier run kept it, computed otherwise."""
        if self.keeper is None:
            return compute()
        name = self.stage + stage
        kept = self.keeper.recall(name, kind)
        if kept is not None:
            value, steps = kept
            self.history.extend(steps)
            return value
        before = len(self.history)
        value = compute()
        self.keeper.keep(name, value, self.history[before:])
        return value

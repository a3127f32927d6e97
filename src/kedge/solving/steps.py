"""What a long computation tells while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One finished step: `index` of `total` in `stage`, with figures worth showing.

    `total` is the most steps the stage can take; it may end earlier. `attempt` says what is being tried, where
    there is more than one way.
    """

    stage: str
    index: int
    total: int
    figures: Mapping[str, float] = field(default_factory=dict)
    attempt: str = ""


OnStep = Callable[[Step], None]

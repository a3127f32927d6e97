"""What a method returns, and what it asks of a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kedge.matching import Candidates, Comparison, Match, Problem


@dataclass(frozen=True)
class Alignment:
    """The match of all rows that a method ends with.

    `whitening` is the strength to which the spaces were whitened when it was found; `free_anchors` (a, dy) are there
    where the method itself places them; `candidates` are there where only candidates were compared; `rotation` (dx, dy)
    is there where it and not pairs is what was found, because few items are shared.
    """

    match: Match
    converged: bool
    whitening: float = 0.0
    free_anchors: Tensor | None = None
    candidates: Candidates | None = None
    rotation: Tensor | None = None


class Opinion(Protocol):
    """How good a match is."""

    @property
    def score(self) -> float:
        """How good it is, from 0 to 1."""

    @property
    def ok(self) -> bool:
        """Whether it is good enough to stop searching."""

    @property
    def significant(self) -> bool:
        """Whether it is beyond chance that rows recognise their counterparts."""

    @property
    def recognised(self) -> float:
        """About the share of rows that recognise their counterpart."""


class Judge(Protocol):
    """What a method asks whether it succeeded; anything that does this can take its place."""

    def judge(self, problem: Problem, match: Match, rotation: Tensor | None = None) -> Opinion:
        """How good a match of a problem, or of a part of it, is.

        Where few items are shared, a rotation (dx, dy) was found and the match only follows from it.
        """

    def probable(self, compared: Comparison, match: Match) -> Tensor:
        """Mask (n,) of the rows of X whose mutual pair is more probably right than not."""

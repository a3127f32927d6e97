"""What a method returns, and what it asks of a judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kedge.matching import Candidates, Comparison, Match, Problem


@dataclass(frozen=True)
class Alignment:
    """The match of all rows that a method ends with.

    `whitening` is the strength to which the spaces were whitened when it was found. `free_anchors` (a, dy) is set if
    the method itself places them, `candidates` if only candidates were compared, and `rotation` (dx, dy) if that is
    what was found instead of pairs, because few items are shared.
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
        """Whether more rows recognise their counterparts than chance explains."""

    @property
    def recognised(self) -> float:
        """The approximate share of rows that recognise their counterpart."""


class Judge(Protocol):
    """Tells a method whether it succeeded; any object with these methods will do."""

    def judge(self, problem: Problem, match: Match, rotation: Tensor | None = None) -> Opinion:
        """Say how good a match of a problem, or of a part of it, is.

        `rotation` (dx, dy) is given where few items are shared: it is what was found, and the match follows from it.
        """

    def probable(self, compared: Comparison, match: Match) -> Tensor:
        """Mask (n,) of the rows of X whose mutual pair is more likely right than wrong."""

"""Which of several runs to trust: by what each says of itself and the others of it, or by the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kedge.judging.health import Health
from kedge.tasks.echoes import Echo
from kedge.tasks.evaluation import as_percent

# Two runs agree if at least so much of what both speak of is the same.
_AGREED = 0.5
# Runs with so many right pairs for each of the best have about as many.
_AS_MANY = 0.99
# A run whose pairs are less often right than this is not to be trusted, whatever the others are.
_LEAST_PRECISION = 0.5


class Score(NamedTuple):
    """By the truth: the share of a run's pairs that are right (None where that is not known of any), and the share of
    the rows of X with a true partner that are in a right pair.
    """

    precision: float | None
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        return 2 * self.recall * (self.precision or 0) / ((self.recall + (self.precision or 0)) or 1)


@dataclass(frozen=True)
class RunFindings:
    """What one run found.

    `expected` is the share of its pairs that should be right, their mean confidence (None without pairs). `others` is
    how much of what it and another run both speak of is the same, over all others (None where that is nothing).
    `seconds`, and `inputs` (by name, what `run.json` says of each file), are there where the command line made the run;
    `score` where the truth is known.
    """

    name: str
    health: Health
    pairs: int
    anchors: int
    seeds: int
    expected: float | None
    others: float | None
    seconds: float | None
    inputs: Mapping[str, Mapping[str, Any]]
    score: Score | None

    @property
    def right(self) -> int:
        """How many of its pairs should be right."""
        return round(self.pairs * (self.expected or 0))


class Trust(NamedTuple):
    """The number of the run to trust, for its pairs or for its map alone; None where none is to be trusted; and why."""

    run: int | None
    what: Literal["pairs", "map"] | None
    reason: str


def trust_by_health(runs: Sequence[RunFindings], echoes: Sequence[Sequence[Echo]]) -> Trust:
    """Of the runs that say themselves that they are right, and that others of these confirm, the one that should have
    most right pairs; of several with about as many, the one that is nearest to the others.

    What a run says of itself is seldom wrong, but two that contradict each other are not both right. So a run is only
    trusted if it agrees with at least half of the others that say they are right.
    """
    mapped = [number for number, run in enumerate(runs) if run.health.map.verdict == "ok"]
    if not mapped:
        best = max(runs, key=lambda run: run.health.map.score)
        told = f"{best.name} comes closest: its map is {best.health.map.verdict} ({best.health.map.score:.2f})"
        return Trust(None, None, f"No run found a map that is right; {told}. {best.health.map.advice}")
    paired = [number for number in mapped if runs[number].health.pairs.verdict == "ok"]
    if not paired:
        number = max(mapped, key=lambda number: runs[number].health.map.score)
        best = runs[number]
        told = f"it is right ({best.health.map.score:.2f}) and needs no pairs"
        return Trust(number, "map", f"{told}; the pairs of no run are to be trusted.")
    confirmed = [number for number in paired if _is_confirmed(number, paired, echoes)]
    if not confirmed:
        names = ", ".join(runs[number].name for number in paired)
        return Trust(
            None,
            None,
            f"All of {names} say that they are right, and they contradict each other; no more than one can be. "
            "Look at the pairs they differ in, or compare them with pairs you know by --gold.",
        )
    most = max(runs[number].right for number in confirmed)
    leading = [number for number in confirmed if runs[number].right >= _AS_MANY * most]
    number = max(leading, key=lambda number: runs[number].others or 0)
    best = runs[number]
    reasons = [
        f"its map and its pairs are right ({best.health.map.score:.2f} and {best.health.pairs.score:.2f})",
        f"about {best.right:,} of its {best.pairs:,} pairs should be right",
    ]
    if len(leading) > 1:
        reasons.append(f"of {len(leading)} runs with about as many none is nearer to the others")
    elif len(confirmed) > 1:
        reasons.append("no other run that can be trusted has as many")
    doubted = [runs[number].name for number in paired if number not in confirmed]
    warning = f" {', '.join(doubted)}: contradicted by the others, whatever it says of itself." if doubted else ""
    return Trust(number, "pairs", f"{'; '.join(reasons)}.{warning}")


def trust_by_truth(runs: Sequence[RunFindings], scores: Sequence[Score]) -> Trust:
    """The run with the best score; none, where even its pairs are mostly wrong."""
    number = max(range(len(runs)), key=lambda number: scores[number].f1)
    best, score = runs[number], scores[number]
    if (score.precision or 0) < _LEAST_PRECISION:
        return Trust(None, None, f"By the truth most pairs of every run are wrong; {best.name} comes closest.")
    told = (
        f"by the truth {as_percent(score.precision)} of its pairs are right, and {as_percent(score.recall)} are found"
    )
    says = best.health.pairs.verdict
    surprise = f" It says of itself that they are {says}." if says != "ok" else ""
    return Trust(number, "pairs", f"{told}; taken together no other run does better.{surprise}")


def _is_confirmed(number: int, among: Sequence[int], echoes: Sequence[Sequence[Echo]]) -> bool:
    """Whether a run agrees with at least half of the others with which it can be compared."""
    shares = [echoes[number][other].share for other in among if other != number]
    known = [share for share in shares if share is not None]
    return sum(share >= _AGREED for share in known) >= len(known) / 2

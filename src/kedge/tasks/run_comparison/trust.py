"""Decide which of several runs to trust: by their own verdicts and their agreement, or by gold pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import harmonic_mean
from typing import Any, Literal, NamedTuple

from kedge.judging.health import Health
from kedge.tasks.evaluation import as_percent
from kedge.tasks.run_comparison.agreement import PairAgreement

# Two runs agree if at least this share of their comparable pairs is the same.
_AGREED = 0.5
# A run has "about as many" right pairs if it has at least this share of the best run's.
_AS_MANY = 0.99
# A run whose precision is below this is not to be trusted, even if the others are worse.
_MIN_PRECISION = 0.5


class GoldScore(NamedTuple):
    """Precision and recall of a run's pairs against gold pairs.

    `precision` is None if no pair can be judged; `recall` is over the rows of X with a gold partner and in no seed.
    """

    precision: float | None
    recall: float

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        return harmonic_mean([self.precision or 0.0, self.recall])


@dataclass(frozen=True)
class RunSummary:
    """What one run found.

    `expected_precision` is the mean confidence of its pairs (None without pairs). `agreement` is the share of its pairs
    that other runs have too, among the pairs with a row that they pair at all (None if there are none).
    `seconds` and `inputs` (what `run.json` says about each input file, by name) are known if the command line made the
    run; `gold` is set if gold pairs are given.
    """

    name: str
    health: Health
    pairs: int
    anchors: int
    seeds: int
    expected_precision: float | None
    agreement: float | None
    seconds: float | None
    inputs: Mapping[str, Mapping[str, Any]]
    gold: GoldScore | None

    @property
    def expected_right(self) -> int:
        """The expected number of right pairs."""
        return round(self.pairs * (self.expected_precision or 0))


class TrustedRun(NamedTuple):
    """The index of the run to trust (None if there is none), whether for its pairs or only its map, and why."""

    run: int | None
    what: Literal["pairs", "map"] | None
    reason: str


def trust_by_health(runs: Sequence[RunSummary], agreements: Sequence[Sequence[PairAgreement]]) -> TrustedRun:
    """Of the runs with ok verdicts that other such runs confirm, the one with the most pairs expected to be right.

    Among several with about as many, the one that agrees best with the others. A run's own verdict is seldom wrong, but
    two runs that contradict each other cannot both be right, so a run is only trusted if it agrees with at least half
    of the others whose verdicts are ok.
    """
    mapped = [number for number, run in enumerate(runs) if run.health.searching.verdict == "ok"]
    # Pairs may be right although searches by plain cosine, which is what `searching` is about, do not do well.
    paired = [
        number for number, run in enumerate(runs) if run.health.judgement.verdict == run.health.pairs.verdict == "ok"
    ]
    if not mapped and not paired:
        best = max(runs, key=lambda run: run.health.map.score)
        closest = f"{best.name} comes closest: its map is {best.health.map.verdict} ({best.health.map.score:.2f})"
        return TrustedRun(None, None, f"No run found a map that is ok; {closest}. {best.health.map.advice}")
    if not paired:
        number = max(mapped, key=lambda number: runs[number].health.map.score)
        score = runs[number].health.map.score
        return TrustedRun(
            number, "map", f"it is ok ({score:.2f}) and needs no pairs; no run has pairs that can be trusted."
        )
    confirmed = [number for number in paired if _is_confirmed(number, paired, agreements)]
    if not confirmed:
        names = ", ".join(runs[number].name for number in paired)
        return TrustedRun(
            None,
            None,
            f"{names} all report that they are ok, but they contradict each other, so at most one is right. "
            "Look at the pairs they disagree on, or check them against known pairs with --gold.",
        )
    most_right = max(runs[number].expected_right for number in confirmed)
    leading = [number for number in confirmed if runs[number].expected_right >= _AS_MANY * most_right]
    number = max(leading, key=lambda number: runs[number].agreement or 0)
    best = runs[number]
    searching, pairs = best.health.searching, best.health.pairs
    verdicts = f"its map and its pairs are ok ({searching.score:.2f} and {pairs.score:.2f})"
    if searching.verdict != "ok":
        verdicts = f"its pairs are ok ({pairs.score:.2f}), and for searching it is {searching.verdict}"
    reasons = [
        verdicts,
        f"about {best.expected_right:,} of its {best.pairs:,} pairs are expected to be right",
    ]
    if len(leading) > 1:
        reasons.append(f"of {len(leading)} runs with about as many it agrees best with the others")
    elif len(confirmed) > 1:
        reasons.append("no other run that can be trusted has as many")
    doubted = [runs[number].name for number in paired if number not in confirmed]
    warning = f" Do not trust {', '.join(doubted)}: contradicted by the others." if doubted else ""
    return TrustedRun(number, "pairs", f"{'; '.join(reasons)}.{warning}")


def trust_by_gold(runs: Sequence[RunSummary], scores: Sequence[GoldScore]) -> TrustedRun:
    """The run with the best F1 score, or none if most of its pairs are wrong."""
    number = max(range(len(runs)), key=lambda number: scores[number].f1)
    best, score = runs[number], scores[number]
    if (score.precision or 0) < _MIN_PRECISION:
        return TrustedRun(
            None, None, f"By the gold pairs, most pairs of every run are wrong; {best.name} comes closest."
        )
    precision, recall = as_percent(score.precision), as_percent(score.recall)
    verdict = best.health.pairs.verdict
    surprise = f" Its own verdict on its pairs is {verdict}." if verdict != "ok" else ""
    return TrustedRun(
        number,
        "pairs",
        f"by the gold pairs, its precision is {precision} and its recall {recall}; no other run has a better F1 score."
        f"{surprise}",
    )


def _is_confirmed(number: int, among: Sequence[int], agreements: Sequence[Sequence[PairAgreement]]) -> bool:
    """Whether a run agrees with at least half of the others that it can be compared with."""
    shares = [agreements[number][other].share for other in among if other != number]
    known = [share for share in shares if share is not None]
    return sum(share >= _AGREED for share in known) >= len(known) / 2

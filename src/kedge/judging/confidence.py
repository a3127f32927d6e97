"""How sure is a pair? A probability for every row, measured on the two spaces themselves.

Rows are matched as read by models that had not seen their pairs (`cross_fitting`); first and second choices show what
the margins of that match are worth (`recognition`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.judging.health import OK, UNCERTAIN
from kedge.judging.isolation import Isolation
from kedge.judging.judge import Judgement
from kedge.judging.recognition import Choices, Recognition, count_recognised, pair_probabilities, shown_by_margins
from kedge.matching import CandidateRecall, Comparison, Match, Problem
from kedge.models.confidence_curve import CLAIMED, NO_CONFIDENCE, UNCLAIMED, ConfidenceCurve
from kedge.solving.steps import Log


@dataclass(frozen=True)
class Confidence:
    """A match of all rows by models that had not seen them, and what it is worth.

    `paired` (n,) is the probability that a row's partner is right if the two are a mutual pair, `minimum` that of the
    least sure pair. Seeds are pairs in `match`, but not in `unaided`. `recognition` says how many rows are recognised,
    and `trust` whether the map is right at all, which is a factor of all probabilities; `isolation` says which rows
    look like nothing else: their pairs are worth nothing. Where only candidates were compared, `candidate_recall` says
    how many rows of a sample have their exact partner. `curve` is what `paired` was read from.
    """

    match: Match
    paired: NDArray[np.float32]
    minimum: float
    unaided: Match
    recognition: Recognition
    trust: float
    isolation: Isolation
    candidate_recall: CandidateRecall | None
    curve: ConfidenceCurve = NO_CONFIDENCE

    @property
    def right_share(self) -> float:
        """The approximate share of mutual pairs that are right, not counting isolated rows."""
        pairs = self.unaided.mutual & ~self.isolation.x & ~self.isolation.y[self.unaided.partner]
        return min(self.recognition.count / max(float(pairs.sum()), 1.0), 1.0)

    def of(self, rows_x: NDArray[np.int64], rows_y: NDArray[np.int64]) -> NDArray[np.float32]:
        """Probabilities (k,) that rows (k,) of X and of Y belong together, whether or not they are pairs."""
        partner, mutual = self.match.partner.cpu().numpy(), self.match.mutual.cpu().numpy()
        claimed_y = np.isin(rows_y, partner[mutual])
        unpaired = self.minimum * np.where(claimed_y, CLAIMED, UNCLAIMED)
        in_a_pair = np.where(
            partner[rows_x] == rows_y, self.paired[rows_x], np.minimum(1 - self.paired[rows_x], self.minimum)
        )
        return np.where(mutual[rows_x], in_a_pair, unpaired).astype(np.float32)


def measure_confidence(
    problem: Problem,
    honest: Comparison,
    guesses: Tensor,
    seeds: tuple[Tensor, Tensor],
    judged: Judgement,
    log: Log,
    *,
    disjoint: bool = False,
) -> Confidence:
    """Match rows as read by models that had not seen their pairs, and measure what the margins are worth.

    `honest` compares rows so. Rows in no pair keep their partner of the previous match, `guesses` (n,), which is as
    good a guess as any. Seeds, rows (s,) of X and of Y, are pairs whatever the match says, unless the map is wrong; if
    the spaces are known to be disjoint, they are the only ones.
    """
    # Probabilities are those of pairs under a right map, times the trust in it.
    trust = float(np.clip((judged.answer.score - UNCERTAIN) / (OK - UNCERTAIN), 0, 1))
    match = log.once("confidence", Match, honest.match)
    log.report("confidence", 1, 2)
    isolation = judged.isolation
    choices = Choices.from_comparison(honest, match, torch.Generator().manual_seed(0), isolation)
    candidate_recall = honest.candidate_recall(match)
    log.report("confidence", 2, 2)
    seemingly = count_recognised(choices)
    recognition = seemingly.less(share_by_chance(judged, choices, disjoint=disjoint))
    recognition = replace(recognition, rows_x=len(problem.x), rows_y=len(problem.y))
    match = replace(match, partner=torch.where(match.mutual, match.partner, guesses))
    if trust == 0 or not bool(match.mutual.any()):
        nothing = np.zeros(len(problem.x), dtype=np.float32)
        return Confidence(match, nothing, 0.0, match, recognition, 0.0, isolation, candidate_recall)
    at, probabilities = pair_probabilities(choices, seemingly)
    probabilities = probabilities * (recognition.count / max(seemingly.count, 1.0))
    given = _with_seeds(match, *seeds)
    paired = trust * np.interp(given.margin.double().cpu().numpy(), at, probabilities)
    paired[(isolation.x | isolation.y[given.partner]).cpu().numpy()] = 0.0
    paired[seeds[0].cpu().numpy()] = 1.0
    minimum = trust * float(probabilities[0])
    curve = ConfidenceCurve(tuple(at.tolist()), tuple((trust * probabilities).tolist()))
    return Confidence(
        given, paired.astype(np.float32), minimum, match, recognition, trust, isolation, candidate_recall, curve
    )


def share_by_chance(judged: Judgement, choices: Choices, *, disjoint: bool) -> float:
    """The share of rows that only seem to be recognised.

    It is 0 if the largest margins confirm recognition, since rows that have counterparts are not free to fit noise, and
    1 if neither the margins nor the judge confirm it.
    """
    if disjoint:
        return 1.0
    if shown_by_margins(choices):
        return 0.0
    return judged.chance_rate if judged.significant else 1.0


def _with_seeds(match: Match, seeds_x: Tensor, seeds_y: Tensor) -> Match:
    """The match with every seed (s,) as a pair, and with no other pair that has a seed's row of Y."""
    partner, margin = match.partner.clone(), match.margin.clone()
    margin[torch.isin(partner, seeds_y)] = -torch.inf
    partner[seeds_x], margin[seeds_x] = seeds_y, torch.inf
    return replace(match, partner=partner, margin=margin)

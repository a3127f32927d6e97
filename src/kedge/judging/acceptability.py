"""How probable is it that a candidate is an acceptable translation of a row?

Where an item has several right answers (inflections, synonyms), "which one is *the* counterpart?" has no answer, and
neither the margin of a match nor the law of `recognition` says anything. So the candidates of a row compete only with
each other: one with the value v_j, its similarity less hubness, has the probability

    P_j = exp(s v_j) / sum_k exp(s v_k) ,

where rows are read by models that had not seen their pairs (`cross_fitting`). One number, the *sharpness* s, says what
a lead is worth. For the log likelihood ratio of a pair model it would be 1 if the model were right; in practice it is a
tenth to a half. It is estimated from three sources:

- Rivals. If the values of wrong candidates thin out exponentially, as extremes do, chance gives a lead of 1/s over
  them; how fast they thin out is measured above the median of the first candidates.
- Recognition. Where rows have one counterpart each, as many first candidates are right as rows recognise theirs. Where
  they have several, that is far too few, so it only counts if it asks for more sharpness than the rivals do.
- Known pairs. Each says which candidate of its row should be probable.

The first two are the prior of the sharpness, the known pairs the likelihood, and probabilities are averaged over the
posterior. Where recognition shows that Y lacks the items of some rows, "nobody" competes as well, with the value that
the best wrong candidate would have, extrapolated from how the later ones fall with their rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.judging.health import OK, UNCERTAIN, Answer, verdict_of
from kedge.judging.judge import RECOGNISED_SCALE

CANDIDATES = 32
"""How many of the best candidates of a row compete with each other."""

# How far off rivals and recognition were on words and texts, in units of log s; and the grid of log s around them.
_PRIOR_ERROR = 0.3
_REACH, _STEPS = 2.4, 49
# The share of known pairs that are wrong, or whose partner is nowhere near: they say nothing about sharpness.
_WRONG = 0.05
# The weight of a known pair in the likelihood, less than 1 since it names one of several right answers, and since leads
# vary more than the law says. With this, few known pairs calibrate better, on words of one language and of two; many do
# as well.
_WORTH = 0.3
# Quantiles of the first candidates' values; the first with enough rivals above it is where these are measured.
_LEVELS, _MIN_RIVALS = (0.5, 0.25, 0.1, 0.0), 100
_SAMPLE = 4000
_NEGLIGIBLE = 1e-4
# Candidates from this rank on are assumed to be wrong.
_LATER = 8
# Maximum odds that a row has no acceptable candidate: overlap counts identical items only, and it says little if fewer
# than this share of rows recognise a counterpart.
_MAX_ODDS, _RECOGNISED = 2.0, 0.1
# If a smaller share of the known pairs has its partner among the candidates, the probabilities shrink accordingly.
_REACHED, _MIN_KNOWN = 0.5, 10
# At least this many known pairs that the search never saw show by themselves whether the map is right.
_ENOUGH_UNSEEN = 20


@dataclass(frozen=True)
class Sharpness:
    """Possible values (g,) of the sharpness, and how probable each of them is (g,).

    `level` is the value that the best candidate of a row without acceptable ones would have, and `odds` are those of
    such a row against one that has some.
    """

    values: Tensor
    weights: Tensor
    level: float
    odds: float

    @property
    def mean(self) -> float:
        """The expected sharpness."""
        return float((self.values * self.weights).sum())

    def probabilities(self, ranked: Tensor) -> Tensor:
        """Probabilities (n, k) that candidates with these values (n, k), best first, are acceptable."""
        total = torch.zeros_like(ranked)
        for sharpness, weight in zip(self.values.tolist(), self.weights.tolist(), strict=True):
            if weight > _NEGLIGIBLE:
                total += weight * _shares(ranked, sharpness, self.level, self.odds)
        return total


@dataclass(frozen=True)
class KnownRows:
    """Rows with known acceptable answers: values (s, k) of their candidates, and which of these are right (s, k)."""

    ranked: Tensor
    acceptable: Tensor

    @property
    def count(self) -> int:
        """How many rows these are."""
        return len(self.ranked)

    @property
    def first(self) -> int:
        """How many have a right answer first."""
        return int(self.acceptable[:, 0].sum()) if self.count else 0

    @property
    def reached(self) -> float:
        """The share of rows with a right answer among their candidates."""
        return float(self.acceptable.any(dim=1).double().mean()) if self.count else 1.0

    @property
    def trust(self) -> float:
        """A factor of all probabilities, from 0 to 1: less than 1 if known partners are often no candidates."""
        return min(self.reached / _REACHED, 1.0) if self.count >= _MIN_KNOWN else 1.0


def learn_sharpness(ranked: Tensor, recognised: float, overlap: float, known: KnownRows, rows_y: int) -> Sharpness:
    """What a lead is worth, from the values (n, k) of all rows' candidates, best first, and from the known rows.

    `recognised` is the share of rows that recognise their counterpart, 0 if unknown; `overlap` is the largest share of
    X's items that Y may have, and `rows_y` the number of rows of Y.
    """
    sample = ranked[:: max(1, len(ranked) // _SAMPLE)].double()
    level = _level_of_nobody(sample)
    odds = 0.0
    if level is not None:  # overlap rests on recognition
        odds = min((1 - overlap) / max(overlap, 1e-3), _MAX_ODDS) * min(recognised / _RECOGNISED, 1.0)
    spread = torch.linspace(-_REACH, _REACH, _STEPS, dtype=torch.float64, device=ranked.device)
    grid = _thinning_rate(sample) * spread.exp()
    expected = torch.stack([_shares(sample, each, level or 0.0, odds)[:, 0].mean() for each in grid.tolist()])
    enough = (expected >= recognised).nonzero()
    center = float(spread[enough[0, 0] if len(enough) else -1].clamp_min(0))
    log_weights = -0.5 * ((spread - center) / _PRIOR_ERROR).square()
    if known.count:
        values = known.ranked.double()
        for position, sharpness in enumerate(grid.tolist()):
            right = ((sharpness * values).softmax(dim=1) * known.acceptable).sum(dim=1)
            log_weights[position] += _WORTH * (_WRONG / rows_y + (1 - _WRONG) * right).log().sum()
    return Sharpness(grid, log_weights.softmax(dim=0), level or 0.0, odds)


def _shares(ranked: Tensor, sharpness: float, level: float, odds: float) -> Tensor:
    """exp(s v) of each candidate (n, k) as a share of the sum over its row, which includes nobody."""
    if odds == 0:
        return (sharpness * ranked).softmax(dim=1)
    nobody = ranked.new_full((len(ranked), 1), sharpness * level + math.log(odds))
    return torch.cat([sharpness * ranked, nobody], dim=1).softmax(dim=1)[:, :-1]


def _level_of_nobody(ranked: Tensor) -> float | None:
    """The value that the best wrong candidate would have, from the values (n, k) of all; None if there are too few.

    It is extrapolated from how the later candidates fall with the log of their rank.
    """
    later = ranked[:, _LATER - 1 :]
    later = later[later.isfinite().all(dim=1)].mean(dim=0)
    if len(later) < _LATER or not bool(later.isfinite().all()):
        return None
    ranks = torch.arange(_LATER, _LATER + len(later), dtype=later.dtype, device=later.device).log()
    slope = ((ranks - ranks.mean()) * later).sum() / (ranks - ranks.mean()).square().sum()
    return float(later.mean() - slope * ranks.mean())


def _thinning_rate(ranked: Tensor) -> float:
    """One over the mean excess of the rivals' values above a quantile of the first ones, of candidates (n, k)."""
    rivals = ranked[:, 1:]
    for quantile in _LEVELS:
        level = ranked[:, 0].quantile(quantile)
        above = rivals[rivals > level]
        if len(above) >= _MIN_RIVALS:
            return 1 / max(float((above - level).mean()), 1e-6)
    # Rivals are nowhere near: how much their own values vary is used instead.
    there = rivals[rivals.isfinite()]
    spread = float(there.std()) if len(there) > 1 else 1.0
    return 1 / max(spread, 1e-6)


def judge_by_unseen(judged: Answer, unseen: KnownRows) -> Answer:
    """Whether the map is right: as judged, or by known pairs that are no seeds, if there are enough.

    Seeds cannot show it: what a search finds leans towards them, and in noise nearly all of them may come first.
    """
    if unseen.count < _ENOUGH_UNSEEN:
        return judged
    share = unseen.first / unseen.count
    reason = f"Of {unseen.count} known pairs that are no seeds, {unseen.first} come first."
    score = min(RECOGNISED_SCALE * share, 1.0)
    advice = "Run the discovery again with some of these pairs as seeds."
    return Answer(score, verdict_of(score), reason, advice, f"{unseen.count} known pairs that are no seeds")


def trust_in(map_answer: Answer) -> float:
    """A factor of all probabilities, from 0 to 1: less than 1 if the map's answer is in doubt, 0 if it is failed."""
    if map_answer.verdict == "failed":
        return 0.0
    return min(max((map_answer.score - UNCERTAIN) / (OK - UNCERTAIN), 0.0), 1.0)


def answer_lexicon(probabilities: Tensor, known: KnownRows, map_answer: Answer, min_confidence: float) -> Answer:
    """Whether those translations with these probabilities (n, k) that are listed are fit for a lexicon.

    `map_answer` says whether the map is right; unless it may be, nothing is said of translations.
    """
    if trust_in(map_answer) == 0:
        verdict = map_answer.verdict
        reason = f"Translations cannot be assessed, because the map is {verdict}. {map_answer.reason}"
        return Answer(0.0, verdict, reason, map_answer.advice, map_answer.basis)
    first = probabilities[:, 0]
    share, listed = float(first.mean()), first[first >= min_confidence]
    basis, checked = "how far first candidates lead", "no known pair checks that"
    if known.count:
        named = "known pair" if known.count == 1 else "known pairs"
        basis = f"{known.count} {named}, held out in turn"
        checked = f"of {known.count} {named}, held out in turn, {known.first} come first"
    reason = (
        f"About {share:.0%} of the first translations are acceptable, and {len(listed)} rows have one that is at least "
        f"{min_confidence:.0%} probable; {checked}."
    )
    if not len(listed):
        score = min(share, map_answer.score, UNCERTAIN)
        return Answer(score, verdict_of(score), reason, "List less probable ones with --min-confidence.", basis)
    score = min(float(listed.mean()), map_answer.score)
    verdict = "uncertain" if map_answer.verdict == "uncertain" and score >= OK else verdict_of(score)
    advice = "List what is probable enough for you with --min-confidence, and look at a few of the least probable."
    if verdict != "ok":
        advice = "Read it as suggestions: give more known pairs, or list only what is very probable."
    return Answer(score, verdict, reason, advice, basis)

"""The answers to "did it work?", one for each use, from what was judged, measured and found."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kedge.judging.confidence import Confidence
from kedge.judging.health import OK, UNCERTAIN, Answer, Health, Interval, Overlap, Verdict, verdict_of
from kedge.judging.judge import RECOGNISED_SCALE, Judgement
from kedge.judging.overlap import estimate_overlap
from kedge.judging.recognition import Recognition
from kedge.matching import Problem
from kedge.models.maps.choosing import ENOUGH_KNOWN, Centers, ChosenMap, choose_map
from kedge.solving.alignment import Alignment

# An overlap that is certainly below this is called small.
_FEW = 0.5
# If known pairs leave less than this share of the recognised rows, the others recognise twins.
_TWINS = 0.5
# The MRR of held-out known partners from which a map is no accident, and at least this many times what chance reaches,
# which is a hundredth where Y has 800 rows, but .09 where it has 50.
_RANK, _TIMES_CHANCE = 0.1, 3.0
# The MRR from which known pairs alone show where a seed's partner should be.
_CLEAR_RANK = 0.5
# A search serves if a row's partner is the first or second answer, or if half of the ten nearest are the partner's too.
_SEARCH_OK, _SEARCH_UNCERTAIN = 0.5, 0.25
_SEARCH_ADVICE = {
    "ok": "Search with translated vectors; kedge rehearse measures it with your own queries.",
    "uncertain": "Measure it with your own queries first (kedge rehearse), or give more known pairs.",
    "failed": "Do not search with it: give more known pairs, or more rows of both spaces.",
}


def judge_by_known(problem: Problem, judged: Judgement, centers: Centers) -> Judgement:
    """The judgement, revised in the light of the seeds where they are many.

    If maps fitted to some of them bring others to their partners, the map is no accident, whatever else was measured.
    How well one searches with it is another question (`answer_searching`).
    """
    seeds = len(problem.seeds_x)
    if seeds < ENOUGH_KNOWN or judged.answer.verdict == "ok":
        return judged
    rank = choose_map(problem, problem.seeds_x, problem.seeds_y, seeds, centers.y).mrr
    if rank is None or rank < max(_RANK, _TIMES_CHANCE * rank_by_chance(len(problem.y))):
        return judged
    reason = f"Known pairs that are held out find their partner with MRR {rank:.2f}, by maps of the others alone."
    advice = "Use it by what it does on the known pairs; found pairs are another question."
    return replace(judged, answer=Answer(max(rank, OK), "ok", reason, advice), known_rank=rank)


def rank_by_chance(rows: int) -> float:
    """The mean reciprocal rank of one of so many rows if all ranks are equally probable: H(rows) / rows."""
    return (math.log(rows) + float(np.euler_gamma)) / rows


def places_are_known(judged: Judgement) -> bool:
    """Whether the map is good enough to say which seeds are wrong."""
    return judged.ok and (judged.known_rank is None or judged.known_rank >= _CLEAR_RANK)


def answer_all(
    trusted: Problem,
    testing: Problem,
    alignment: Alignment,
    judged: Judgement,
    confidence: Confidence,
    found: NDArray[np.float32],
    forward: ChosenMap,
    seeds: int,
    *,
    disjoint: bool,
) -> Health:
    """All answers: for searching, by the map that was chosen, and for pairs, by those that were found.

    Of the `seeds` that were given, `trusted` is the problem with those that are trusted, `testing` the problem with
    those of them that test what was learned from the others. `found` (p,) are confidences.
    """
    overlap = _overlap(trusted, testing, confidence, disjoint=disjoint)
    searching = answer_searching(judged, forward, confidence.recognition, seeds)
    pairs = answer_pairs(trusted, judged, confidence, found, overlap, seeds, disjoint=disjoint)
    recognised, mutual = confidence.recognition.share, alignment.match.mutual_share
    of_map = replace(judged.answer, basis=_basis_of(judged))
    if judged.known_rank is not None:
        of_map = replace(of_map, verdict="uncertain")
    return Health(searching, pairs, overlap, recognised, judged.closeness, judged.agreement, mutual, judged=of_map)


def answer_searching(judged: Judgement, chosen: ChosenMap, recognition: Recognition, seeds: int) -> Answer:
    """Whether one can search with a map: as measured on known pairs if there are enough, otherwise as judged.

    Found pairs are the easy ones: what is measured on them can make the answer worse, but not better. `recognition` is
    that of all rows, which the answer for pairs reports, too: one figure for one thing.
    """
    tested = "known" if chosen.by_known else "known and found" if seeds else "found"
    by_pairs = _answer_by_pairs(chosen, tested)
    if chosen.by_known:
        return by_pairs
    answer, verdict = judged.answer, by_pairs.verdict
    reason, basis = answer.reason, _basis_of(judged)
    if judged.significant and answer.verdict == "ok" and judged.known_rank is None:
        reason = _describe_recognised(judged.recognition, recognition)
    if answer.verdict != "ok":  # what found pairs say does not count
        return replace(answer, reason=reason, basis=basis)
    if chosen.mrr is None:
        return replace(answer, reason=reason, basis=basis, advice=_SEARCH_ADVICE["ok"])
    score = answer.score if verdict == "ok" else min(by_pairs.score, answer.score)
    return replace(by_pairs, score=score, reason=f"{reason} {by_pairs.reason}", basis=f"{basis}; {by_pairs.basis}")


def answer_by_known(chosen: ChosenMap) -> Answer:
    """Whether one can search with a map, as measured on known pairs."""
    return _answer_by_pairs(chosen, "known")


def _answer_by_pairs(chosen: ChosenMap, tested: str) -> Answer:
    """What the pairs that a map was tested on, of the kind `tested`, say by themselves."""
    score = max(chosen.mrr or 0.0, chosen.overlap or 0.0)
    verdict: Verdict = "ok" if score >= _SEARCH_OK else "uncertain" if score >= _SEARCH_UNCERTAIN else "failed"
    basis = f"{chosen.tested:,} held-out {tested} pairs"
    return Answer(score, verdict, f"{_describe_search(chosen, tested)}.", _SEARCH_ADVICE[verdict], basis)


def _basis_of(judged: Judgement) -> str:
    """What the judgement rests on."""
    if judged.known_rank is not None:
        return "held-out known pairs"
    if judged.significant:
        return "recognition"
    return "too few rows" if judged.closeness is None else "random starts"


def _describe_recognised(judged: Recognition, recognition: Recognition) -> str:
    """How many rows recognise their counterpart; known pairs may have shown that many of them recognise a twin."""
    rows = f"{min(recognition.rows_x, recognition.rows_y):,} rows of {_smaller(recognition)}"
    if recognition.share < _TWINS * judged.share:
        return f"About {judged.share:.0%} of {rows} recognise their counterpart or a row much like it."
    return f"About {recognition.share:.0%} of {rows} recognise their counterpart."


def _smaller(recognition: Recognition) -> str:
    """The smaller space, whose rows the shares refer to."""
    return "X" if recognition.rows_x <= recognition.rows_y else "Y"


def _describe_search(chosen: ChosenMap, tested: str) -> str:
    mrr, overlap = chosen.mrr or 0.0, chosen.overlap or 0.0
    return (
        f"On {chosen.tested:,} {tested} pairs, held out in turn, translated rows reach MRR {mrr:.2f} and {overlap:.0%} "
        "overlap with the partner's ten nearest rows"
    )


def answer_pairs(
    trusted: Problem,
    judged: Judgement,
    confidence: Confidence,
    found: NDArray[np.float32],
    overlap: Overlap,
    seeds: int,
    *,
    disjoint: bool,
) -> Answer:
    """Whether the found pairs are right, by how many of the rows outside the seeds recognise their counterpart."""
    recognition = confidence.recognition
    rows = min(recognition.rows_x, recognition.rows_y)
    seeds_recognised = _recognised_seeds(trusted, confidence)
    share = max(recognition.count - seeds_recognised, 0.0) / max(rows - len(trusted.seeds_x), 1)
    known_alone = judged.known_rank is not None
    limit = UNCERTAIN if known_alone else judged.answer.score
    score = min(RECOGNISED_SCALE * share, limit, 1.0) if len(found) else 0.0
    verdict = verdict_of(score)
    counted = _count_pairs(len(found), seeds)
    right = f", about {found.mean():.0%} of them right" if len(found) else ""
    others = "other rows" if seeds else "rows"
    if recognition.rows_x != recognition.rows_y:
        others += f" of {_smaller(recognition)}"
    recognised = f"about {share:.0%} of all {others} recognise their counterpart"
    few = _describe_few(overlap.x if _smaller(recognition) == "X" else overlap.y, _smaller(recognition))
    if disjoint:
        reason = f"{counted}; none are looked for: the spaces were said to have nothing in common."
        return Answer(score, verdict, reason, "Omit --disjoint if they may share items after all.", "what was said")
    basis = "recognition"
    if judged.answer.verdict != "ok":
        basis = _basis_of(judged)
        verdict = judged.answer.verdict
        reason = f"{counted}{right}; they cannot be assessed, because the map is {verdict}."
        advice = judged.answer.advice
    elif rows <= len(trusted.seeds_x):
        reason, advice = f"{counted}: every row is in a seed.", "Give more rows to find pairs among."
    elif known_alone:
        verdict, basis = "uncertain", _basis_of(judged)
        reason = f"{counted}; only known pairs show that the map is right, and they say nothing of other pairs."
        advice = "Use the map, which needs no pairs; check the pairs that are listed before you use them."
    elif verdict == "ok":
        reason = f"{counted}{right}; {recognised}."
        advice = "Use pairs of high confidence first, and look at a few of them."
    else:
        reason = f"{counted}{right}; {recognised}: {few} several rows of Y fit equally well."
        advice = "Use the map, which needs no pairs; look at the pairs that are listed before you use them."
    return Answer(score, verdict, f"{reason} {confidence.isolation}".strip(), advice, basis)


def _count_pairs(found: int, seeds: int) -> str:
    besides = f" besides the {seeds:,} seed{'s' * (seeds != 1)}" if seeds else ""
    return f"{found:,} pair{'s' * (found != 1)} found{besides}"


def _describe_few(shared: Interval, smaller: str) -> str:
    """How much the two spaces share, as a share of the smaller one, as the first of two reasons, or against it."""
    if shared.estimate is not None and shared.high >= _FEW:
        return f"the two share {shared} of {smaller}'s items, {'but' if shared.low >= _FEW else 'or'}"
    amount = "few" if shared.high < _FEW else "an unknown part of their"
    known = "" if str(shared) == "unknown" else f" ({shared} of {smaller}'s)"
    return f"the two share {amount} items{known}, or"


def _recognised_seeds(trusted: Problem, confidence: Confidence) -> int:
    """How many of the trusted seeds were found without their own pairs."""
    unaided = confidence.unaided
    found = (unaided.partner[trusted.seeds_x] == trusted.seeds_y) & unaided.mutual[trusted.seeds_x]
    return int(found.sum())


def _overlap(trusted: Problem, testing: Problem, confidence: Confidence, *, disjoint: bool) -> Overlap:
    """The overlap, from how many tested seeds were recognised without their own pairs, if the map is ok."""
    seeds = len(trusted.seeds_x)
    if disjoint:  # only the seeds are shared
        known = [seeds / len(rows) for rows in (trusted.x, trusted.y)]
        return Overlap(*(Interval(share, share, share) for share in known))
    if confidence.trust == 0:
        return Overlap(Interval(None, 0.0, 1.0), Interval(None, 0.0, 1.0))
    recognised, tested = _recognised_seeds(testing, confidence), len(testing.seeds_x)
    unseen = tested < seeds
    overlap = estimate_overlap(
        confidence.recognition, tested, recognised, 1.0 if unseen else confidence.right_share, known=seeds
    )
    if confidence.trust < 1:  # under a wrong map, rows may only seem to be recognised: only the seeds are certain
        overlap = Overlap(
            replace(overlap.x, low=seeds / len(trusted.x)), replace(overlap.y, low=seeds / len(trusted.y))
        )
    return overlap

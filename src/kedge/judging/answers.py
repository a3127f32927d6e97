"""Both answers to "did it work?", put together: the map's as judged, the pairs' and the overlap from confidence."""

from __future__ import annotations

from dataclasses import replace

from kedge.judging.confidence import Confidence
from kedge.judging.health import OK, Answer, Health, Interval, Overlap, sentence, verdict_of
from kedge.judging.judge import RECOGNISED_SCALE, Judgement
from kedge.judging.overlap import estimate_overlap
from kedge.matching import Problem
from kedge.models.maps.choosing import ENOUGH_KNOWN, Centers, choose_map
from kedge.solving.alignment import Alignment

# An overlap that is surely below this is said to be small.
_FEW = 0.5
# Known partners that rank so high, on average, by maps that had not seen them: by chance it would be a hundredth.
_RANK = 0.1


def judge_by_known(problem: Problem, judged: Judgement, centers: Centers) -> Judgement:
    """The judgement, in the light of the seeds where they are many.

    If maps fitted to some of them bring others to their partners, the map is right, whatever else is seen.
    """
    seeds = len(problem.seeds_x)
    if seeds < ENOUGH_KNOWN or judged.answer.verdict == "ok":
        return judged
    rank = choose_map(problem, problem.seeds_x, problem.seeds_y, seeds, centers.y).mrr
    if rank is None or rank < _RANK:
        return judged
    reason = f"Known pairs that are held out find their partner with MRR {rank:.2f}, by maps of the others alone."
    advice = "Use it by what it does on the known pairs; found pairs are another question."
    return replace(judged, answer=Answer(max(rank, OK), "ok", reason, advice))


def answer_both(
    problem: Problem, alignment: Alignment, judged: Judgement, confidence: Confidence, listed: int, *, disjoint: bool
) -> Health:
    """Both answers: the map's as judged, the pairs' by how many rows are recognised.

    The problem has the seeds that are trusted; so many pairs are listed.
    """
    recognition = confidence.recognition
    overlap = _overlap(problem, confidence, disjoint=disjoint)
    score = min(RECOGNISED_SCALE * recognition.share, judged.answer.score)
    verdict = verdict_of(score)
    few = f"the two share {'few' if overlap.x.high < _FEW else 'an unknown part of their'} items ({overlap.x} of X's)"
    if disjoint:
        reason = "None are looked for: the spaces were said to have nothing in common."
        advice = "Omit --disjoint if they may share items after all."
    elif judged.answer.verdict != "ok":
        reason = f"Nothing can be said of them while the map is {judged.answer.verdict}; {recognition}."
        advice = judged.answer.advice
    elif verdict == "ok":
        reason = f"{sentence(recognition)}, and {listed} pairs are listed."
        advice = "Use pairs of high confidence first, and look at a few of them."
    else:
        reason = f"{sentence(recognition)}: {few}, or their rows look too much alike; {listed} pairs are listed."
        advice = "Use the map, which needs no pairs; look at the pairs that are listed before you use them."
    reason = f"{reason} {confidence.isolation}".strip()
    mutual = alignment.match.mutual_share
    pairs = Answer(score, verdict, reason, advice)
    return Health(judged.answer, pairs, overlap, recognition.share, judged.closeness, judged.agreement, mutual)


def _overlap(problem: Problem, confidence: Confidence, *, disjoint: bool) -> Overlap:
    """What is shared, as the seeds tell it that were recognised without their own pairs; unknown without a map."""
    seeds, unaided = len(problem.seeds_x), confidence.unaided
    if disjoint:  # but for the seeds
        known = [seeds / len(rows) for rows in (problem.x, problem.y)]
        return Overlap(*(Interval(share, share, share) for share in known))
    if confidence.trust == 0:
        return Overlap(Interval(None, 0.0, 1.0), Interval(None, 0.0, 1.0))
    found = (unaided.partner[problem.seeds_x] == problem.seeds_y) & unaided.mutual[problem.seeds_x]
    return estimate_overlap(confidence.recognition, seeds, int(found.sum()), confidence.right_share)

"""Both answers to "did it work?", put together: the map's as judged, the pairs' and the overlap from confidence."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from kedge.discovery.alignment import Alignment
from kedge.discovery.confidence import Confidence
from kedge.discovery.health import Answer, Health, Interval, Overlap, verdict_of
from kedge.discovery.judgement import RECOGNISED_SCALE, Judged
from kedge.discovery.maps import ENOUGH_KNOWN
from kedge.discovery.problem import Problem
from kedge.discovery.recognition import estimate_overlap

# An overlap that is surely below this is said to be small.
_FEW = 0.5
# A known pair is where it belongs if at most this share of the rows is closer; by chance hardly any is.
_IN_PLACE = 0.02


def judge_by_known(problem: Problem, judged: Judged, closer: Tensor) -> Judged:
    """The judgement, in the light of the seeds where they are many: (s,) rows are closer to them as read without them.

    If half of them are where they belong, though their own pairs were left out, the map is right, whatever else is
    seen.
    """
    seeds, rows = len(problem.seeds_x), (len(problem.x) + len(problem.y)) / 2
    if seeds < ENOUGH_KNOWN or judged.answer.verdict == "right":
        return judged
    score = float((closer <= _IN_PLACE * rows).double().mean())
    if score < 0.5:
        return judged
    reason = f"Read without them, {score:.0%} of the {seeds} known pairs are among the nearest {_IN_PLACE:.0%} of rows."
    advice = "Use it by what it does on the known pairs; found pairs are another question."
    return replace(judged, answer=Answer(score, "right", reason, advice))


def answer_both(
    problem: Problem, alignment: Alignment, judged: Judged, confidence: Confidence, listed: int, *, disjoint: bool
) -> Health:
    """Both answers: the map's as judged, the pairs' by how many rows are recognised.

    The problem has the seeds that are trusted; so many pairs are listed.
    """
    recognition = confidence.recognition
    overlap = _overlap(problem, confidence, disjoint=disjoint)
    score = min(1.0, RECOGNISED_SCALE * recognition.share, max(judged.answer.score, 0.0))
    verdict = verdict_of(score)
    few = f"the two share {'few' if overlap.x.high < _FEW else 'an unknown part of their'} items ({overlap.x} of X's)"
    told = f"about {recognition.share:.0%} of the rows recognise their counterpart"
    if disjoint:
        reason = "None are looked for: the spaces were said to have nothing in common."
        advice = "Leave out that they are disjoint, if they may share items after all."
    elif judged.answer.verdict != "right":
        reason = f"Nothing can be said of them while the map is {judged.answer.verdict}; {told}."
        advice = judged.answer.advice
    elif verdict == "right":
        reason = f"{told[0].upper()}{told[1:]}, and {listed} pairs are listed."
        advice = "Use pairs of high confidence first, and look at a few of them."
    else:
        reason = f"{told[0].upper()}{told[1:]}: {few}, or their rows look too much alike; {listed} pairs are listed."
        advice = "Use the map, which needs no pairs; look at the pairs that are listed before you use them."
    mutual = float(alignment.match.mutual.float().mean())
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
    return estimate_overlap(confidence.recognition, seeds, int(found.sum()))

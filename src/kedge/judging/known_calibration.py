"""Known pairs, each read without itself, as evidence of what confidence is worth.

They show two things: how often a pair of a certain margin is right, if the row has a counterpart at all; and what right
pairs look like, since found pairs that are right lead by as much as known ones do. Twins, such as rows of one template
or one product, recognise each other as if they were counterparts, but lead by less; where hardly any found pair leads
by as much as half of the known ones do, hardly any is right.

There may be only twenty known pairs, and a median of so few is uncertain. So whether found pairs lead by less at all is
asked by ranks, with a third of the variance; only then does the median, which hardly lets a twin pass, say how many are
right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.judging.confidence import Confidence
from kedge.matching import Problem

_EXTREME = 1e-6
_LARGEST_SHIFT = 30.0
# At least this many known pairs must be tested, or recognised, to show anything.
_MIN_TESTED = 10
# By this many standard errors of the rank test, found pairs must lead by less before any is doubted for that.
_CLEARLY = 2.0

Numbers = NDArray[np.float64]


class Count(NamedTuple):
    """How many of some pairs are right, with its standard error."""

    right: float
    error: float

    @property
    def high(self) -> float:
        """One standard error more: doubt does not count against the pairs."""
        return self.right + self.error


def held_to_known(confidence: Confidence, known: Problem) -> Confidence:
    """The confidence, lowered as far as the problem's seeds show it to be too high by more than a standard error."""
    found = confidence.match.mutual.cpu().numpy() & (confidence.paired > 0) & ~_given(confidence, known)
    if not found.any():
        return confidence
    for lower in (_held_to_margins, _held_to_seeds):
        confidence = lower(confidence, known, found)
    return confidence


def _held_to_margins(confidence: Confidence, known: Problem, found: NDArray[np.bool_]) -> Confidence:
    """The confidence, lowered if more pairs are said to be right than lead as known ones do."""
    unaided = confidence.unaided
    recognised = unaided.mutual[known.seeds_x] & (unaided.partner[known.seeds_x] == known.seeds_y)
    margins = unaided.margin.double().cpu().numpy()
    of_known = margins[known.seeds_x[recognised].cpu().numpy()]
    if len(of_known) < _MIN_TESTED:
        return confidence
    if not lead_by_less(margins[found], of_known, float(confidence.paired[found].sum())):
        return confidence
    right = count_right(margins[found], of_known)
    lowered = _lowered(confidence, known, confidence.paired[found], right)
    if lowered is confidence:
        return confidence
    recognition = confidence.recognition
    count = max(recognition.count - float(confidence.paired[found].sum()) + right.high, 0.0)
    return replace(lowered, recognition=replace(recognition, count=count, error=max(recognition.error, right.error)))


def _given(confidence: Confidence, known: Problem) -> NDArray[np.bool_]:
    """Mask (n,) of the rows of X in a seed: one of the problem, or any other, whose margin is infinite."""
    given: NDArray[np.bool_] = confidence.match.margin.isposinf().cpu().numpy()
    given[known.seeds_x.cpu().numpy()] = True
    return given


def lead_by_less(found: Numbers, known: Numbers, said: float) -> bool:
    """Whether found pairs with these margins (p,) lead by less than known ones (k,) would if `said` of them were right.

    A right pair leads by more than a known one in half of all cases: a one-sided rank test, as Mann and Whitney's.
    """
    ordered = np.sort(known)
    beaten = (np.searchsorted(ordered, found, "left") + np.searchsorted(ordered, found, "right")) / 2  # ties: a half
    as_if_right = 2 * float(beaten.sum()) / len(known)
    error = float(np.sqrt(said * (said + len(known) + 1) / (3 * len(known))))
    return as_if_right + _CLEARLY * error < said


def count_right(found: Numbers, known: Numbers) -> Count:
    """How many of the found pairs are right, by their margins (p,) and those of recognised known pairs (k,).

    Half of the right pairs lead by more than the known ones' median. Wrong ones may do so too: it is an upper bound.
    """
    level = np.median(known)
    leading, share = int((found >= level).sum()) + 1, float((known >= level).mean())
    right = leading / share
    return Count(right, right * float(np.sqrt(1 / leading + (1 - share) / (len(known) * share))))


def _held_to_seeds(confidence: Confidence, known: Problem, found: NDArray[np.bool_]) -> Confidence:
    """The confidence, lowered if seeds come out right less often than stated.

    The row of a seed has a counterpart, which other rows may lack: seeds can show that too much was stated, but never
    that it was too little.
    """
    unaided = confidence.unaided
    tested = unaided.mutual[known.seeds_x]
    rows, partners = known.seeds_x[tested], known.seeds_y[tested]
    if len(rows) < _MIN_TESTED:
        return confidence
    margins = confidence.match.margin.double().cpu().numpy()[found]
    order = np.argsort(margins)
    at = unaided.margin[rows].double().cpu().numpy()
    stated = np.interp(at, margins[order], confidence.paired[found][order]).clip(_EXTREME, 1 - _EXTREME)
    right, tests = max(int((unaided.partner[rows] == partners).sum()), 0.5), len(rows)
    return _lowered(confidence, known, stated, Count(right, float(np.sqrt(right * (1 - right / (tests + 1))))))


def _lowered(confidence: Confidence, known: Problem, stated: NDArray[Any], right: Count) -> Confidence:
    """The confidence with log odds, but for seeds, lowered until stated probabilities (k,) add up to `right.high`."""
    stated = stated.astype(np.float64).clip(_EXTREME, 1 - _EXTREME)
    if right.high >= stated.sum():
        return confidence
    from scipy.optimize import brentq  # imported here because it takes a third of a second
    from scipy.special import expit, logit

    shift = brentq(lambda by: expit(logit(stated) + by).sum() - right.high, -_LARGEST_SHIFT, 0.0)

    def lowered(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.minimum(expit(logit(probabilities.clip(_EXTREME, 1 - _EXTREME)) + shift), probabilities)

    before = confidence.paired.astype(np.float64)
    paired = np.where(_given(confidence, known), before, lowered(before)).astype(np.float32)
    minimum = float(lowered(np.array([confidence.minimum], dtype=np.float64))[0])
    return replace(confidence, paired=paired, minimum=minimum, curve=confidence.curve.lowered(lowered))

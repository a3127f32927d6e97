"""Known pairs, read without their own pair, as evidence of what confidence is worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from kedge.judging.confidence import Confidence
from kedge.matching import Problem
from kedge.models.maps.choosing import ENOUGH_KNOWN

# Standard errors by which known pairs must come out right less often than was stated.
_SIGNIFICANT = 2.0
_EXTREME = 1e-6
_LARGEST_SHIFT = 30.0


def held_to_known(confidence: Confidence, known: Problem) -> Confidence:
    """The confidence, lowered as far as the problem's seeds show it to be too high, where they are many.

    The row of a seed has a counterpart, which other rows may lack: seeds can show that too much was stated, never that
    it was too little. All log odds are lowered by as much as makes the seeds come out as they did.
    """
    unaided, match = confidence.unaided, confidence.match
    tested = unaided.mutual[known.seeds_x]
    rows, partners = known.seeds_x[tested], known.seeds_y[tested]
    given = np.zeros(len(confidence.paired), dtype=bool)
    given[known.seeds_x.cpu().numpy()] = True
    found = match.mutual.cpu().numpy() & ~given
    if len(known.seeds_x) < ENOUGH_KNOWN or not len(rows) or not found.any():
        return confidence
    margins = match.margin.double().cpu().numpy()[found]
    order = np.argsort(margins)
    at = unaided.margin[rows].double().cpu().numpy()
    stated = np.interp(at, margins[order], confidence.paired[found][order]).clip(_EXTREME, 1 - _EXTREME)
    right = max(int((unaided.partner[rows] == partners).sum()), 0.5)
    if right >= stated.sum() - _SIGNIFICANT * np.sqrt((stated * (1 - stated)).sum()):
        return confidence
    shift = brentq(lambda by: expit(logit(stated) + by).sum() - right, -_LARGEST_SHIFT, 0.0)

    def lowered(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.minimum(expit(logit(probabilities.clip(_EXTREME, 1 - _EXTREME)) + shift), probabilities)

    paired = np.where(given, confidence.paired, lowered(confidence.paired.astype(np.float64))).astype(np.float32)
    minimum = min(confidence.minimum, float(paired[found].min()))
    return replace(confidence, paired=paired, minimum=minimum, curve=confidence.curve.lowered(lowered))

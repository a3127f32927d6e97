"""Curves of a run: how it converged, and the precision that its confidence implies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.solving.steps import Step


class Curve(NamedTuple):
    """A value of one attempt, round by round."""

    attempt: str
    values: list[float]


def rounds_of(history: Sequence[Step], stage: str, figure: str) -> list[Curve]:
    """One curve per attempt, of the value `figure` in the steps of a stage."""
    attempts: dict[str, list[float]] = {}
    for step in history:
        if step.stage == stage and figure in step.figures:
            attempts.setdefault(step.attempt, []).append(step.figures[figure])
    return [Curve(attempt.split(":")[0] or stage, values) for attempt, values in attempts.items()]


def expected_precision(confidence: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean confidence of the 1, 2, ... p most confident pairs, from confidences (p,) in any order."""
    descending = np.sort(confidence)[::-1].astype(np.float64)
    return descending.cumsum() / np.arange(1, len(confidence) + 1)

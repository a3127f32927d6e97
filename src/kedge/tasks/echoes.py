"""The pairs of several runs against each other: which are in both, and which contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery

_NONE = -1


class Echo(NamedTuple):
    """What another run makes of the pairs of one: so many it has too, to a row of so many it gives another partner, and
    so many have no row that is in a pair of it.
    """

    same: int
    contradicted: int
    unknown: int

    @property
    def share(self) -> float | None:
        """How much of what both speak of is the same; None where that is nothing."""
        spoken = self.same + self.contradicted
        return self.same / spoken if spoken else None


class Partner(NamedTuple):
    """A key of Y, and how probable it is."""

    key: str
    confidence: float


class Disagreement(NamedTuple):
    """A row of X, and its partner in each run (None where it has none)."""

    key: str
    partners: tuple[Partner | None, ...]


class Partners:
    """Who is whose partner in each of r runs, by keys: arrays (r, n) over the n keys of X that are in any pair."""

    def __init__(self, runs: Sequence[AnchorDiscovery]) -> None:
        numbers_x: dict[str, int] = {}
        numbers_y: dict[str, int] = {}
        self._pairs: list[NDArray[np.int64]] = []
        for run in runs:
            left = [numbers_x.setdefault(key, len(numbers_x)) for key, _ in run.pair_keys_]
            right = [numbers_y.setdefault(key, len(numbers_y)) for _, key in run.pair_keys_]
            self._pairs.append(np.array([left, right], dtype=np.int64))
        self._keys_x, self._keys_y = list(numbers_x), list(numbers_y)
        self._of_x = np.full((len(runs), len(numbers_x)), _NONE)
        self._of_y = np.full((len(runs), len(numbers_y)), _NONE)
        self._confidence = np.full((len(runs), len(numbers_x)), float(_NONE), dtype=np.float32)
        for number, (run, (left, right)) in enumerate(zip(runs, self._pairs, strict=True)):
            self._of_x[number, left] = right
            self._of_y[number, right] = left
            self._confidence[number, left] = run.pair_confidence_

    def echo(self, one: int, other: int) -> Echo:
        """What one run's pairs are to another."""
        left, right = self._pairs[one]
        same = self._of_x[other, left] == right
        spoken = (self._of_x[other, left] != _NONE) | (self._of_y[other, right] != _NONE)
        return Echo(int(same.sum()), int((spoken & ~same).sum()), int((~spoken).sum()))

    def agreed(self) -> NDArray[np.float32]:
        """The mean confidence (a,) of each pair that all runs have."""
        in_all = (self._of_x == self._of_x[0]).all(axis=0) & (self._of_x[0] != _NONE)
        mean: NDArray[np.float32] = self._confidence[:, in_all].mean(axis=0)
        return mean

    def disputed(self, most: int) -> tuple[int, tuple[Disagreement, ...]]:
        """How many rows of X have different partners, and some of them: those that a second run is surest of first."""
        places = np.arange(len(self._keys_x))
        first = self._of_x[self._confidence.argmax(axis=0), places]
        rivals = (self._of_x != first) & (self._of_x != _NONE)
        surest_rival = np.where(rivals, self._confidence, _NONE).max(axis=0, initial=_NONE)
        count = int((surest_rival != _NONE).sum())
        shown = np.argsort(-surest_rival, kind="stable")[: min(most, count)]
        return count, tuple(Disagreement(self._keys_x[place], self._listed(place)) for place in shown.tolist())

    def _listed(self, place: int) -> tuple[Partner | None, ...]:
        """The partners of one row of X, run by run."""
        return tuple(
            None if partner == _NONE else Partner(self._keys_y[partner], confidence)
            for partner, confidence in zip(
                self._of_x[:, place].tolist(), self._confidence[:, place].tolist(), strict=True
            )
        )

"""Compare the pairs of several runs: which they share, and which contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery

_NONE = -1


class PairAgreement(NamedTuple):
    """How many pairs of one run another run has too (`same`), contradicts by pairing either row differently
    (`contradicted`), or says nothing about because it pairs neither row (`unknown`).
    """

    same: int
    contradicted: int
    unknown: int

    @property
    def share(self) -> float | None:
        """The share of `same` among the pairs with a row that the other run pairs too; None if there are none."""
        known = self.same + self.contradicted
        return self.same / known if known else None


class Partner(NamedTuple):
    """A key of Y, and how probable it is."""

    key: str
    confidence: float


class Disagreement(NamedTuple):
    """A row of X and its partner in each run (None if it has none)."""

    key: str
    partners: tuple[Partner | None, ...]


class Partners:
    """The partner of each row in each of r runs, by key: arrays (r, n) over the n keys of X that are in any pair."""

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

    def agreement(self, one: int, other: int) -> PairAgreement:
        """How far the pairs of one run agree with another run."""
        left, right = self._pairs[one]
        same = self._of_x[other, left] == right
        known = (self._of_x[other, left] != _NONE) | (self._of_y[other, right] != _NONE)
        return PairAgreement(int(same.sum()), int((known & ~same).sum()), int((~known).sum()))

    def agreed(self) -> NDArray[np.float32]:
        """The mean confidence (a,) of each pair that all runs share."""
        in_all = (self._of_x == self._of_x[0]).all(axis=0) & (self._of_x[0] != _NONE)
        mean: NDArray[np.float32] = self._confidence[:, in_all].mean(axis=0)
        return mean

    def disputed(self, max_examples: int) -> tuple[int, tuple[Disagreement, ...]]:
        """How many rows of X have different partners in different runs, and up to `max_examples` of them.

        Rows are listed by the confidence of their second partner, highest first.
        """
        places = np.arange(len(self._keys_x))
        first = self._of_x[self._confidence.argmax(axis=0), places]
        rivals = (self._of_x != first) & (self._of_x != _NONE)
        best_rival = np.where(rivals, self._confidence, _NONE).max(axis=0, initial=_NONE)
        count = int((best_rival != _NONE).sum())
        shown = np.argsort(-best_rival, kind="stable")[: min(max_examples, count)]
        return count, tuple(Disagreement(self._keys_x[place], self._listed(place)) for place in shown.tolist())

    def _listed(self, place: int) -> tuple[Partner | None, ...]:
        """The partner of one row of X in each run."""
        return tuple(
            None if partner == _NONE else Partner(self._keys_y[partner], confidence)
            for partner, confidence in zip(
                self._of_x[:, place].tolist(), self._confidence[:, place].tolist(), strict=True
            )
        )

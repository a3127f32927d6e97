"""How far to trust the translation of one vector: evidence that a run keeps, in plain NumPy.

A run translates pairs by maps that had not seen them, and keeps by how much each finds its own partner: the *margin* of
the partner's similarity over what it takes to be among the ten nearest. Margins are continuous, so that a few hundred
of them teach something even where all partners are found. The margin of a new vector is predicted by a line through
two figures: the mean margin of its nearest pairs (the local held-out error), and the length of its translation in units
of the noise that the pair model expects. What the line misses, where it expects about as
much, says how sure that is.

It is true of vectors that resemble those of the run. How much a vector does is a second figure, its *familiarity*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.models.translator import Normaliser

MIN_PAIRS = 40
"""With fewer held-out pairs nothing is said."""

MAX_SEEN = 1000
"""Rows of the source that are kept to say what it has seen."""

_NEAREST = 10
# Of the line, in pairs: as if so many had said that neither figure matters.
_PRIOR = 20.0
# Pairs are taken for alike in what the line misses where they are within one such part of all.
_WINDOWS = 4
_FAMILIAR_BY = 3


class Trust(NamedTuple):
    """How far to trust translations of k vectors.

    `probability` (k,) is that of the vector's own text being among the first ten of the index that the run had as its
    target. `familiarity` (k,) is the share of the source's own rows that resemble the others no more than this vector
    does: near 0 it is unlike all that the run has seen, and the probability rests on nothing.
    """

    probability: NDArray[np.float32]
    familiarity: NDArray[np.float32]


@dataclass(frozen=True)
class TrustEvidence:
    """What a run knows of the errors of its map.

    `pairs` (p, ds) are normalised rows of the source that were translated by maps which had not seen them, `margins`
    (p,) by how much each found its partner, `seen` (s, ds) some normalised rows of all that it was fitted to, and
    `directions` (ds, c) those of the source that its pair model shares with the target, in units of what it leaves open
    there: they give the length of what is predicted against its noise.
    """

    pairs: NDArray[np.float32]
    margins: NDArray[np.float32]
    seen: NDArray[np.float32]
    directions: NDArray[np.float32]

    def __call__(self, normaliser: Normaliser, vectors: NDArray[np.float32]) -> Trust:
        """The trust in translations of vectors (k, ds), as the source is normalised."""
        rows = normaliser(vectors)
        expected = self._line.predict(self._figures(rows, rows @ self.pairs.T))
        # Of the pairs of which about as much was expected, how many would it miss? Half a pair keeps it off 0 and 1.
        known, misses = self._misses
        window = min(len(known), max(MIN_PAIRS, len(known) // _WINDOWS))
        begin = np.clip(np.searchsorted(known, expected) - window // 2, 0, len(known) - window)
        above = (misses[begin[:, None] + np.arange(window)] + expected[:, None] > 0).sum(axis=1)
        probability = (above + 0.5) / (window + 1)
        below = np.searchsorted(self._usual_nearness, _nearness(rows @ self.seen.T), side="right")
        familiarity = below / len(self._usual_nearness)
        return Trust(probability.astype(np.float32), familiarity.astype(np.float32))

    def _figures(self, rows: NDArray[np.float32], similarity: NDArray[np.float32]) -> NDArray[np.float64]:
        """The figures (k, 2) that predict margins, of rows (k, ds) and their similarity (k, p) to the pairs."""
        count = min(_NEAREST, similarity.shape[1] - 1)
        nearest = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        local = self.margins[nearest].mean(axis=1)
        shared = np.linalg.norm(rows @ self.directions, axis=1)
        return np.stack([local, shared], axis=1).astype(np.float64)

    @cached_property
    def _own_figures(self) -> NDArray[np.float64]:
        """The figures (p, 2) of the pairs, each without itself."""
        similarity = self.pairs @ self.pairs.T
        np.fill_diagonal(similarity, -np.inf)
        return self._figures(self.pairs, similarity)

    @cached_property
    def _line(self) -> _Line:
        return _Line.fit(self._own_figures, self.margins.astype(np.float64))

    @cached_property
    def _misses(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The margins (p,) that the line leads to expect of the pairs, in order, and how far (p,) they are above."""
        expected = self._line.predict(self._own_figures)
        order = np.argsort(expected, kind="stable")
        return expected[order], (self.margins - expected)[order]

    @cached_property
    def _usual_nearness(self) -> NDArray[np.float32]:
        """How near (s,) the rows that were seen are to the others, in order."""
        similarity = self.seen @ self.seen.T
        np.fill_diagonal(similarity, -np.inf)
        return np.sort(_nearness(similarity))


def weigh_evidence(
    pairs: NDArray[np.float32],
    margins: NDArray[np.float32],
    seen: NDArray[np.float32],
    directions: NDArray[np.float32],
    correlations: NDArray[np.float32],
) -> TrustEvidence | None:
    """The evidence of pairs (p, ds) with margins (p,) and of rows (s, ds) that were seen, all normalised.

    `directions` (ds, c) and `correlations` (c,) are those of the pair model. None where the pairs are too few.
    """
    if len(pairs) < MIN_PAIRS:
        return None
    # A partner's coordinate is expected to be the correlation times this one's, with what is left of 1 as variance.
    signal = correlations / np.sqrt(1 - correlations**2)
    return TrustEvidence(pairs, margins, seen, (directions * signal).astype(np.float32))


@dataclass(frozen=True)
class _Line:
    """Margins by figures: their means (2,) and scales (2,), slopes (2,) and the mean margin."""

    means: NDArray[np.float64]
    scales: NDArray[np.float64]
    slopes: NDArray[np.float64]
    level: float

    @classmethod
    def fit(cls, figures: NDArray[np.float64], margins: NDArray[np.float64]) -> _Line:
        """The line through figures (p, 2) and margins (p,), by ridge regression."""
        means, scales = figures.mean(axis=0), np.maximum(figures.std(axis=0), 1e-9)
        standard, level = (figures - means) / scales, float(margins.mean())
        gram = standard.T @ standard + _PRIOR * np.eye(standard.shape[1])
        return cls(means, scales, np.linalg.solve(gram, standard.T @ (margins - level)), level)

    def predict(self, figures: NDArray[np.float64]) -> NDArray[np.float64]:
        """The margins (k,) that figures (k, 2) lead to expect."""
        return (figures - self.means) / self.scales @ self.slopes + self.level


def _nearness(similarity: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the three largest similarities (k,) in each row (k, s)."""
    count = min(_FAMILIAR_BY, similarity.shape[1] - 1)
    return np.partition(similarity, -count, axis=1)[:, -count:].mean(axis=1)

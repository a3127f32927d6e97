"""How far to trust the translation of one vector: evidence that a run keeps, in plain NumPy.

A run translates pairs by maps that have not seen them, and keeps the *margin* of each: by how much its own partner's
similarity exceeds what it takes to be among the ten nearest. Margins are continuous, so that a few hundred of them are
informative even if all partners are found. The margin of a new vector is predicted by linear regression on two figures:
the mean margin of its nearest pairs (the local held-out error), and the length of its translation in units of the noise
that the pair model expects. The residuals of pairs with similar predictions show how certain that is.

This holds for vectors that resemble those of the run. How much a vector does is given separately, by its *familiarity*.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.models.translator import Normaliser

MIN_PAIRS = 40
"""With fewer held-out pairs there is no estimate."""

MAX_SEEN = 1000
"""Rows of the source that are kept as a sample of what the run has seen."""

_NEAREST = 10
# The prior of the regression: as if this many pairs had shown that neither figure matters.
_PRIOR = 20.0
# Residuals are taken from one in this many pairs: those with the most similar predictions.
_WINDOWS = 4
_FAMILIAR_BY = 3


class Trust(NamedTuple):
    """How far to trust translations of k vectors.

    `probability` (k,) is that of the vector's own text being among the first ten of the index that the run had as its
    target. `familiarity` (k,) is the share of the source's own rows that resemble the others no more than this vector
    does: near 0 it is unlike anything the run has seen, and the probability is unfounded.
    """

    probability: NDArray[np.float32]
    familiarity: NDArray[np.float32]


@dataclass(frozen=True)
class TrustEvidence:
    """What a run knows about the errors of its map.

    `pairs` (p, ds) are normalised rows of the source that were translated by maps that had not seen them, `margins`
    (p,) those of their translations, `seen` (s, ds) a sample of the normalised rows that the run was fitted to, and
    `directions` (ds, c) the canonical directions of the source, scaled so that the length of a row along them is the
    length of what the pair model predicts, in units of its noise.
    """

    pairs: NDArray[np.float32]
    margins: NDArray[np.float32]
    seen: NDArray[np.float32]
    directions: NDArray[np.float32]

    def __call__(self, normaliser: Normaliser, vectors: NDArray[np.float32]) -> Trust:
        """The trust in translations of vectors (k, ds), normalised by the source's `normaliser`."""
        rows = normaliser(vectors)
        expected = self._line.predict(self._figures(rows, rows @ self.pairs.T))
        # How often is it positive, given the residuals of pairs with similar predictions? Half a pair avoids 0 and 1.
        known, misses = self._misses
        window = min(len(known), max(MIN_PAIRS, len(known) // _WINDOWS))
        begin = np.clip(np.searchsorted(known, expected) - window // 2, 0, len(known) - window)
        above = (misses[begin[:, None] + np.arange(window)] + expected[:, None] > 0).sum(axis=1)
        probability = (above + 0.5) / (window + 1)
        below = np.searchsorted(self._usual_nearness, _nearness(rows @ self.seen.T), side="right")
        familiarity = below / len(self._usual_nearness)
        return Trust(probability.astype(np.float32), familiarity.astype(np.float32))

    def _figures(self, rows: NDArray[np.float32], similarity: NDArray[np.float32]) -> NDArray[np.float64]:
        """The figures (k, 2) that predict the margins of rows (k, ds), given their similarity (k, p) to the pairs."""
        count = min(_NEAREST, similarity.shape[1] - 1)
        nearest = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        local = self.margins[nearest].mean(axis=1)
        shared = np.linalg.norm(rows @ self.directions, axis=1)
        return np.stack([local, shared], axis=1).astype(np.float64)

    @cached_property
    def _own_figures(self) -> NDArray[np.float64]:
        """The figures (p, 2) of the pairs, each from all other pairs."""
        similarity = self.pairs @ self.pairs.T
        np.fill_diagonal(similarity, -np.inf)
        return self._figures(self.pairs, similarity)

    @cached_property
    def _line(self) -> _Line:
        return _Line.fit(self._own_figures, self.margins.astype(np.float64))

    @cached_property
    def _misses(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The predicted margins (p,) of the pairs, ascending, and their residuals (p,) in the same order."""
        expected = self._line.predict(self._own_figures)
        order = np.argsort(expected, kind="stable")
        return expected[order], (self.margins - expected)[order]

    @cached_property
    def _usual_nearness(self) -> NDArray[np.float32]:
        """How near (s,) each of the rows that were seen is to the others, ascending."""
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
    """The evidence from pairs (p, ds) with margins (p,) and rows (s, ds) that were seen, all normalised.

    `directions` (ds, c) and `correlations` (c,) are those of the pair model. None if there are too few pairs.
    """
    if len(pairs) < MIN_PAIRS:
        return None
    # Given a canonical coordinate u, the partner's has mean r u and variance 1 - r^2.
    signal = correlations / np.sqrt(1 - correlations**2)
    return TrustEvidence(pairs, margins, seen, (directions * signal).astype(np.float32))


@dataclass(frozen=True)
class _Line:
    """A linear prediction of margins from figures: means (2,), scales (2,) and slopes (2,), and the mean margin."""

    means: NDArray[np.float64]
    scales: NDArray[np.float64]
    slopes: NDArray[np.float64]
    level: float

    @classmethod
    def fit(cls, figures: NDArray[np.float64], margins: NDArray[np.float64]) -> _Line:
        """Fit margins (p,) to figures (p, 2) by ridge regression."""
        means, scales = figures.mean(axis=0), np.maximum(figures.std(axis=0), 1e-9)
        standard, level = (figures - means) / scales, float(margins.mean())
        gram = standard.T @ standard + _PRIOR * np.eye(standard.shape[1])
        return cls(means, scales, np.linalg.solve(gram, standard.T @ (margins - level)), level)

    def predict(self, figures: NDArray[np.float64]) -> NDArray[np.float64]:
        """The margins (k,) predicted from figures (k, 2)."""
        return (figures - self.means) / self.scales @ self.slopes + self.level


def _nearness(similarity: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean (k,) of the three largest similarities in each row (k, s)."""
    count = min(_FAMILIAR_BY, similarity.shape[1] - 1)
    return np.partition(similarity, -count, axis=1)[:, -count:].mean(axis=1)

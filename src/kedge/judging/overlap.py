"""Overlap: the share of the items of either space that the other has too."""

from __future__ import annotations

import numpy as np

from kedge.judging.health import Interval, Overlap
from kedge.judging.recognition import Recognition

# How far off the law was on words, images and texts, in shares of all rows: it tends to find too few.
_LAW_LOW, _LAW_HIGH = -0.06, 0.10
_MIN_SEEDS, _MIN_DISTINGUISHED = 10, 0.5
# Other rows are recognised at least this fraction as often as seeds, however few pairs are right; with this many seeds,
# the chance that seeds are recognised more often at all is one half.
_MIN_RIGHT, _BENDING_SEEDS = 0.25, 15
_DRAWS = 4000


def estimate_overlap(
    recognition: Recognition, seeds: int, seeds_recognised: int, right_share: float = 1.0, known: int | None = None
) -> Overlap:
    """The share of each space's items that the other has too.

    A row is recognised if it has a counterpart and can be distinguished from others. The seeds show how often the
    latter holds: `seeds_recognised` of `seeds` were recognised by models that had not seen them. But the search began
    with them, and where few of the pairs that it found are right (`right_share`), the map may be bent towards the
    seeds: other rows are then recognised less often, by a factor between this share and 1. That is less likely with
    more seeds, and seeds that the search never saw cannot have bent it. `known` pairs are in both spaces, whether or
    not they are among these seeds. With few seeds, or fewer than half of them recognised, there is only a lower bound.
    """
    chance = np.random.default_rng(0)
    total = min(recognition.rows_x, recognition.rows_y)
    shares = recognition.share + recognition.share_error * chance.standard_normal(_DRAWS)
    # The law can only be off about non-matches.
    shares = shares + np.sqrt(1 - recognition.share) * chance.uniform(_LAW_LOW, _LAW_HIGH, _DRAWS)
    distinguished = chance.beta(seeds_recognised + 0.5, seeds - seeds_recognised + 0.5, _DRAWS)
    bent = chance.random(_DRAWS) < _BENDING_SEEDS / (_BENDING_SEEDS + seeds)
    distinguished *= np.where(bent, chance.uniform(max(right_share, _MIN_RIGHT), 1, _DRAWS), 1)
    # Where few seeds are recognised, unrecognised rows may well have a counterpart.
    shown = seeds >= _MIN_SEEDS and seeds_recognised >= _MIN_DISTINGUISHED * seeds
    in_both = (seeds if known is None else known) / total
    shared = np.clip(shares / distinguished if shown else shares, in_both, 1) * total

    def interval(rows: int) -> Interval:
        low, middle, high = (float(value) for value in np.quantile(shared / rows, (0.05, 0.5, 0.95)))
        return Interval(middle, low, high) if shown else Interval(None, low, min(1.0, total / rows))

    return Overlap(interval(recognition.rows_x), interval(recognition.rows_y))

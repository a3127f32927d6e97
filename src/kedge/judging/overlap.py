"""What two spaces share: the share of the items of either that the other has too."""

from __future__ import annotations

import numpy as np

from kedge.judging.health import Interval, Overlap
from kedge.judging.recognition import Recognition

# How far the law has been seen to be off on words, images and texts, in shares of all rows: it rather finds too few.
_LAW_LOW, _LAW_HIGH = -0.06, 0.10
_MIN_SEEDS, _MIN_DISTINGUISHED = 10, 0.5
# However few pairs are right, seeds are not read better than others by more; with so many seeds, as probably as not
# they are read better at all.
_MIN_RIGHT, _BENDING_SEEDS = 0.25, 15
_DRAWS = 4000


def estimate_overlap(
    recognition: Recognition, seeds: int, seeds_recognised: int, right_share: float = 1.0, known: int | None = None
) -> Overlap:
    """The share of each space's items that the other has too.

    Rows are recognised if they have a counterpart and can be distinguished from others. How often the latter is so, the
    seeds show: so many of them were recognised by models that had not seen them. But the search began with them, and
    where few of the pairs that it came to are right (`right_share`), the map may be bent towards the seeds: other rows
    are then recognised less often, by a factor that lies between this share and one. The more seeds, the less likely.
    Seeds that the search never saw cannot have bent it; `known` pairs are in both spaces, whether or not they test it.
    Without seeds, or where fewer than half of them are recognised, there is only a lower bound.
    """
    chance = np.random.default_rng(0)
    total = min(recognition.rows_x, recognition.rows_y)
    shares = recognition.share + recognition.share_error * chance.standard_normal(_DRAWS)
    # The law is off where there are non-matches to be off about.
    shares = shares + np.sqrt(1 - recognition.share) * chance.uniform(_LAW_LOW, _LAW_HIGH, _DRAWS)
    distinguished = chance.beta(seeds_recognised + 0.5, seeds - seeds_recognised + 0.5, _DRAWS)
    bent = chance.random(_DRAWS) < _BENDING_SEEDS / (_BENDING_SEEDS + seeds)
    distinguished *= np.where(bent, chance.uniform(max(right_share, _MIN_RIGHT), 1, _DRAWS), 1)
    # Where few seeds are recognised, that others are not says nothing about whether they have a counterpart.
    shown = seeds >= _MIN_SEEDS and seeds_recognised >= _MIN_DISTINGUISHED * seeds
    in_both = (seeds if known is None else known) / total
    shared = np.clip(shares / distinguished if shown else shares, in_both, 1) * total

    def interval(rows: int) -> Interval:
        low, middle, high = (float(value) for value in np.quantile(shared / rows, (0.05, 0.5, 0.95)))
        return Interval(middle, low, high) if shown else Interval(None, low, min(1.0, total / rows))

    return Overlap(interval(recognition.rows_x), interval(recognition.rows_y))

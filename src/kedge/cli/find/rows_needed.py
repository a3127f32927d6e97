"""How many rows per side are needed if two files share little, as measured, for given dimensions."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

SEEDS = 15
ENOUGH = 0.6
"""The share of what all pairs reach that counts as enough."""


class Run(NamedTuple):
    """Two spaces that share a part of their items, and `SEEDS` pairs besides.

    `dimensions` are those of the space that has fewer; `reached` is the share of new items whose counterpart the map
    ranks first, relative to that of a rotation fitted to all pairs.
    """

    pair: str
    share: float
    rows: int
    dimensions: int
    reached: float


# By `benchmarks/rows_needed.py`, on one H200; the pairs are explained in the documentation's page on settings.
RUNS = (
    Run("sentences", 0.0, 5000, 384, 0.09),
    Run("sentences", 0.0, 12500, 384, 0.62),
    Run("texts", 0.0, 3800, 384, 0.76),
    Run("texts-fr", 0.0, 3800, 384, 0.32),
    Run("vit", 0.0, 3800, 128, 0.76),
    Run("easy", 0.0, 3800, 100, 0.97),
    Run("mobilenet", 0.5, 1200, 1024, 0.06),
    Run("texts", 0.5, 4000, 384, 0.97),
    Run("texts-fr", 0.5, 4000, 384, 0.91),
    Run("medium", 0.5, 3900, 300, 0.86),
    Run("vit", 0.5, 4000, 128, 0.92),
    Run("easy", 0.5, 4000, 100, 1.0),
)


def rows_needed(share: float, dimensions: int) -> int:
    """The rows per side from which every run with this share reached enough, scaled by dimensions, in hundreds.

    `dimensions` are those of the space that has fewer.
    """
    runs = sorted((run for run in RUNS if run.share == share), key=lambda run: run.rows / run.dimensions, reverse=True)
    *_, smallest = takewhile(lambda run: run.reached >= ENOUGH, runs)
    return 100 * round(smallest.rows / smallest.dimensions * dimensions / 100)


def advice_on_rows(rows: int, dimensions: int) -> str:
    """What this many rows per side can do if little is shared, in one sentence."""
    nothing, half = (rows_needed(share, dimensions) for share in (0.0, 0.5))
    return (
        f"in our measurements, {SEEDS} seeds were enough from {nothing:,} rows per side if the files shared nothing "
        f"else, and from {half:,} if they shared half of their items; you gave {rows:,}"
    )

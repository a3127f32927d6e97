"""How many rows recognise their counterpart, and how sure a pair is, as first and second choices show.

A row without a counterpart chooses a non-match, and now and then one that stands out as if it were the counterpart.
How often non-matches stand out, and by how much, can be measured without knowing the truth. Let S(t) be the share of
rows without a counterpart whose first choice is mutual and leads by a *margin* of more than t. Take every row's first
choice away, and look at the second:

- A row that had chosen its counterpart is now a row without one: its second choice leads by more than t with the same
  probability S(t).
- A row that had chosen a non-match now has the second best of them. The largest similarities to non-matches fall off
  exponentially, as extremes do; the best is then the first event of a Poisson process and the second best its second
  event, which leads by more than t with probability S(t)^2.

If a share p of the rows has chosen its counterpart, first choices exceed the margin t with frequency
D(t) = p T(t) + (1 - p) S(t), and second choices with F(t) = p S(t) + (1 - p) S(t)^2. Nearly every counterpart that is
chosen is mutual, T(0) = 1; then S(0) = F(0) / D(0), from which p follows. Given p, F yields S at every other margin,
and (1 - p) S over D is the share of non-matches among the pairs of any margin. All of this is measured on the spaces at
hand; where nothing is shared, or the map is wrong, p comes out as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.geometry import never_rising
from kedge.judging.isolation import Isolation
from kedge.matching import Comparison, Match

PROBABLE = 0.5
"""Pairs that are at least this probable are learned from."""

MIN_ROWS = 50
"""Shares of fewer rows are too rough to say anything."""

_SAMPLE = 4000
_BINS = 20
# The share of first choices that count as those with the largest margins.
_TOP = 0.1


@dataclass(frozen=True)
class Choices:
    """Margins of the first choices of all rows of X (n,), and of the second choices of some rows of X (k,) and Y (l,).

    Isolated rows may be left out, since the law says nothing about them. `rows_y` is the number of rows of Y; a margin
    is positive if the choice is mutual.
    """

    first: NDArray[np.float64]
    second_x: NDArray[np.float64]
    second_y: NDArray[np.float64]
    rows_y: int

    @classmethod
    def from_comparison(
        cls, compared: Comparison, match: Match, generator: torch.Generator, without: Isolation | None = None
    ) -> Choices:
        """The choices of rows that are compared, given their match, `without` isolated ones."""
        some_x, some_y = (_some(rows, generator) for rows in (compared.x, compared.y))
        first, rows_y = match.margin, len(compared.y)
        if without is not None and without.any:
            some_x, some_y = some_x[~without.x[some_x]], some_y[~without.y[some_y]]
            first = torch.where(without.y[match.partner], -first.abs(), first)[~without.x]
            rows_y = int((~without.y).sum())
        second_x = compared.second_margins(match, some_x)
        second_y = compared.second_margins(match, some_y, of_y=True)
        return cls(_numbers(first), _numbers(second_x), _numbers(second_y), rows_y)


def _numbers(margins: Tensor) -> NDArray[np.float64]:
    return margins.double().cpu().numpy()


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randperm(len(rows), generator=generator)[:_SAMPLE].sort().values.to(rows.device)


@dataclass(frozen=True)
class Recognition:
    """The estimated number of rows of X that have chosen their counterpart in Y, and its standard error."""

    count: float
    error: float
    rows_x: int
    rows_y: int

    def less(self, chance_rate: float) -> Recognition:
        """Subtract the share of rows, of the smaller space, that only seem to be recognised."""
        return replace(self, count=max(self.count - chance_rate * min(self.rows_x, self.rows_y), 0.0))

    def __str__(self) -> str:
        return f"about {self.share:.0%} of the rows recognise their counterpart"

    @property
    def share(self) -> float:
        """The count as a share of the rows of the smaller space."""
        return min(self.count / min(self.rows_x, self.rows_y), 1.0)

    def exceeds(self, chance_rate: float, share: float) -> bool:
        """Whether at least this share of rows is recognised beyond chance, by two standard errors."""
        return self.share - chance_rate - 2 * self.share_error >= share

    @property
    def share_error(self) -> float:
        """The standard error of the share."""
        return self.error / min(self.rows_x, self.rows_y)


def count_recognised(choices: Choices) -> Recognition:
    """Estimate the number by the law above, from the rows of X and from those of Y."""
    n, m = len(choices.first), choices.rows_y
    mutual = int((choices.first > 0).sum())
    found = [
        (total * share, total * error)
        for total, (share, error) in (
            (n, _recognised(mutual / n, choices.second_x)),
            (m, _recognised(mutual / m, choices.second_y)),
        )
    ]
    # Both count the same pairs, and differ only by the noise of the second choices.
    count, error = np.mean(found, axis=0).tolist()
    if min(n, m) < MIN_ROWS:
        return Recognition(0.0, float(min(n, m)), n, m)
    return Recognition(float(np.clip(count, 0, mutual)), error, n, m)


def _recognised(mutual: float, second: NDArray[np.float64]) -> tuple[float, float]:
    """The share p of a side's rows, and its standard error, from its mutual share D(0) and its second choices."""
    rows = len(second)
    again = float((second > 0).mean())
    spread = mutual - again
    if spread <= 0:
        return 0.0, 1.0 / rows
    share = (mutual**2 - again) / spread
    by_mutual = (2 * mutual - share) / spread
    by_again = (share - 1) / spread
    variance = by_mutual**2 * mutual * (1 - mutual) + by_again**2 * again * (1 - again)
    return share, float(np.sqrt(variance / rows)) + 1.0 / rows


def shown_by_margins(choices: Choices) -> bool:
    """Whether the largest margins, too, show that rows recognise their counterparts.

    With nothing shared, models fitted to false pairs make first choices lead a little more often than the law says, and
    a few rows seem recognised; but those are not the ones that lead by far. If t is the margin that a tenth of the
    first choices exceeds, and there are only non-matches, D(t)^2 of the second choices exceed it, or more where
    similarities fall off more slowly. Where counterparts stand out, fewer do.
    """
    margin = float(np.quantile(choices.first, 1 - _TOP))
    exceeded = float((choices.first > margin).mean())
    second = np.concatenate([choices.second_x, choices.second_y])
    again = float((second > margin).mean())
    expected = exceeded**2
    return margin > 0 and again + np.sqrt(expected / len(second)) < expected


def pair_probabilities(choices: Choices, recognition: Recognition) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ascending margins, and the probability, never falling, that a mutual pair with each of them is right."""
    rows = len(choices.first)
    # Uncertain pairs do not count: the number of right ones is taken to be one standard error lower.
    share = float(np.clip((recognition.count - recognition.error) / rows, 0, 1 - 1e-9))
    margins = np.sort(choices.first[choices.first > 0])
    if rows < MIN_ROWS or not len(margins):
        return np.zeros(1), np.zeros(1)
    inner = np.quantile(margins, np.linspace(0, 1, min(_BINS, len(margins)) + 1)[1:-1])
    edges = np.unique(np.concatenate([[0.0], inner]))
    edges = edges[np.diff(_exceeding(choices.first, edges), append=0) < 0]  # equal margins leave empty bins
    exceeded = _exceeding(choices.first, edges) / rows
    seconds = (_exceeding(choices.second_x, edges) + 1) / (len(choices.second_x) + 1)  # one more may always be there
    non_matches = (1 - share) * _by_non_matches(seconds, share)
    in_bin, false_in_bin = -np.diff(exceeded, append=0), -np.diff(non_matches, append=0)
    false_share = np.clip(false_in_bin / in_bin, 0, 1)
    smooth = never_rising(false_share, in_bin)
    bins = np.searchsorted(edges, margins, side="left") - 1
    centers = np.bincount(bins, margins, len(edges)) / np.bincount(bins, minlength=len(edges))
    return centers, 1 - smooth


def probable_rows(compared: Comparison, match: Match) -> Tensor:
    """Mask (n,) of the rows of X whose pair with a row of Y is more likely right than wrong."""
    choices = Choices.from_comparison(compared, match, torch.Generator().manual_seed(0))
    probability = np.interp(choices.first, *pair_probabilities(choices, count_recognised(choices)))
    return torch.from_numpy(probability >= PROBABLE).to(match.margin.device) & match.mutual


def _exceeding(margins: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many margins are larger than each edge."""
    return (len(margins) - np.searchsorted(np.sort(margins), edges, side="right")).astype(np.float64)


def _by_non_matches(seconds: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Solve F = p S + (1 - p) S^2 for S."""
    return (np.sqrt(share**2 + 4 * (1 - share) * seconds) - share) / (2 * (1 - share))

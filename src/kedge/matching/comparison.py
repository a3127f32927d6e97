"""Comparison of two sets of rows by inner product: of all rows with all, or of each with its candidates."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.candidates import Candidates, nearest_of
from kedge.matching.csls import NEIGHBOURS, Match, Nearest, best_both_ways, match_csls, second_margins
from kedge.matching.neighbours import largest

# Numbers of gathered candidates that are in memory at once.
_NUMBERS = 2**22
CHECKED = 2000
"""Rows for which the exact answer is found as well, to measure candidate recall."""

# For a checked row, how many nearest rows are found exactly, and for how many of the best the exact hubness.
_NEAREST, _CONTENDERS = 32, 4


class Comparison(Protocol):
    """Rows x (n, c) and y (m, c), compared by CSLS."""

    @property
    def x(self) -> Tensor:
        """The rows of one side."""

    @property
    def y(self) -> Tensor:
        """The rows of the other side."""

    @property
    def candidates(self) -> Candidates | None:
        """What each row is compared with, or None if with all."""

    def match(self) -> Match:
        """The best partner of every row of x, and its lead over all rivals."""

    def second_margins(self, match: Match, rows: Tensor, *, of_y: bool = False) -> Tensor:
        """Margins (k,) that rows (k,) of x, or of y, would have with their second-best partner, without the best."""

    def ranked(self, match: Match, k: int) -> tuple[Tensor, Tensor]:
        """The k best partners of every row of x, best first: similarities less hubness (n, k), and rows of y (n, k).

        There are fewer than k if no row has more to be compared with; if only some do, the last are -inf and -1.
        """

    def candidate_recall(self, match: Match) -> CandidateRecall | None:
        """How many of a sample of rows have the partner of an exact comparison; None if this one is exact."""


class _ByChoices:
    """A comparison that knows the best few partners of every row of either side, and the hubness of all rows.

    `match` and `second_margins` follow from these.
    """

    @property
    def _hubness(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @property
    def _choices_x(self) -> _RankedCandidates:
        raise NotImplementedError

    @property
    def _choices_y(self) -> _RankedCandidates:
        raise NotImplementedError

    def match(self) -> Match:
        """See `Comparison.match`."""
        chosen = self._choices_x
        partner, value, second = chosen.rows[:, 0].long(), chosen.values[:, 0], chosen.values[:, 1]
        rows = torch.arange(len(partner), device=partner.device)
        rival = self._choices_y.best_besides(partner, rows)
        return Match(partner, value - torch.maximum(second, rival), *self._hubness)

    def second_margins(self, match: Match, rows: Tensor, *, of_y: bool = False) -> Tensor:  # noqa: ARG002 - hubness is known
        """See `Comparison.second_margins`."""
        own, other = (self._choices_y, self._choices_x) if of_y else (self._choices_x, self._choices_y)
        second = own.rows[rows, 1].long()
        margins = own.values[rows, 1] - torch.maximum(own.values[rows, 2], other.best_besides(second, rows))
        return margins.masked_fill_(second < 0, -torch.inf)


@dataclass(frozen=True)
class ExactComparison(_ByChoices):
    """A comparison of all rows with all."""

    x: Tensor
    y: Tensor
    budget: int = DEFAULT_BUDGET
    candidates: None = None

    @cached_property
    def _best(self) -> tuple[tuple[Tensor, Tensor], tuple[Nearest, Nearest]]:
        return best_both_ways(self.x, self.y, budget=self.budget)

    @property
    def _hubness(self) -> tuple[Tensor, Tensor]:
        return self._best[0]

    @property
    def _choices_x(self) -> _RankedCandidates:
        return _RankedCandidates.from_best(*self._best[1][0])

    @property
    def _choices_y(self) -> _RankedCandidates:
        return _RankedCandidates.from_best(*self._best[1][1])

    def match(self) -> Match:
        """See `Comparison.match`."""
        if self.x.device.type == "cpu":
            return super().match()
        return match_csls(self.x, self.y, budget=self.budget)

    def second_margins(self, match: Match, rows: Tensor, *, of_y: bool = False) -> Tensor:
        """See `Comparison.second_margins`."""
        if self.x.device.type == "cpu":
            return super().second_margins(match, rows, of_y=of_y)
        sides, hubness = (self.x, self.y), (match.row_hubness, match.column_hubness)
        if of_y:
            sides, hubness = sides[::-1], hubness[::-1]
        return second_margins(*sides, rows, *hubness, budget=self.budget)

    def ranked(self, match: Match, k: int) -> tuple[Tensor, Tensor]:
        """See `Comparison.ranked`."""
        blocks = row_blocks(self.x, self.y, self.budget, bias=-match.column_hubness)
        found = [largest(block, min(k, len(self.y))) for _, block in blocks]
        values = torch.cat([values for values, _ in found]) - match.row_hubness[:, None]
        return values, torch.cat([columns for _, columns in found])

    def candidate_recall(self, match: Match) -> None:
        """See `Comparison.candidate_recall`."""


@dataclass(frozen=True)
class CandidateComparison(_ByChoices):
    """A comparison of every row with its candidates, by exact similarities.

    The candidates may have been found in other coordinates of the same rows.
    """

    x: Tensor
    y: Tensor
    candidates: Candidates
    budget: int = DEFAULT_BUDGET

    def ranked(self, match: Match, k: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002 - hubness is known
        """See `Comparison.ranked`."""
        return self._choices_x.values[:, :k], self._choices_x.rows[:, :k].long()

    @cached_property
    def _similarities(self) -> tuple[Tensor, Tensor]:
        """Similarities of the rows of x to their candidates (n, k), and of the rows of y to theirs (m, k)."""
        x, y = self.x, self.y
        return similarities_of(x, y, self.candidates.of_a), similarities_of(y, x, self.candidates.of_b)

    @cached_property
    def _hubness(self) -> tuple[Tensor, Tensor]:
        left, right = (_half_mean_of_nearest(similarities) for similarities in self._similarities)
        return left, right

    @cached_property
    def _choices_x(self) -> _RankedCandidates:
        return _RankedCandidates.from_similarities(self.candidates.of_a, self._similarities[0], *self._hubness)

    @cached_property
    def _choices_y(self) -> _RankedCandidates:
        return _RankedCandidates.from_similarities(self.candidates.of_b, self._similarities[1], *self._hubness[::-1])

    def candidate_recall(self, match: Match) -> CandidateRecall:
        """See `Comparison.candidate_recall`."""
        x, y = self.x, self.y
        drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:CHECKED].to(x.device)
        values, columns = nearest_of(x[drawn].float(), y, _NEAREST, self.budget)
        likely = (values - match.column_hubness[columns]).topk(min(_CONTENDERS, values.shape[1]), dim=1).indices
        values, columns = values.gather(1, likely), columns.gather(1, likely)
        contenders, place = torch.unique(columns, return_inverse=True)
        exact = _half_mean_of_nearest(nearest_of(y[contenders].float(), x, NEIGHBOURS, self.budget)[0])
        best = (values - exact[place]).argmax(dim=1, keepdim=True)
        same = columns.gather(1, best)[:, 0] == match.partner[drawn]
        in_pairs = same[match.mutual[drawn]]
        of_pairs = float(in_pairs.float().mean()) if len(in_pairs) else 1.0  # not NaN, which JSON lacks
        return CandidateRecall(len(drawn), float(same.float().mean()), len(in_pairs), of_pairs)


@dataclass(frozen=True)
class CandidateRecall:
    """The `share` of the `checked` rows whose partner is the exact one, and the same for those in mutual pairs."""

    checked: int
    share: float
    checked_pairs: int
    share_of_pairs: float

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of these figures."""
        return tuple(field.name for field in fields(cls))

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % of {self.checked} checked rows as exact"


@dataclass(frozen=True)
class _RankedCandidates:
    """Candidates (n, k) of each row, best first, and their similarities less hubness (n, k)."""

    rows: Tensor
    values: Tensor

    @classmethod
    def from_similarities(
        cls, candidates: Tensor, similarities: Tensor, own_hubness: Tensor, other_hubness: Tensor
    ) -> _RankedCandidates:
        values = similarities - own_hubness[:, None]
        values -= other_hubness[candidates.clamp_min(0)]
        values, order = values.sort(dim=1, descending=True)
        return cls(candidates.gather(1, order), values)

    @classmethod
    def from_best(cls, values: Tensor, rows: Tensor) -> _RankedCandidates:
        """From the best rows (n, k) and their values (n, k), padded to three with -1 and -inf."""
        missing = (0, max(3 - rows.shape[1], 0))
        return cls(pad(rows, missing, value=-1), pad(values, missing, value=-torch.inf))

    def best_besides(self, rows: Tensor, barred: Tensor) -> Tensor:
        """The largest value (k,) of each of these rows (k,) for candidates other than `barred` (k,); rows may be -1."""
        rows = rows.clamp_min(0)
        first = self.rows[rows, 0] == barred
        return torch.where(first, self.values[rows, 1], self.values[rows, 0])


def similarities_of(rows: Tensor, others: Tensor, candidates: Tensor) -> Tensor:
    """Inner products (n, k) of rows (n, d) with their candidates (n, k) among others (m, d); -inf where one is -1."""
    found = torch.empty(candidates.shape, dtype=torch.float32, device=rows.device)
    count = max(_NUMBERS // max(candidates.shape[1] * rows.shape[1], 1), 1)
    for begin in range(0, len(rows), count):
        some = slice(begin, begin + count)
        which = candidates[some].clamp_min(0)
        there = others.index_select(0, which.flatten()).view(*which.shape, -1).float()
        found[some] = torch.bmm(there, rows[some].float()[:, :, None])[:, :, 0]
    return found.masked_fill_(candidates < 0, -torch.inf)


def _half_mean_of_nearest(similarities: Tensor) -> Tensor:
    """Half the mean (n,) of the ten largest similarities (n, k) of each row, or of as many as there are."""
    nearest = similarities.topk(min(NEIGHBOURS, similarities.shape[1]), dim=1).values
    there = nearest > -torch.inf
    return nearest.masked_fill(~there, 0).sum(dim=1) / there.sum(dim=1).clamp_min(1) / 2

"""CSLS: similarity less the mean similarity of both rows to their nearest neighbours, and matching by it.

Rows that are close to everything ("hubs") would otherwise be the best partner of many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.neighbours import best_partners, largest, largest_of_groups, top_k, top_k_both

NEIGHBOURS = 10

Nearest = tuple[Tensor, Tensor]
"""Values (n, k) of each row, best first, and the rows (n, k) of the other side that they belong to."""

# The best by CSLS are first sought among this many nearest rows, and all rows that have the row among their nearest.
_SHORTLIST = 12
_BEST = 3


@dataclass(frozen=True)
class Match:
    """A partner for every row, and how clearly it is the best.

    `partner` (n,) are rows of Y; `margin` (n,) is by how much a row's partner beats the best alternative, of the row or
    of the partner, whichever is closer: positive for mutual nearest neighbours, negative if the partner prefers another
    row. `row_hubness` (n,) and `column_hubness` (m,) were subtracted from the similarity.
    """

    partner: Tensor
    margin: Tensor
    row_hubness: Tensor
    column_hubness: Tensor

    @property
    def mutual(self) -> Tensor:
        """Mask (n,) of the rows whose partner prefers them, too."""
        return self.margin > 0

    @property
    def mutual_share(self) -> float:
        """The share of the rows of X in mutual pairs."""
        return float(self.mutual.float().mean())

    def pairs(self) -> tuple[Tensor, Tensor]:
        """The mutual pairs as rows (p,) of X and rows (p,) of Y."""
        rows = self.mutual.nonzero(as_tuple=True)[0]
        return rows, self.partner[rows]


def hubness(a: Tensor, b: Tensor, neighbours: int = NEIGHBOURS, *, budget: int = DEFAULT_BUDGET) -> Tensor:
    """Half the mean similarity (n,) of each row of a (n, d) to its nearest rows of b (m, d)."""
    return top_k(a, b, neighbours, budget=budget)[0].mean(dim=1) / 2


def match_csls(a: Tensor, b: Tensor, neighbours: int = NEIGHBOURS, *, budget: int = DEFAULT_BUDGET) -> Match:
    """Match unit rows a (n, d) and b (m, d) by <a_i, b_j> - hubness_i - hubness_j."""
    row_hubness = hubness(a, b, neighbours, budget=budget)
    column_hubness = hubness(b, a, neighbours, budget=budget)
    partner, margin = best_partners(a, b, row_hubness, column_hubness, budget=budget)
    # With exact ties (two equal rows) nobody has a first choice: their margin is 0.
    return Match(partner, margin, row_hubness, column_hubness)


def best_both_ways(
    a: Tensor, b: Tensor, *, budget: int = DEFAULT_BUDGET
) -> tuple[tuple[Tensor, Tensor], tuple[Nearest, Nearest]]:
    """Hubness (n,) and (m,) of rows a (n, d) and b (m, d), and the three best partners by CSLS of every row of either.

    The result is exact, and takes one pass over the similarities: every row keeps its nearest, and the value of a pair
    that neither of its rows keeps is bounded. The bound leaves few rows in doubt, and only those are compared again.
    """
    near_a, near_b = top_k_both(a, b, _SHORTLIST, budget=budget)
    hubness_a, hubness_b = (values[:, :NEIGHBOURS].mean(dim=1) / 2 for values, _ in (near_a, near_b))
    best_a = _best_of_shortlists(a, b, near_a, near_b, hubness_b, budget)
    best_b = _best_of_shortlists(b, a, near_b, near_a, hubness_a, budget)
    best_a[0].sub_(hubness_a[:, None])
    best_b[0].sub_(hubness_b[:, None])
    return (hubness_a, hubness_b), (best_a, best_b)


def _best_of_shortlists(
    a: Tensor, b: Tensor, near_a: Nearest, near_b: Nearest, penalty: Tensor, budget: int
) -> Nearest:
    """The largest <a_i, b_j> - penalty_j (n, 3) for each row of a, best first, and their rows of b (n, 3).

    The nearest rows of both sides are given.
    """
    (values, columns), (limit_a, limit_b) = near_a, (_limit(near_a, len(b)), _limit(near_b, len(a)))
    # Rows of b that have a row of a among their nearest, but are not among its own nearest.
    value, row = near_b[0].flatten(), near_b[1].flatten()
    column = torch.arange(len(b), device=b.device).repeat_interleave(near_b[0].shape[1])
    new = value < limit_a[row]
    tied = (value == limit_a[row]).nonzero(as_tuple=True)[0]
    new[tied] = (columns[row[tied]] != column[tied, None]).all(dim=1)
    value, row, column = value[new], row[new], column[new]
    more, entries = largest_of_groups(value - penalty[column], row, len(a), _BEST)
    columns = torch.cat([columns, torch.cat([column, column.new_zeros(1)])[entries]], dim=1)
    values = torch.cat([values - penalty[columns[:, : values.shape[1]]], more], dim=1)
    values, order = values.topk(min(_BEST, len(b)), dim=1)
    columns = columns.gather(1, order)
    doubtful = values[:, -1] < _best_unlisted(limit_a, limit_b, penalty)
    if bool(doubtful.any()):
        values[doubtful], columns[doubtful] = _best_three(a[doubtful], b, penalty, budget)
    return values, columns


def _limit(near: Nearest, total: int) -> Tensor:
    """The most (n,) that a row can be similar to others than its nearest; -inf if these are all `total` rows."""
    values = near[0][:, -1].contiguous()
    return torch.full_like(values, -torch.inf) if near[0].shape[1] == total else values


def _best_unlisted(limit_a: Tensor, limit_b: Tensor, penalty: Tensor) -> Tensor:
    """The maximum (n,) over j of min(limit_a_i, limit_b_j) - penalty_j.

    It bounds the value of pairs that neither row keeps, because what a row does not keep is no nearer than its limit.
    """
    limit_b, order = limit_b.sort()
    penalty = penalty[order]
    nothing = penalty.new_full((1,), -torch.inf)
    held_by_b = torch.cat([nothing, (limit_b - penalty).cummax(dim=0).values])
    held_by_a = torch.cat([penalty.flip(0).cummin(dim=0).values.flip(0), -nothing])
    place = torch.searchsorted(limit_b, limit_a)
    return torch.maximum(held_by_b[place], limit_a - held_by_a[place])


def second_margins(
    a: Tensor,
    b: Tensor,
    rows: Tensor,
    row_penalty: Tensor,
    column_penalty: Tensor,
    *,
    budget: int = DEFAULT_BUDGET,
) -> Tensor:
    """Margins (k,) that rows (k,) of a would have with their second-best row of b if the best were absent.

    A row whose counterpart is missing has to choose a non-match, and so does a row barred from its counterpart: second
    choices show how clearly non-matches can seem to be the best. Similarity is
    s_ij = <a_i, b_j> - row_penalty_i - column_penalty_j for a (n, d) and b (m, d), as in `best_partners`; rivals are
    the third-best row of b, and all other rows of a. -inf if there is no second.
    """
    values, columns = _best_three(a[rows], b, column_penalty, budget)
    if values.shape[1] < 2:
        return values.new_full((len(rows),), -torch.inf)
    second = columns[:, 1]
    own = values[:, 1] - row_penalty[rows]
    third = values[:, 2] - row_penalty[rows] if values.shape[1] > 2 else torch.full_like(own, -torch.inf)
    others = _best_other(b[second], a, row_penalty, rows, budget) - column_penalty[second]
    return own - torch.maximum(third, others)


def _best_three(queries: Tensor, b: Tensor, penalty: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """The three largest <q, b_j> - penalty_j (k, 3) of each query (k, d), best first, and their rows of b (k, 3)."""
    found = [largest(block, min(_BEST, len(b))) for _, block in row_blocks(queries, b, budget, bias=-penalty)]
    return torch.cat([values for values, _ in found]), torch.cat([columns for _, columns in found])


def _best_other(targets: Tensor, a: Tensor, penalty: Tensor, own: Tensor, budget: int) -> Tensor:
    """The largest <a_i, t> - penalty_i (k,) for each target (k, d), over all rows of a but one, `own` (k,)."""
    best = targets.new_empty(len(targets))
    for some, block in row_blocks(targets, a, budget, bias=-penalty):
        block.scatter_(1, own[some, None], -torch.inf)
        best[some] = block.amax(dim=1)
    return best

"""CSLS: similarity less the mean similarity to the nearest neighbours of both ends, and the matches it gives.

Rows that are close to everything ("hubs") would otherwise be the best partner of many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.neighbours import best_partners, largest, top_k

NEIGHBOURS = 10


@dataclass(frozen=True)
class Match:
    """A partner for every row, and how clearly it is the best.

    `partner` (n,) are rows of Y; `margin` (n,) is by how much a row's partner beats the best alternative, of
    the row or of the partner, whichever is closer: positive for mutual nearest neighbours, negative for
    rows whose partner prefers another. `row_hubness` (n,) and `column_hubness` (m,) were subtracted from the
    similarity.
    """

    partner: Tensor
    margin: Tensor
    row_hubness: Tensor
    column_hubness: Tensor

    @property
    def mutual(self) -> Tensor:
        """Mask (n,) of the rows that their partner prefers too."""
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
    # Exact ties (two equal rows) are nobody's first choice: their margin is 0.
    return Match(partner, margin, row_hubness, column_hubness)


def second_margins(
    a: Tensor,
    b: Tensor,
    rows: Tensor,
    row_penalty: Tensor,
    column_penalty: Tensor,
    *,
    budget: int = DEFAULT_BUDGET,
) -> Tensor:
    """Margins (k,) that rows (k,) of a would have with their second best row of b, if the best were not there.

    A row whose counterpart is missing has to choose a non-match, and so does a row that is kept from its counterpart:
    the second choices of all rows show how clearly non-matches seem to be the best. Similarity is
    s_ij = <a_i, b_j> - row_penalty_i - column_penalty_j for a (n, d) and b (m, d), as in `best_partners`; rivals are
    the third best row of b, and all other rows of a. -inf where there is no second.
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
    found = [largest(block, min(3, len(b))) for _, block in row_blocks(queries, b, budget, bias=-penalty)]
    return torch.cat([values for values, _ in found]), torch.cat([columns for _, columns in found])


def _best_other(targets: Tensor, a: Tensor, penalty: Tensor, own: Tensor, budget: int) -> Tensor:
    """The largest <a_i, t> - penalty_i (k,) for each target (k, d), over all rows of a but one, `own` (k,)."""
    best = targets.new_empty(len(targets))
    for some, block in row_blocks(targets, a, budget, bias=-penalty):
        block.scatter_(1, own[some, None], -torch.inf)
        best[some] = block.amax(dim=1)
    return best

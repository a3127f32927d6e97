"""CSLS: cosine similarity less the mean similarity to the nearest neighbours of both ends.

Rows that are close to everything ("hubs") would otherwise be the best partner of many.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET
from kedge.matching.neighbours import best_partners, nearest_similarities
from kedge.matching.rows import Rows, as_rows

NEIGHBOURS = 10


@dataclass(frozen=True)
class Match:
    """A partner for every row, and how clearly it is the best.

    `partner` (n,) are rows of Y; `margin` (n,) is by how much a row's partner beats the best alternative, of
    the row or of the partner, whichever is closer: positive for mutual nearest neighbours, negative for
    rows whose partner prefers another. `row_hubness` (n,) and `column_hubness` (m,) are what was taken off the
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

    def pairs(self) -> tuple[Tensor, Tensor]:
        """The mutual pairs as rows (p,) of X and rows (p,) of Y."""
        rows = self.mutual.nonzero(as_tuple=True)[0]
        return rows, self.partner[rows]


def hubness(
    a: Tensor | Rows, b: Tensor | Rows, neighbours: int = NEIGHBOURS, *, budget: int = DEFAULT_BUDGET
) -> Tensor:
    """Half the mean similarity (n,) of each row of a (n, d) to its nearest rows of b (m, d)."""
    a = as_rows(a)
    return a.joined(nearest_similarities(a, as_rows(b), neighbours, budget=budget).mean(dim=1) / 2)


def match_csls(
    a: Tensor | Rows, b: Tensor | Rows, neighbours: int = NEIGHBOURS, *, budget: int = DEFAULT_BUDGET
) -> Match:
    """Match unit rows a (n, d) and b (m, d) by <a_i, b_j> - hubness_i - hubness_j."""
    row_hubness = hubness(a, b, neighbours, budget=budget)
    column_hubness = hubness(b, a, neighbours, budget=budget)
    partner, margin = best_partners(a, b, row_hubness, column_hubness, budget=budget)
    # Exact ties (two equal rows) are nobody's first choice: their margin is 0.
    return Match(partner, margin, row_hubness, column_hubness)

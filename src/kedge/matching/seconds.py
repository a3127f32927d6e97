"""What rows would do without their first choice: the next best partner, and its lead over all rivals.

A row whose counterpart is missing has to make do with a stranger, and so does a row that is kept from its counterpart.
How clearly strangers seem to be the best is therefore seen on the second choices of all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.neighbours import greatest
from kedge.matching.rows import Rows, as_rows


def second_margins(
    a: Tensor | Rows,
    b: Tensor | Rows,
    rows: Tensor,
    row_penalty: Tensor,
    column_penalty: Tensor,
    *,
    budget: int = DEFAULT_BUDGET,
) -> Tensor:
    """Margins (k,) that rows (k,) of a would have with their second best row of b, if the best were not there.

    Similarity is s_ij = <a_i, b_j> - row_penalty_i - column_penalty_j for a (n, d) and b (m, d), as in `best_partners`;
    rivals are the third best row of b, and all other rows of a. -inf where there is no second.
    """
    a, b = as_rows(a), as_rows(b)
    values, columns = _best_three(a.take(rows), b, column_penalty, budget)
    if values.shape[1] < 2:
        return values.new_full((len(rows),), -torch.inf)
    second = columns[:, 1]
    own = values[:, 1] - row_penalty[rows]
    third = values[:, 2] - row_penalty[rows] if values.shape[1] > 2 else torch.full_like(own, -torch.inf)
    others = _best_other(b.take(second), a, row_penalty, rows, budget) - column_penalty[second]
    return own - torch.maximum(third, others)


def _best_three(queries: Tensor, b: Rows, penalty: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """The three greatest <q, b_j> - penalty_j (k, 3) of each query (k, d), best first, and their rows of b (k, 3)."""
    values = queries.new_empty(len(queries), 0)
    columns = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    for first, part in b.parts():
        found = [
            greatest(block, min(3, len(part)))
            for _, block in row_blocks(queries, part, budget, bias=-penalty[first : first + len(part)])
        ]
        values = torch.cat([values, torch.cat([value for value, _ in found])], dim=1)
        columns = torch.cat([columns, torch.cat([column for _, column in found]) + first], dim=1)
    values, order = values.topk(min(3, values.shape[1]), dim=1)
    return values, columns.gather(1, order)


def _best_other(targets: Tensor, a: Rows, penalty: Tensor, own: Tensor, budget: int) -> Tensor:
    """The greatest <a_i, t> - penalty_i (k,) for each target (k, d), over all rows of a but one, `own` (k,)."""
    best = targets.new_full((len(targets),), -torch.inf)
    for first, part in a.parts():
        for some, block in row_blocks(targets, part, budget, bias=-penalty[first : first + len(part)]):
            place = own[some] - first
            here = ((place >= 0) & (place < len(part))).nonzero(as_tuple=True)[0]
            block[here, place[here]] = -torch.inf
            best[some] = torch.maximum(best[some], block.amax(dim=1))
    return best

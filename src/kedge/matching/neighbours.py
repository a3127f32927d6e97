"""Nearest neighbours by similarity: top-k, and the best two in both directions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks


def top_k(a: Tensor, b: Tensor, k: int, *, budget: int = DEFAULT_BUDGET) -> tuple[Tensor, Tensor]:
    """The k greatest similarities of each row of a (n, d) to rows of b (m, d), best first.

    Returns values (n, k) and rows of b (n, k); k is at most m.
    """
    k = min(k, len(b))
    values = a.new_empty(len(a), k)
    indices = torch.empty(len(a), k, dtype=torch.int64, device=a.device)
    for rows, block in row_blocks(a, b, budget):
        values[rows], indices[rows] = block.topk(k, dim=1)
    return values, indices


@dataclass(frozen=True)
class BestTwo:
    """For each of n rows: the best partner `index` (n,), its `value` (n,), and the second best value (n,)."""

    index: Tensor
    value: Tensor
    runner_up: Tensor


def best_two_both_ways(
    a: Tensor,
    b: Tensor,
    row_penalty: Tensor,
    column_penalty: Tensor,
    *,
    budget: int = DEFAULT_BUDGET,
) -> tuple[BestTwo, BestTwo]:
    """Best partners by s_ij = <a_i, b_j> - row_penalty_i - column_penalty_j, in one pass for both directions.

    Returns the best columns for the rows of a (n, d) and the best rows for the rows of b (m, d). Where there
    is only one candidate the runner-up is -inf.
    """
    forward = BestTwo(
        torch.empty(len(a), dtype=torch.int64, device=a.device),
        a.new_empty(len(a)),
        a.new_full((len(a),), -torch.inf),
    )
    index = torch.zeros(len(b), dtype=torch.int64, device=a.device)
    first, second = a.new_full((2, len(b)), -torch.inf)
    for rows, block in row_blocks(a, b, budget):
        block.sub_(column_penalty).sub_(row_penalty[rows, None])
        values, columns = block.topk(min(2, len(b)), dim=1)
        forward.index[rows], forward.value[rows] = columns[:, 0], values[:, 0]
        if len(b) > 1:
            forward.runner_up[rows] = values[:, 1]
        # Columns: max, hide it, max again. (topk along the rows of a block is several times slower.)
        block_first, block_index = block.max(dim=0)
        block.scatter_(0, block_index[None], -torch.inf)
        block_second = block.amax(dim=0)
        better = block_first > first
        second = torch.maximum(torch.minimum(first, block_first), torch.maximum(second, block_second))
        index = torch.where(better, block_index + rows.start, index)
        first = torch.maximum(first, block_first)
    return forward, BestTwo(index, first, second)

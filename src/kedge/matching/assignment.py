"""One-to-one assignment of a few rows to many."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.matching.blocks import DEFAULT_BUDGET, float_parts, row_blocks


def assign_distinct(a: Tensor, b: Tensor, column_penalty: Tensor, *, budget: int = DEFAULT_BUDGET) -> Tensor:
    """Distinct rows of b (m, d), one for each row of a (n, d), with the largest total of <a_i, b_j> - penalty_j.

    Exact without an n x m matrix: in the best assignment every row takes one of its n best columns (if it took a worse
    one, one of those would be free), so only these matter. Memory is O(n^2), so a should have few rows, such as
    anchors.

    Returns rows of b (n,).
    """
    if len(a) > len(b):
        raise InputError(f"cannot give {len(a)} rows distinct partners among {len(b)}")
    values, columns = [], []
    for first, part in float_parts(b):
        best, where = _best_columns(a, part, column_penalty[first : first + len(part)], budget)
        values.append(best.double().cpu().numpy())
        columns.append(first + where.cpu().numpy())
    value, column = np.concatenate(values, axis=1), np.concatenate(columns, axis=1)
    favourites = column[np.arange(len(a)), value.argmax(axis=1)]
    if len(np.unique(favourites)) == len(a):  # nothing can be better
        return torch.from_numpy(favourites).to(a.device)
    return torch.from_numpy(_cheapest(value, column)).to(a.device)


def _cheapest(value: NDArray[np.float64], column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct columns (n,), one for each row, with the largest total, from columns (n, k) with these values (n, k)."""
    from scipy.sparse import csr_array  # imported only when needed: it takes a fifth of a second
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    candidates, position = np.unique(column, return_inverse=True)
    cost = value.max() - value + 1.0  # positive: an explicit zero would count as no edge
    starts = np.arange(len(value) + 1) * value.shape[1]
    graph = csr_array((cost.ravel(), position.ravel(), starts), shape=(len(value), len(candidates)))
    _, chosen = min_weight_full_bipartite_matching(graph)
    distinct: NDArray[np.int64] = candidates[chosen]
    return distinct


def _best_columns(a: Tensor, b: Tensor, penalty: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Values and columns (n, min(n, m)) of the largest <a_i, b_j> - penalty_j of each row."""
    best = [block.topk(min(len(a), len(b)), dim=1) for _, block in row_blocks(a, b, budget, bias=-penalty)]
    return torch.cat([found.values for found in best]), torch.cat([found.indices for found in best])

"""One-to-one assignment of a few rows to many."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from kedge.errors import InputError
from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks


def assign_distinct(
    a: Tensor, b: Tensor, column_penalty: Tensor | None = None, *, budget: int = DEFAULT_BUDGET
) -> Tensor:
    """Distinct rows of b (m, d), one for each row of a (n, d), of greatest total <a_i, b_j> - penalty_j.

    Exact without an n x m matrix: in the best assignment every row takes one of its n best columns (were it
    worse, one of those would be free), so only these can matter. Memory is O(n^2), so a should be few rows,
    such as anchors.

    Returns rows of b (n,).
    """
    if len(a) > len(b):
        raise InputError(f"cannot give {len(a)} rows distinct partners among {len(b)}")
    values, columns = [], []
    for _, block in row_blocks(a, b, budget):
        if column_penalty is not None:
            block.sub_(column_penalty)
        best = block.topk(len(a), dim=1)
        values.append(best.values.double().cpu().numpy())
        columns.append(best.indices.cpu().numpy())
    value, column = np.concatenate(values), np.concatenate(columns)
    candidates, position = np.unique(column, return_inverse=True)
    position = position.reshape(column.shape)
    # What is not among a row's best columns costs more than any assignment made of best ones.
    cost = np.full((len(a), len(candidates)), (value.max() - value.min() + 1.0) * (len(a) + 1))
    np.put_along_axis(cost, position, value.max() - value, axis=1)
    _, chosen = linear_sum_assignment(cost)
    return torch.from_numpy(candidates[chosen]).to(a.device)

"""Softmin of a cost that is never stored: the one reduction Sinkhorn needs, as a part that can be swapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.kernels.backend import use_fused

Cost = Literal["dot", "sqeuclidean", "euclidean"]


class Softmin(Protocol):
    """What `sinkhorn` asks for; `rows` and `columns` are the two half-steps."""

    shape: tuple[int, int]
    device: torch.device

    def rows(self, epsilon: float, log_weights: Tensor) -> Tensor:
        """-epsilon * log sum_j exp(log_weights_j - C_ij / epsilon) for every row, (n,) from (m,)."""
        ...

    def columns(self, epsilon: float, log_weights: Tensor) -> Tensor:
        """The same for every column, (m,) from (n,)."""
        ...


class BlockedSoftmin:
    """Softmin over a (n, d) against b (m, d) in blocks of rows, in plain torch, on any device.

    `cost` is C_ij = -<a_i, b_j> ("dot"), |a_i - b_j|^2 ("sqeuclidean") or |a_i - b_j| ("euclidean").
    """

    def __init__(self, a: Tensor, b: Tensor, cost: Cost = "dot", *, budget: int = DEFAULT_BUDGET) -> None:
        self._a, self._b, self._cost, self._budget = a, b, cost, budget
        self.shape = (len(a), len(b))
        self.device = a.device

    def rows(self, epsilon: float, log_weights: Tensor) -> Tensor:
        """See `Softmin.rows`."""
        return self._reduce(self._a, self._b, epsilon, log_weights)

    def columns(self, epsilon: float, log_weights: Tensor) -> Tensor:
        """See `Softmin.columns`."""
        return self._reduce(self._b, self._a, epsilon, log_weights)

    def partners(self, potential: Tensor) -> Tensor:
        """For every row of a the column (n,) of least C_ij - potential_j: the plan's greatest entry."""
        best = torch.empty(len(self._a), dtype=torch.int64, device=self._a.device)
        for rows, block in self._cost_blocks(self._a, self._b):
            best[rows] = block.sub_(potential).argmin(dim=1)
        return best

    def _reduce(self, a: Tensor, b: Tensor, epsilon: float, log_weights: Tensor) -> Tensor:
        if self._cost == "dot" and use_fused(a, b):
            from kedge.matching.kernels import fused

            return -epsilon * fused.log_sum_exp(a, b, 1 / epsilon, log_weights)
        result = a.new_empty(len(a))
        for rows, block in self._cost_blocks(a, b):
            exponent = block.mul_(-1 / epsilon).add_(log_weights)
            greatest = exponent.amax(dim=1, keepdim=True)
            total = exponent.sub_(greatest).exp_().sum(dim=1)
            result[rows] = -epsilon * (total.log() + greatest[:, 0])
        return result

    def _cost_blocks(self, a: Tensor, b: Tensor) -> Iterator[tuple[slice, Tensor]]:
        if self._cost != "dot":
            squares_a, squares_b = (a * a).sum(dim=1), (b * b).sum(dim=1)
        for rows, block in row_blocks(a, b, self._budget):
            if self._cost == "dot":
                block.neg_()
            else:
                block.mul_(-2).add_(squares_a[rows, None]).add_(squares_b).clamp_min_(0)
                if self._cost == "euclidean":
                    block.sqrt_()
            yield rows, block

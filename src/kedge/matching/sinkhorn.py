"""Entropic optimal transport in the log domain: one loop over an exchangeable softmin."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from kedge.errors import InputError
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
        """For every row of a the column (n,) of smallest C_ij - potential_j: the plan's largest entry."""
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
            largest = exponent.amax(dim=1, keepdim=True)
            total = exponent.sub_(largest).exp_().sum(dim=1)
            result[rows] = -epsilon * (total.log() + largest[:, 0])
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


@dataclass(frozen=True)
class SinkhornResult:
    """Potentials f (n,), g (m,) of the plan P_ij = a_i b_j exp((f_i + g_j - C_ij) / epsilon), never built.

    `errors` holds the largest change of a potential in each iteration; `converged` whether the last one
    came under the threshold.
    """

    f: Tensor
    g: Tensor
    epsilon: float
    errors: tuple[float, ...]
    converged: bool

    @property
    def n_iter(self) -> int:
        """Iterations done."""
        return len(self.errors)


def epsilon_schedule(start: float, end: float, steps: int) -> tuple[float, ...]:
    """`steps` values that fall from `start` to `end` by a constant factor."""
    if not (start >= end > 0 and steps >= 1):
        raise InputError(f"an epsilon schedule needs start >= end > 0 and steps >= 1, got {start}, {end}, {steps}")
    if steps == 1:
        return (end,)
    return tuple(start * (end / start) ** (step / (steps - 1)) for step in range(steps))


def sinkhorn(
    softmin: Softmin,
    epsilons: float | Sequence[float],
    *,
    max_iter: int = 100,
    stop_threshold: float = 1e-5,
    row_weights: Tensor | None = None,
    column_weights: Tensor | None = None,
    start: Tensor | None = None,
) -> SinkhornResult:
    """Balance a plan between n rows and m columns.

    Parameters
    ----------
    softmin : Softmin
        The cost, as a reduction; says n and m.
    epsilons : float or sequence of float
        The regularisation, or a falling schedule: one iteration for each value, and all others at the last.
    max_iter : int
        Iterations in all; at least the schedule's length.
    stop_threshold : float
        Stop, at the last epsilon, when no potential changes by more.
    row_weights, column_weights : Tensor, shapes (n,) and (m,), optional
        Positive; scaled to sum to one. Uniform by default, for any n and m.
    start : Tensor, shape (m,), optional
        Potential g to start from.
    """
    schedule = (epsilons,) if isinstance(epsilons, int | float) else tuple(epsilons)
    if not schedule or min(schedule) <= 0:
        raise InputError(f"epsilons must be positive, got {schedule}")
    if max_iter < len(schedule):
        raise InputError(f"max_iter must cover the {len(schedule)} values of the epsilon schedule, got {max_iter}")
    n, m = softmin.shape
    log_a = _log_weights(row_weights, n, "row_weights").to(softmin.device)
    log_b = _log_weights(column_weights, m, "column_weights").to(softmin.device)
    f = torch.zeros(n, device=softmin.device)
    g = torch.zeros(m, device=softmin.device) if start is None else start
    errors: list[float] = []
    converged = False
    for iteration in range(max_iter):
        epsilon = schedule[min(iteration, len(schedule) - 1)]
        f_new = softmin.rows(epsilon, log_b + g / epsilon)
        g_new = softmin.columns(epsilon, log_a + f_new / epsilon)
        errors.append(max(float((f_new - f).abs().max()), float((g_new - g).abs().max())))
        f, g = f_new, g_new
        if iteration >= len(schedule) - 1 and errors[-1] < stop_threshold:
            converged = True
            break
    return SinkhornResult(f, g, epsilon, tuple(errors), converged)


def _log_weights(weights: Tensor | None, count: int, name: str) -> Tensor:
    if weights is None:
        return torch.full((count,), -math.log(count))
    if weights.shape != (count,) or not bool((weights > 0).all()) or not bool(torch.isfinite(weights).all()):
        raise InputError(f"{name} must be {count} positive finite numbers, got shape {tuple(weights.shape)}")
    return (weights / weights.sum()).log()

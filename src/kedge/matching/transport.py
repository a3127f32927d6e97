"""One Sinkhorn iteration and the targets of its plan, from a single pass over the similarity.

The alternation changes the similarity after every step, so it needs both at once: the row half-step is a
softmax, whose column sums are all that the column half-step needs and whose product with Y are the targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.kernels.backend import MAX_FUSED_VALUES, Precision, current_precision, use_fused


@dataclass(frozen=True)
class TransportStep:
    """The outcome of one Sinkhorn iteration.

    `targets` (n, k): where the plan sends each row; `received` (m,): the log of the mean share of a row that each
    column gets; `potential` (m,): what the next step starts from; `sharpness`: the mean of the largest share that a row
    sends to one partner, 1 for a permutation.
    """

    targets: Tensor
    received: Tensor
    potential: Tensor
    sharpness: float


def transport_step(
    a: Tensor,
    b: Tensor,
    potential: Tensor,
    epsilon: float,
    *,
    values: Tensor | None = None,
    budget: int = DEFAULT_BUDGET,
) -> TransportStep:
    """Row half-step, barycentric targets and column half-step for unit rows a (n, d), b (m, d).

    Parameters
    ----------
    a, b : shapes (n, d) and (m, d)
    potential : Tensor, shape (m,)
        Dual potential of the columns; zeros at first.
    epsilon : float
        Entropic regularisation, in units of similarity.
    values : Tensor, shape (m, k), optional
        What the targets are averages of; by default b itself.
    """
    values = b if values is None else values
    fits = use_fused(a, b, values) and values.shape[1] <= MAX_FUSED_VALUES
    half_step: Callable[..., tuple[Tensor, Tensor, Tensor]] = _fused_half_step if fits else _half_step
    targets, received, peaks = half_step(a, b, values, 1 / epsilon, potential / epsilon, budget)
    received = received - math.log(len(a))
    corrected = balanced(potential, received, epsilon)
    return TransportStep(targets, received, corrected, float(peaks) / len(a))


def transport_targets(
    a: Tensor, b: Tensor, values: Tensor, epsilon: float, rounds: int, *, budget: int = DEFAULT_BUDGET
) -> Tensor:
    """Where the plan after some rounds sends unit rows a (n, d) among b (m, d): means (n, k) of values (m, k)."""
    potential = b.new_zeros(len(b))
    for remaining in reversed(range(rounds)):
        asked = values[:, :1] if remaining else values  # only the last targets are used
        plan = transport_step(a, b, potential, epsilon, values=asked, budget=budget)
        potential = plan.potential
    return plan.targets


def transport_value(a: Tensor, b: Tensor, epsilon: float, rounds: int, *, budget: int = DEFAULT_BUDGET) -> float:
    """How close unit rows a (n, d) are to b (m, d); larger is closer.

    It is the mean similarity under the entropic plan after some rounds, less its entropic penalty (the dual objective).
    """
    potential = b.new_zeros(len(b))
    for _ in range(rounds):
        potential = transport_step(a, b, potential, epsilon, values=b[:, :1], budget=budget).potential
    total = 0.0
    for _, block in row_blocks(a, b, budget, scale=1 / epsilon, bias=potential / epsilon):
        total += float(block.logsumexp(dim=1).double().sum())
    return epsilon * (total / len(a) - math.log(len(b))) - float(potential.double().mean())


def balanced(potential: Tensor, received: Tensor, epsilon: float, step: float = 1.0) -> Tensor:
    """The potential (m,), or a step towards it, that balances the columns; `received` (m,) is in logs."""
    return potential + step * epsilon * (-math.log(len(received)) - received)


def _half_step(
    a: Tensor, b: Tensor, values: Tensor, scale: float, bias: Tensor, budget: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Means (n, k) of the values under each row's softmax of scale <a_i, b_j> + bias_j, and two sums of its shares.

    These are the log (m,) of what each column gets if every row sends 1, and the sum of the rows' largest shares.
    """
    targets = values.new_empty(len(a), values.shape[1])
    received = b.new_zeros(len(b))
    peaks = b.new_zeros((), dtype=torch.float64)
    for rows, block in row_blocks(a, b, budget, scale=scale, bias=bias):
        block.sub_(block.amax(dim=1, keepdim=True)).exp_()  # the largest entry of a row is now 1
        share = 1 / block.sum(dim=1)
        targets[rows] = (block @ values) * share[:, None]
        received += share @ block
        peaks += share.sum()
    return targets, received.clamp_min_(torch.finfo(received.dtype).tiny).log_(), peaks


def _fused_half_step(
    a: Tensor, b: Tensor, values: Tensor, scale: float, bias: Tensor, _budget: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by two kernels: the targets with the rows' log-sum-exp, then the columns' sums.

    Computed in bfloat16 unless float32 was asked for: a plan that is blurred on purpose needs no more.
    """
    from kedge.matching.kernels import fused

    precision: Precision = "float32" if current_precision() == "float32" else "bf16"
    targets, log_totals, peaks = fused.barycenters(a, b, values, scale, bias, precision=precision)
    received = fused.log_sum_exp(b, a, scale, -log_totals, precision=precision) + bias
    return targets, received, (peaks - log_totals).exp().sum(dtype=torch.float64)

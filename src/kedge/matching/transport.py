"""One Sinkhorn iteration and the targets of its plan, from a single pass over the similarity.

The alternation changes the similarity after every step, so it wants both at once: the row half-step is a
softmax, whose column sums are all that the column half-step needs and whose product with Y are the targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.backend import MOST_FUSED_VALUES, Precision, current_precision, use_fused
from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks


@dataclass(frozen=True)
class TransportStep:
    """`targets` (n, k): where the plan sends each row; `potential` (m,): to start the next step from;
    `sharpness`: mean greatest share of a row that goes to one partner, 1 for a permutation.
    """

    targets: Tensor
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
    a, b : Tensor, shapes (n, d) and (m, d)
    potential : Tensor, shape (m,)
        Dual potential of the columns; zeros at first.
    epsilon : float
        Entropic regularisation, in units of similarity.
    values : Tensor, shape (m, k), optional
        What the targets are averages of, where not of b itself.
    """
    values = b if values is None else values
    if use_fused(a, b, values) and values.shape[1] <= MOST_FUSED_VALUES:
        return _fused_step(a, b, potential, epsilon, values)
    targets = values.new_empty(len(a), values.shape[1])
    received = b.new_zeros(len(b))  # what each column gets when every row sends 1/n
    peaks = 0.0
    offset = potential / epsilon
    for rows, block in row_blocks(a / epsilon, b, budget):
        block.add_(offset)
        block.sub_(block.amax(dim=1, keepdim=True)).exp_()  # the greatest entry of a row is now 1
        share = 1 / block.sum(dim=1)
        targets[rows] = (block @ values) * share[:, None]
        received += share @ block
        peaks += float(share.sum())
    received /= len(a)
    correction = -math.log(len(b)) - received.clamp_min(torch.finfo(received.dtype).tiny).log()
    return TransportStep(targets, potential + epsilon * correction, peaks / len(a))


def _fused_step(a: Tensor, b: Tensor, potential: Tensor, epsilon: float, values: Tensor) -> TransportStep:
    """The same by two kernels: the targets with the rows' log-sum-exp, then the columns' sums.

    In bfloat16, unless float32 was asked for: a plan that is blurred on purpose needs no more.
    """
    from kedge.matching import fused

    precision: Precision = "float32" if current_precision() == "float32" else "bf16"
    offset = potential / epsilon
    targets, log_totals, peaks = fused.barycentres(a, b, values, 1 / epsilon, offset, precision=precision)
    received = fused.log_sum_exp(b, a, 1 / epsilon, -log_totals, precision=precision) + offset - math.log(len(a))
    correction = -math.log(len(b)) - received
    return TransportStep(targets, potential + epsilon * correction, float((peaks - log_totals).exp().mean()))

"""What a run thinks of each seed, once there is an alignment that does not depend on any single one."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.judging.health import SEED_OPINIONS
from kedge.matching import Problem, row_blocks, row_pieces

# The rows of a right seed are close even if not closest; those of a wrong one are anywhere. On average over both
# directions, at most this share of rows may be closer.
_CLOSER_ROWS = 0.05
_ROUNDING = 1e-5
# A partner is near if it is among this many nearest rows, or among this nearest share of all rows.
_NEAR_ROWS, _NEAR_SHARE = 10, 0.01


def rows_closer(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """How many rows are closer to a row of each seed (s,) than its partner is: the mean over both directions.

    x (n, c) and y (m, c) are the problem's rows as read without their own pairs; their inner product is similarity.
    """
    source, target = x[problem.seeds_x].float(), y[problem.seeds_y].float()
    similarity = (source * target).sum(dim=1)
    counts = torch.zeros_like(similarity, dtype=torch.int64)
    for rows, others in ((source, y), (target, x)):
        for piece in row_pieces(others):
            counts += _closer(rows, piece, similarity, problem.budget)
    return counts.double() / 2


def suspect_seeds(problem: Problem, closer: Tensor) -> Tensor:
    """Mask (s,) of the seeds whose rows are nowhere near each other; `closer` (s,) is what `rows_closer` gives."""
    return 2 * closer > _CLOSER_ROWS * (len(problem.x) + len(problem.y))


def contradicted_seeds(problem: Problem, closer: Tensor) -> Tensor:
    """Mask (s,) of the seeds whose rows are not near each other, by a weaker criterion on the same counts (s,)."""
    near = max(_NEAR_ROWS, _NEAR_SHARE * (len(problem.x) + len(problem.y)) / 2)
    return closer >= near


def name_opinions(agrees: Tensor, contradicted: Tensor, *, known: bool) -> NDArray[np.str_]:
    """The opinion (s,) of each seed, from two masks (s,); all are "unknown" if nothing is `known`."""
    code = torch.where(contradicted, 2, torch.where(agrees, 0, 1))
    return np.array(SEED_OPINIONS)[(code if known else torch.full_like(code, 3)).cpu().numpy()]


def _closer(seeds: Tensor, others: Tensor, similarity: Tensor, budget: int) -> Tensor:
    """How many of the other rows (k, d) are closer to each seed (s, d) than its partner, of this similarity (s,)."""
    counts = torch.zeros(len(seeds), dtype=torch.int64, device=seeds.device)
    for rows, block in row_blocks(seeds, others, budget):
        # A partner is not closer than itself, however its product is rounded.
        own = similarity[rows, None]
        counts[rows] = (block > own + _ROUNDING * own.abs().clamp_min(1)).sum(dim=1)
    return counts

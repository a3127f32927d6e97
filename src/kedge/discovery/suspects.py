"""Which seeds look wrong, once an alignment is there that does not depend on any one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.discovery.problem import Problem
from kedge.geometry import unit
from kedge.matching import processes, row_blocks

# A right seed is close under the map even where it is not the closest; a wrong one is anywhere. On average over
# both directions, at most this share of rows may be closer.
_CLOSER_ROWS = 0.05
_ROUNDING = 1e-6


def suspect_seeds(problem: Problem, linear_map: Tensor) -> Tensor:
    """Mask (s,) of the seeds that the map (dx, dy) sends nowhere near each other."""
    source, target = unit(problem.x.take(problem.seeds_x) @ linear_map), problem.y.take(problem.seeds_y)
    similarity = (source * target).sum(dim=1)
    closer_y = sum(_closer(source, piece, similarity, problem.budget) for piece in problem.y.pieces())
    mapped = (unit(piece @ linear_map) for piece in problem.x.pieces())
    closer_x = sum(_closer(target, piece, similarity, problem.budget) for piece in mapped)
    share_x, share_y = (
        processes().sum(torch.as_tensor(count, device=similarity.device)) / len(rows)
        for count, rows in ((closer_x, problem.x), (closer_y, problem.y))
    )
    return share_x + share_y > 2 * _CLOSER_ROWS


def _closer(seeds: Tensor, others: Tensor, similarity: Tensor, budget: int) -> Tensor:
    """How many of the other rows (k, d) are closer to each seed (s, d) than its partner is (s,)."""
    counts = torch.zeros(len(seeds), dtype=torch.int64, device=seeds.device)
    for rows, block in row_blocks(seeds, others, budget):
        # A partner is not closer than itself, however its product is rounded.
        counts[rows] = (block > similarity[rows, None] + _ROUNDING).sum(dim=1)
    return counts

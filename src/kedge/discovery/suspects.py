"""Which seeds look wrong, once an alignment is there that does not depend on any one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.discovery.problem import Problem
from kedge.geometry import unit

# A right seed is close under the map even where it is not the closest; a wrong one is anywhere. On average over
# both directions, at most this share of rows may be closer.
_CLOSER_ROWS = 0.05


def suspect_seeds(problem: Problem, linear_map: Tensor) -> Tensor:
    """Mask (s,) of the seeds that the map (dx, dy) sends nowhere near each other."""
    suspects = torch.zeros(len(problem.seeds_x), dtype=torch.bool, device=problem.x.device)
    mapped = unit(problem.x @ linear_map)
    for index, (row_x, row_y) in enumerate(zip(problem.seeds_x.tolist(), problem.seeds_y.tolist(), strict=True)):
        similarity = mapped[row_x] @ problem.y[row_y]
        closer_y = (problem.y @ mapped[row_x] > similarity).float().mean()
        closer_x = (mapped @ problem.y[row_y] > similarity).float().mean()
        suspects[index] = closer_x + closer_y > 2 * _CLOSER_ROWS
    return suspects

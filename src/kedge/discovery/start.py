"""Where the alternation starts: a first rough rotation, from the seeds."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.discovery.problem import Problem
from kedge.geometry import orthogonal_map, relative, unit
from kedge.matching import Match, match_csls

# A seed weighs as much as this many pairs of the first match, most of which are wrong.
_SEED_WEIGHT = 10.0
# More seeds than this add memory, not precision, as coordinates.
_MOST_COORDINATES = 300


def match_by_seeds(problem: Problem) -> Match:
    """Match all rows by their similarities to the seeds, the coordinates that both spaces share.

    With 15 seeds about two in a hundred mutual matches are right.
    """
    some = torch.linspace(0, len(problem.seeds_x) - 1, min(len(problem.seeds_x), _MOST_COORDINATES)).long()
    return match_csls(
        unit(relative(problem.x, problem.x[problem.seeds_x[some]])),
        unit(relative(problem.y, problem.y[problem.seeds_y[some]])),
        budget=problem.budget,
    )


def rotation_from_seeds(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """A rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    The few right matches and the seeds are enough to turn the spaces towards each other.
    """
    rows_x, rows_y = match_by_seeds(problem).pairs()
    weights = torch.cat([x.new_ones(len(rows_x)), x.new_full((len(problem.seeds_x),), _SEED_WEIGHT)])
    return orthogonal_map(
        torch.cat([x[rows_x], x[problem.seeds_x]]), torch.cat([y[rows_y], y[problem.seeds_y]]), weights
    )

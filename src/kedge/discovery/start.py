"""Where the alternation starts: a first rough rotation, from coordinates that both spaces share."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.discovery.problem import Problem
from kedge.discovery.profiles import similarity_profiles
from kedge.geometry import orthogonal_map, relative, unit
from kedge.matching import Match, match_csls

FEW_SEEDS = 10
"""With fewer seeds than this, similarity profiles help them."""

# A seed weighs as much as this many pairs of the first match, most of which are wrong.
_SEED_WEIGHT = 10.0
# More seeds than this add memory, not precision, as coordinates.
_MOST_COORDINATES = 300


def match_by_seeds(problem: Problem) -> Match:
    """Match all rows by their similarities to the seeds.

    With 15 seeds about two in a hundred mutual matches are right.
    """
    return match_csls(*_seed_coordinates(problem), budget=problem.budget)


def rotation_at_start(problem: Problem, x: Tensor, y: Tensor) -> Tensor:
    """A rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    Few of the matches it is fitted to are right, but they and the seeds turn the spaces towards each other.
    """
    shared_x, shared_y = _seed_coordinates(problem)
    if len(problem.seeds_x) < FEW_SEEDS:
        shared_x = torch.cat([shared_x, similarity_profiles(problem.x, problem.budget)], dim=1)
        shared_y = torch.cat([shared_y, similarity_profiles(problem.y, problem.budget)], dim=1)
    rows_x, rows_y = match_csls(unit(shared_x), unit(shared_y), budget=problem.budget).pairs()
    weights = torch.cat([x.new_ones(len(rows_x)), x.new_full((len(problem.seeds_x),), _SEED_WEIGHT)])
    return orthogonal_map(
        torch.cat([x[rows_x], x[problem.seeds_x]]), torch.cat([y[rows_y], y[problem.seeds_y]]), weights
    )


def _seed_coordinates(problem: Problem) -> tuple[Tensor, Tensor]:
    """Unit rows (n, s) and (m, s): similarities to the seeds."""
    some = torch.linspace(0, len(problem.seeds_x) - 1, min(len(problem.seeds_x), _MOST_COORDINATES)).long()
    return (
        unit(relative(problem.x, problem.x[problem.seeds_x[some]])),
        unit(relative(problem.y, problem.y[problem.seeds_y[some]])),
    )

"""What a method returns, and the map that pairs imply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.discovery.problem import Problem
from kedge.discovery.steps import Step
from kedge.geometry import orthogonal_map, refine_rotation
from kedge.matching import Match

# The rotation counts as this many pairs a dimension when the map is refined.
_PRIOR_PAIRS_PER_DIM = 2.0


@dataclass(frozen=True)
class Alignment:
    """A map (dx, dy), the match of all rows it makes, and the anchors' places in Y.

    `free_anchors` (a, dy) are unit vectors, `snapped_anchors` (a,) distinct rows of Y, `suspects` (s,) a mask of
    the seeds that look wrong.
    """

    map: Tensor
    match: Match
    free_anchors: Tensor
    snapped_anchors: Tensor
    suspects: Tensor
    history: tuple[Step, ...]
    converged: bool


def fit_map(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> Tensor:
    """The map (dx, dy) that pairs and seeds imply: a rotation, refined as far as the pairs support it."""
    source = problem.x[torch.cat([rows_x, problem.seeds_x])]
    target = problem.y[torch.cat([rows_y, problem.seeds_y])]
    rotation = orthogonal_map(source, target)
    return refine_rotation(source, target, rotation, _PRIOR_PAIRS_PER_DIM * source.shape[1])

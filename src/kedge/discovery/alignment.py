"""What a method returns, and the map that pairs imply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.discovery.problem import Problem
from kedge.discovery.steps import Step
from kedge.geometry import Moments, moments_of, nearest_rotation, refine_rotation
from kedge.matching import Match, processes

# The rotation counts as this many pairs a dimension when the map is refined.
_PRIOR_PAIRS_PER_DIM = 2.0
# Pairs whose rows are side by side in memory at once.
_PAIRS = 16_384


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
    rows_x, rows_y = torch.cat([rows_x, problem.seeds_x]), torch.cat([rows_y, problem.seeds_y])
    return map_from(pair_moments(problem, rows_x, rows_y))


def map_from(moments: Moments) -> Tensor:
    """The map (dx, dy) that pairs with these moments imply, the same in every process."""
    rotation = nearest_rotation(moments.cross)
    refined = refine_rotation(moments, rotation, _PRIOR_PAIRS_PER_DIM * len(rotation))
    return processes().from_first(refined.float())


def pair_moments(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> Moments:
    """Moments of the rows (p,) of X and the rows (p,) of Y that they are paired with, over all processes."""
    x, own = problem.x, problem.x.span
    mine = (rows_x >= own.start) & (rows_x < own.stop)
    left, right = rows_x[mine] - own.start, rows_y[mine]
    total = moments_of(x.own[:0], problem.y.own[:0])
    for first, part in problem.y.parts():
        here = (right >= first) & (right < first + len(part))
        rows, partners = left[here], right[here] - first
        for begin in range(0, len(rows), _PAIRS):
            some = slice(begin, begin + _PAIRS)
            total += moments_of(x.own[rows[some]], part[partners[some]])
    source, cross, target = (processes().sum(sums) for sums in (total.source, total.cross, total.target))
    return Moments(source, cross, target)

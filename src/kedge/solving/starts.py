"""Where the alternation starts: a first rough rotation, from coordinates that both spaces share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, relative, standardise, unit
from kedge.matching import Match, Problem, match_csls, transport_targets
from kedge.solving.fingerprints import WHITENINGS, fingerprints
from kedge.solving.steps import Log

SEED_SHARE = 0.1
"""At first, all seeds together weigh as much as this share of all rows."""

# As coordinates, more seeds than this cost memory and add no precision.
_MAX_COORDINATES = 300
# The weight of all seed coordinates together beside fingerprints: each seed says a little about every row.
_SEEDS_BESIDE_FINGERPRINTS = 0.5
_EPSILON = 0.05
_ROUNDS = 3


def match_by_seeds(problem: Problem) -> Match:
    """Match all rows by their similarities to the seeds.

    With 15 seeds, about 2 % of the mutual matches are right.
    """
    return match_csls(*_seed_coordinates(problem), budget=problem.budget)


@dataclass(frozen=True)
class SharedCoordinates:
    """Unit rows x (n, k) and y (m, k) that can be compared before the spaces are aligned."""

    x: Tensor
    y: Tensor


def shared_coordinates(
    problem: Problem, *, with_fingerprints: bool, log: Log, whitenings: Sequence[float] = WHITENINGS
) -> SharedCoordinates:
    """Similarities to the seeds; or fingerprints of rows whitened to these strengths, and those to any seeds."""
    if not with_fingerprints:
        return SharedCoordinates(*_seed_coordinates(problem))
    prints = fingerprints(problem.x, problem.y, problem.budget, log, whitenings)
    if not len(problem.seeds_x):
        return SharedCoordinates(*prints)
    left, right = (
        unit(torch.cat([rows, standardise(cosines) * (_SEEDS_BESIDE_FINGERPRINTS / cosines.shape[1] ** 0.5)], dim=1))
        for rows, cosines in zip(prints, _seed_cosines(problem), strict=True)
    )
    return SharedCoordinates(left, right)


def rotation_at_start(shared: SharedCoordinates, x: Tensor, y: Tensor, problem: Problem) -> Tensor:
    """A first rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows."""
    return nearest_rotation(cross_at_start(shared, x, y, problem)).to(x.dtype)


def cross_at_start(shared: SharedCoordinates, x: Tensor, y: Tensor, problem: Problem) -> Tensor:
    """A first cross moment (kx, ky), in float64, between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    The rows are matched softly by shared coordinates. Few are sent to their counterparts, but on average the targets
    turn the spaces towards each other.
    """
    targets = transport_targets(shared.x, shared.y, y, _EPSILON, _ROUNDS, budget=problem.budget)
    return with_seeds((x.T @ targets).double(), x, y, problem, SEED_SHARE)


def with_seeds(cross: Tensor, x: Tensor, y: Tensor, problem: Problem, seed_share: float) -> Tensor:
    """A cross moment (kx, ky) of rows x (n, kx) and y (m, ky) plus the seeds, which weigh `seed_share` of all rows."""
    seed_weight = seed_share * len(x) / max(len(problem.seeds_x), 1)
    return cross + seed_weight * (x[problem.seeds_x].T @ y[problem.seeds_y]).double()


def _seed_coordinates(problem: Problem) -> tuple[Tensor, Tensor]:
    """Unit rows (n, s) and (m, s): similarities to the seeds."""
    left, right = _seed_cosines(problem)
    return unit(left), unit(right)


def _seed_cosines(problem: Problem) -> tuple[Tensor, Tensor]:
    some = torch.linspace(0, len(problem.seeds_x) - 1, min(len(problem.seeds_x), _MAX_COORDINATES)).long()
    seeds_x, seeds_y = problem.take_x(problem.seeds_x[some]), problem.take_y(problem.seeds_y[some])
    return relative(problem.x, seeds_x), relative(problem.y, seeds_y)

"""Where the alternation starts: a first rough rotation, from coordinates that both spaces share."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, relative, standardise, unit
from kedge.matching import Match, Rows, match_csls, processes, transport_step
from kedge.matching.problem import Problem
from kedge.runs.arrays import between
from kedge.runs.checkpoint import Kept
from kedge.runs.journal import Journal
from kedge.solving.fingerprints import fingerprints

SEED_SHARE = 0.1
"""Together the seeds weigh as much as this share of all rows, at first."""

# More seeds than this add memory, not precision, as coordinates.
_MOST_COORDINATES = 300
# Beside fingerprints, all seed coordinates together weigh this much: a seed says a little about every row.
_SEEDS_BESIDE_FINGERPRINTS = 0.5
_EPSILON = 0.05
_ROUNDS = 3


def match_by_seeds(problem: Problem) -> Match:
    """Match all rows by their similarities to the seeds.

    With 15 seeds about two in a hundred mutual matches are right.
    """
    return match_csls(*_seed_coordinates(problem), budget=problem.budget)


def shared_coordinates(problem: Problem, *, with_fingerprints: bool, journal: Journal) -> tuple[Tensor, Tensor]:
    """Unit rows (n, k) and (m, k) that can be compared before the spaces can: similarities to the seeds, or
    fingerprints with what seeds there are.
    """
    if not with_fingerprints:
        return _seed_coordinates(problem)
    prints = _fingerprints(problem, journal)
    if not len(problem.seeds_x):
        return prints
    left, right = (
        unit(torch.cat([rows, standardise(cosines) * (_SEEDS_BESIDE_FINGERPRINTS / cosines.shape[1] ** 0.5)], dim=1))
        for rows, cosines in zip(prints, _seed_cosines(problem), strict=True)
    )
    return left, right


def _fingerprints(problem: Problem, journal: Journal) -> tuple[Tensor, Tensor]:
    def compute() -> dict[str, Tensor]:
        left, right = fingerprints(problem.x.gathered(), problem.y.gathered(), problem.budget, journal)
        return {"x": left, "y": right}

    expected = Kept({"x": between(1, len(problem.x), "coordinates"), "y": between(1, len(problem.y), "coordinates")})
    prints = journal.once("fingerprints", problem.x.device, expected, compute)
    return prints["x"], prints["y"]


def rotation_at_start(shared_x: Tensor, shared_y: Tensor, x: Tensor, y: Tensor, problem: Problem) -> Tensor:
    """A rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    The rows are matched softly by shared coordinates (n, k) and (m, k). Few go to their partners, but what they
    have in common on average turns the spaces towards each other.
    """
    potential = y.new_zeros(len(y))
    for _ in range(_ROUNDS):
        plan = transport_step(Rows.shared(shared_x), shared_y, potential, _EPSILON, values=y, budget=problem.budget)
        potential = plan.potential
    cross = processes().sum((Rows.shared(x).own.T @ plan.targets).double())
    return rotation_with_seeds(cross, x, y, problem, SEED_SHARE)


def rotation_with_seeds(cross: Tensor, x: Tensor, y: Tensor, problem: Problem, seed_share: float) -> Tensor:
    """The rotation (kx, ky) that the cross moment (kx, ky) of rows x (n, kx) and their targets implies.

    The seeds, rows of x and y, count besides.
    """
    seed_weight = seed_share * len(x) / max(len(problem.seeds_x), 1)
    cross = cross + seed_weight * (x[problem.seeds_x].T @ y[problem.seeds_y]).double()
    return processes().from_first(nearest_rotation(cross).to(x.dtype))


def _seed_coordinates(problem: Problem) -> tuple[Tensor, Tensor]:
    """Unit rows (n, s) and (m, s): similarities to the seeds."""
    left, right = _seed_cosines(problem)
    return unit(left), unit(right)


def _seed_cosines(problem: Problem) -> tuple[Tensor, Tensor]:
    some = torch.linspace(0, len(problem.seeds_x) - 1, min(len(problem.seeds_x), _MOST_COORDINATES)).long()
    seeds_x, seeds_y = problem.x.take(problem.seeds_x[some]), problem.y.take(problem.seeds_y[some])
    return relative(problem.x.gathered(), seeds_x), relative(problem.y.gathered(), seeds_y)

"""The method: repeat { match the rows; fit the map to the match }, softly at first, hard at the end.

*Annealing* works on a sample, in the leading principal axes, with a soft match: an entropic transport plan
whose epsilon falls round by round, so that early mistakes are averaged out instead of believed. *Finishing*
works on all rows and axes with a hard match: CSLS and mutual nearest neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.discovery.alignment import Alignment, fit_map
from kedge.discovery.anchors import snap
from kedge.discovery.problem import Problem
from kedge.discovery.start import FEW_SEEDS, rotation_at_start
from kedge.discovery.steps import OnStep, Step
from kedge.errors import InputError
from kedge.geometry import orthogonal_map, principal_axes, relative, ridge, unit
from kedge.matching import Match, epsilon_schedule, match_csls, transport_step

# Together the seeds weigh as much as this share of all rows.
_SEED_SHARE = 0.1
# The hard finish stops when the share of mutual pairs moves by less.
_SETTLED = 0.002


@dataclass(frozen=True)
class Schedule:
    """How the alternation spends its time.

    `sample_size` rows of each space and `rank` principal axes for `anneal_rounds` rounds, epsilon falling
    from `epsilon_start` to `epsilon_end` (in units of cosine similarity); then at most `finish_rounds` rounds on
    everything.
    """

    sample_size: int = 8000
    rank: int = 150
    anneal_rounds: int = 20
    epsilon_start: float = 0.1
    epsilon_end: float = 0.02
    finish_rounds: int = 5

    @classmethod
    def for_seeds(cls, count: int) -> Schedule:
        """The default for so many seeds: with few, slow cooling on more rows makes up for a worse start."""
        return cls() if count >= FEW_SEEDS else cls(sample_size=20_000, anneal_rounds=100)

    def __post_init__(self) -> None:
        for name in ("sample_size", "rank", "anneal_rounds", "finish_rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"Schedule: {name} must be at least 1, got {getattr(self, name)}")
        if not self.epsilon_start >= self.epsilon_end > 0:
            raise InputError(
                f"Schedule: epsilon_start >= epsilon_end > 0 is needed, got {self.epsilon_start}, {self.epsilon_end}"
            )


def discover_by_alternation(
    problem: Problem, anchors: Tensor, schedule: Schedule, generator: torch.Generator, on_step: OnStep
) -> Alignment:
    """Start from what both spaces share, anneal on a sample, finish on everything, then place the anchors."""
    history: list[Step] = []

    def record(step: Step) -> None:
        history.append(step)
        on_step(step)

    rotation = _anneal(problem, schedule, generator, record)
    match, final_map, converged = _finish(problem, rotation, schedule.finish_rounds, record)
    rows_x, rows_y = match.pairs()
    # Which free anchors give the rows of Y the coordinates that their partners have? Least squares says.
    coordinates = relative(problem.x[rows_x], problem.x[anchors])
    free = unit(ridge(problem.y[rows_y], coordinates).T)
    snapped = snap(problem, anchors, unit(problem.x[anchors] @ final_map), match.column_hubness)
    return Alignment(final_map, match, free, snapped, tuple(history), converged)


def _anneal(problem: Problem, schedule: Schedule, generator: torch.Generator, on_step: OnStep) -> Tensor:
    """A rotation (dx, dy) found on a sample, in the leading axes."""
    sample = problem.sample(schedule.sample_size, generator)
    axes_x, axes_y = (principal_axes(v, min(schedule.rank, v.shape[1])) for v in (sample.x, sample.y))
    x, y = unit(sample.x @ axes_x), unit(sample.y @ axes_y)
    rotation = rotation_at_start(sample, x, y)

    source = torch.cat([x, x[sample.seeds_x]])
    seed_weight = _SEED_SHARE * len(x) / max(len(sample.seeds_x), 1)
    weights = torch.cat([x.new_ones(len(x)), x.new_full((len(sample.seeds_x),), seed_weight)])
    potential = y.new_zeros(len(y))
    epsilons = epsilon_schedule(schedule.epsilon_start, schedule.epsilon_end, schedule.anneal_rounds)
    for index, epsilon in enumerate(epsilons, start=1):
        plan = transport_step(unit(x @ rotation), y, potential, epsilon, budget=problem.budget)
        potential = plan.potential
        rotation = orthogonal_map(source, torch.cat([plan.targets, y[sample.seeds_y]]), weights)
        on_step(Step("anneal", index, len(epsilons), {"epsilon": epsilon, "sharpness": plan.sharpness}))
    return axes_x @ rotation @ axes_y.T


def _finish(problem: Problem, rotation: Tensor, rounds: int, on_step: OnStep) -> tuple[Match, Tensor, bool]:
    """Hard rounds over all rows until the share of mutual pairs settles."""
    current = rotation
    share = 0.0
    for index in range(1, rounds + 1):
        match = match_csls(unit(problem.x @ current), problem.y, budget=problem.budget)
        previous, share = share, float(match.mutual.float().mean())
        on_step(Step("finish", index, rounds, {"mutual": share}))
        settled = abs(share - previous) < _SETTLED
        if settled or index == rounds:
            break
        current = fit_map(problem, *match.pairs())
    return match, current, settled

"""The two loops of { match the rows; fit the map to the match }: soft and cooling, then hard."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.discovery.alignment import fit_map
from kedge.discovery.problem import Problem
from kedge.discovery.schedule import Schedule
from kedge.discovery.start import SEED_SHARE, rotation_with_seeds
from kedge.discovery.steps import OnStep, Step
from kedge.geometry import unit
from kedge.matching import Match, epsilon_schedule, match_csls, transport_step

# The hard finish stops when the share of mutual pairs moves by less.
_SETTLED = 0.002


def anneal(
    problem: Problem,
    x: Tensor,
    y: Tensor,
    rotation: Tensor,
    schedule: Schedule,
    on_step: OnStep,
    hints: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """A better rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    Each round takes one Sinkhorn step between the rotated x and y at a falling epsilon, and a new rotation from x
    to where the plan sends it. `hints` (n, k) and (m, k) are shared coordinates that count as similarity too.
    """
    potential = y.new_zeros(len(y))
    epsilons = epsilon_schedule(schedule.epsilon_start, schedule.epsilon_end, schedule.anneal_rounds)
    for index, epsilon in enumerate(epsilons, start=1):
        # What was known at the start fades: it leads the way, but the match it leads to knows better, and
        # neither a wrong seed nor a misleading fingerprint must have the last word.
        remaining = 1 - (index - 1) / len(epsilons)
        source, target = unit(x @ rotation), y
        if hints is not None:
            source = torch.cat([source, remaining * hints[0]], dim=1)
            target = torch.cat([target, remaining * hints[1]], dim=1)
        plan = transport_step(source, target, potential, epsilon, values=y, budget=problem.budget)
        potential = plan.potential
        rotation = rotation_with_seeds(x, plan.targets, y, problem, SEED_SHARE * remaining)
        on_step(Step("anneal", index, len(epsilons), {"epsilon": epsilon, "sharpness": plan.sharpness}))
    return rotation


@dataclass(frozen=True)
class Finished:
    """A match of all rows, the map (dx, dy) it was made with, and whether the rounds settled."""

    match: Match
    map: Tensor
    settled: bool


def finish(
    problem: Problem, start: Tensor, rounds: int, on_step: OnStep, *, share_before: float = math.inf
) -> Finished:
    """Hard rounds over all rows and axes, from a map (dx, dy), until the share of mutual pairs settles.

    `share_before` is that of the match which the map was fitted to, where there was one.
    """
    current = start
    share = share_before
    for index in range(1, rounds + 1):
        match = match_csls(unit(problem.x @ current), problem.y, budget=problem.budget)
        previous, share = share, float(match.mutual.float().mean())
        on_step(Step("finish", index, rounds, {"mutual": share}))
        settled = share > 0 and abs(share - previous) < _SETTLED
        if settled or index == rounds:
            break
        current = fit_map(problem, *match.pairs())
    return Finished(match, current, settled)

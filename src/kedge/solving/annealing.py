"""Annealing: soft matches and rotations in turn, while the match sharpens (Wasserstein-Procrustes, with entropy).

Alternating a transport plan and the rotation that it implies is Wasserstein-Procrustes (Grave, Joulin and Berthet,
2019); the entropy of the plan falls round by round, so that early mistakes are averaged out instead of believed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kedge.geometry import principal_axes, unit
from kedge.matching import Problem, balanced, epsilon_schedule, transport_step
from kedge.solving.schedule import Schedule
from kedge.solving.starts import SEED_SHARE, rotation_with_seeds
from kedge.solving.steps import Log

# Annealing may be over when rows are so sure of their partners, on average: finishing does the rest.
_SHARP = 0.8


def leading_axes(rows: Tensor, rank: int) -> Tensor:
    """At most `rank` principal axes (d, k) of rows (n, d)."""
    return principal_axes(rows, min(rank, rows.shape[1]))


def anneal(
    problem: Problem,
    x: Tensor,
    y: Tensor,
    rotation: Tensor,
    schedule: Schedule,
    log: Log,
    hints: tuple[Tensor, Tensor] | None = None,
    *,
    fade: bool = True,
    until_sharp: bool = False,
) -> Tensor:
    """A better rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    Each round takes one Sinkhorn step between a part of x that has its turn, rotated, and y at a falling epsilon, and
    a new rotation from all of x to where the last plans of its parts send it. `hints` (n, k) and (m, k) are shared
    coordinates that count as similarity too. They and the seeds count less and less, unless they are not to `fade`. It
    may end early only with `until_sharp`.
    """
    count = min(schedule.parts, len(x))
    parts = [x[turn::count] for turn in range(count)]
    potential = y.new_zeros(len(y))
    crosses = torch.zeros(len(parts), x.shape[1], y.shape[1], dtype=torch.float64, device=y.device)
    received = y.new_full((len(parts), len(y)), -torch.inf)
    epsilons = epsilon_schedule(schedule.epsilon_start, schedule.epsilon_end, schedule.anneal_rounds)
    for index, epsilon in enumerate(epsilons, start=1):
        # What was known at the start fades: it leads the way, but the match it leads to knows better, and
        # neither a wrong seed nor a misleading fingerprint must have the last word.
        remaining = 1 - (index - 1) / len(epsilons) if fade else 1.0
        turn = (index - 1) % len(parts)
        source, target = unit(x[turn::count] @ rotation), y
        if hints is not None:
            source = torch.cat([source, remaining * hints[0][turn::count]], dim=1)
            target = torch.cat([target, remaining * hints[1]], dim=1)
        plan = transport_step(source, target, potential, epsilon, values=y, budget=problem.budget)
        # Of the other parts, what was found at their last turn.
        crosses[turn] = (parts[turn].T @ plan.targets).double()
        received[turn] = plan.received
        seen = min(index, len(parts))
        potential = balanced(potential, received.logsumexp(dim=0) - math.log(seen), epsilon, 1 / seen)
        scale = len(x) / sum(len(part) for part in parts[:seen])
        rotation = rotation_with_seeds(scale * crosses.sum(dim=0), x, y, problem, SEED_SHARE * remaining)
        log.report("anneal", index, len(epsilons), epsilon=epsilon, sharpness=plan.sharpness)
        if until_sharp and plan.sharpness >= _SHARP:
            break
    return rotation

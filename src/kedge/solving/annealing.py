"""Annealing: soft matches and rotations in turn, while the match sharpens (Wasserstein-Procrustes, with entropy).

Alternating a transport plan and the rotation that it implies is Wasserstein-Procrustes (Grave, Joulin and Berthet,
2019); the entropy of the plan falls round by round, so that early mistakes are averaged out instead of believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from kedge.geometry import emphasis, nearest_rotation, principal_axes, unit
from kedge.matching import Problem, balanced, epsilon_schedule, transport_step
from kedge.solving.schedule import Schedule
from kedge.solving.starts import SEED_SHARE, with_seeds
from kedge.solving.steps import Log

# Annealing may be over when rows are so sure of their partners, on average: finishing does the rest.
_SHARP = 0.8
# It may be over, too, when rows go to the same places round by round: 1 - cosine of one place and the next.
_STILL = 2e-4
# The power of its strength by which a direction counts, in spaces as they are and in whitened ones, of which no
# direction says more than another by itself.
_WEIGHTING, _WEIGHTING_IF_WHITE = 0.125, 0.375


class Annealed(NamedTuple):
    """A rotation (kx, ky), and what it is best read by: an `emphasis` (ky, ky) on some of its directions."""

    rotation: Tensor
    emphasis: Tensor | None = None

    def places(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Where rows x (n, kx) and y (m, ky) lie when they are compared: (n, ky) and (m, ky), of any length."""
        if self.emphasis is None:
            return x @ self.rotation, y
        return x @ (self.rotation @ self.emphasis), y @ self.emphasis


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
    until_still: bool = False,
) -> Annealed:
    """A better rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    Each round takes one Sinkhorn step between a part of x that has its turn, rotated, and y at a falling epsilon, and
    a new rotation from all of x to where the last plans of its parts send it; `both_ways`, one from a part of y to x
    besides. In a weighted schedule, directions count the more, the stronger the last plans' cross moment is along them:
    most of the others are not known yet, and would drown these. `hints` (n, k) and (m, k) are shared coordinates that
    count as similarity too. They and the seeds count less and less, unless they are not to `fade`. It may end early
    only with `until_sharp`, or with `until_still`: when the rotation hardly moves any more.
    """
    forth = _Plans.none_yet(x, y, schedule.parts)
    back = _Plans.none_yet(y, x, schedule.parts) if schedule.both_ways else None
    power = _WEIGHTING + (_WEIGHTING_IF_WHITE - _WEIGHTING) * schedule.whitening
    found = Annealed(rotation)
    epsilons = epsilon_schedule(schedule.epsilon_start, schedule.epsilon_end, schedule.anneal_rounds)
    for index, epsilon in enumerate(epsilons, start=1):
        # What was known at the start fades: it leads the way, but the match it leads to knows better, and
        # neither a wrong seed nor a misleading fingerprint must have the last word.
        remaining = 1 - (index - 1) / len(epsilons) if fade else 1.0
        turn = (index - 1) % forth.count
        source, target = map(unit, found.places(forth.part(x, turn), y))
        if hints is not None:
            source = torch.cat([source, remaining * forth.part(hints[0], turn)], dim=1)
            target = torch.cat([target, remaining * hints[1]], dim=1)
        sharpness = forth.step(index, source, target, epsilon, problem.budget)
        cross = forth.cross(index)
        if back is not None:
            turn = (index - 1) % back.count
            target, source = map(unit, found.places(x, back.part(y, turn)))
            if hints is not None:
                source = torch.cat([source, remaining * back.part(hints[1], turn)], dim=1)
                target = torch.cat([target, remaining * hints[0]], dim=1)
            back.step(index, source, target, epsilon, problem.budget)
            cross = (cross + len(x) / len(y) * back.cross(index).T) / 2
        cross, before = with_seeds(cross, x, y, problem, SEED_SHARE * remaining), found
        found = Annealed(nearest_rotation(cross).to(x.dtype))
        if schedule.weighted:
            found = found._replace(emphasis=emphasis(cross, power).to(x.dtype))
        log.report("anneal", index, len(epsilons), epsilon=epsilon, sharpness=sharpness)
        if until_sharp and sharpness >= _SHARP:
            break
        if until_still and index > forth.count and _moved(x, before.rotation, found.rotation) * forth.count < _STILL:
            break
    return found


def _moved(x: Tensor, before: Tensor, after: Tensor) -> float:
    """How far a rotation (kx, ky) moves rows x (n, kx) from where the one before sent them: 1 - cosine, over all.

    Where Y has fewer axes than X, a rotation leaves something of every row out.
    """
    variances = x.square().mean(dim=0)[:, None]
    both, one, other = ((variances * product).sum() for product in (before * after, before**2, after**2))
    return float(1 - both / (one * other).sqrt())


@dataclass
class _Plans:
    """Where plans send rows (n, d), in parts that have their turn one after the other, among others (m, e).

    Of every part what was found at its last turn: the cross moment (d, e) of its rows and their targets, and the log
    (m,) of what the others received. `potential` (m,) balances the others.
    """

    rows: Tensor
    others: Tensor
    count: int
    potential: Tensor
    crosses: Tensor
    received: Tensor

    @classmethod
    def none_yet(cls, rows: Tensor, others: Tensor, parts: int) -> _Plans:
        count = min(parts, len(rows))
        return cls(
            rows,
            others,
            count,
            others.new_zeros(len(others)),
            torch.zeros(count, rows.shape[1], others.shape[1], dtype=torch.float64, device=rows.device),
            others.new_full((count, len(others)), -torch.inf),
        )

    def part(self, rows: Tensor, turn: int) -> Tensor:
        """Those of the rows that have their turn."""
        return rows[turn :: self.count]

    def step(self, index: int, source: Tensor, target: Tensor, epsilon: float, budget: int) -> float:
        """One Sinkhorn step from the part whose turn it is, as a source (k, c) seen beside a target (m, c)."""
        turn = (index - 1) % self.count
        plan = transport_step(source, target, self.potential, epsilon, values=self.others, budget=budget)
        self.crosses[turn] = (self.part(self.rows, turn).T @ plan.targets).double()
        self.received[turn] = plan.received
        seen = min(index, self.count)
        received = self.received.logsumexp(dim=0) - math.log(seen)
        self.potential = balanced(self.potential, received, epsilon, 1 / seen)
        return plan.sharpness

    def cross(self, index: int) -> Tensor:
        """The cross moment (d, e) of all rows, estimated by the parts that have had a turn."""
        seen = sum(len(self.part(self.rows, turn)) for turn in range(min(index, self.count)))
        return len(self.rows) / seen * self.crosses.sum(dim=0)

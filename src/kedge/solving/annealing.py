"""Annealing: alternate soft matches and rotations while the match sharpens (Wasserstein-Procrustes, with entropy).

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

# Annealing may stop when rows give this share of their weight to one partner, on average: finishing does the rest.
_SHARP = 0.8
# It may also stop when a turn over all rows moves them by less than this: 1 - cosine.
_STILL = 2e-4
# Directions count by their strength to this power: in spaces as they are, and in whitened ones, where directions do not
# differ in variance.
_WEIGHTING, _WEIGHTING_IF_WHITE = 0.125, 0.375


class Annealed(NamedTuple):
    """A rotation (kx, ky), and the `emphasis` (ky, ky) on some of its directions that rows are best compared with."""

    rotation: Tensor
    emphasis: Tensor | None = None

    def places(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Rows x (n, kx) and y (m, ky) in the coordinates they are compared in: (n, ky) and (m, ky), not normalised."""
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
    """Improve a rotation (kx, ky) between coordinates x (n, kx) and y (m, ky) of the problem's rows.

    Each round takes one Sinkhorn step from one part of the rotated x to y, at a falling epsilon, and then fits a new
    rotation from all of x to where the latest plans of its parts send it. With `both_ways`, each round takes another
    step from one part of y to x. In a weighted schedule, directions count more, the stronger the latest plans' cross
    moment is along them: most others are not known yet, and would drown them. `hints` (n, k) and (m, k) are shared
    coordinates that count as similarity too. Unless `fade` is False, they and the seeds fade over the rounds. Annealing
    ends early only with `until_sharp`, or with `until_still` once the rotation hardly moves.
    """
    forth = _Plans.none_yet(x, y, schedule.parts)
    back = _Plans.none_yet(y, x, schedule.parts) if schedule.both_ways else None
    power = _WEIGHTING + (_WEIGHTING_IF_WHITE - _WEIGHTING) * schedule.whitening
    found = Annealed(rotation)
    epsilons = epsilon_schedule(schedule.epsilon_start, schedule.epsilon_end, schedule.anneal_rounds)
    for index, epsilon in enumerate(epsilons, start=1):
        # What was known at the start leads the way, and then fades: the match it leads to knows better, and neither a
        # wrong seed nor a misleading fingerprint must have the last word.
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
    """How far apart two rotations (kx, ky) send rows x (n, kx): 1 - cosine, over all rows together.

    Lengths are measured after rotation: where Y has fewer axes than X, every row loses a part.
    """
    variances = x.square().mean(dim=0)[:, None]
    both, one, other = ((variances * product).sum() for product in (before * after, before**2, after**2))
    return float(1 - both / (one * other).sqrt())


@dataclass
class _Plans:
    """Plans that send rows (n, d) to others (m, e), updated for one part of the rows at a time.

    Each part keeps what its last turn gave: the cross moment (d, e) of its rows and their targets, and the log (m,) of
    what the others received. `potential` (m,) balances the others.
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
        """The part of the rows whose turn it is."""
        return rows[turn :: self.count]

    def step(self, index: int, source: Tensor, target: Tensor, epsilon: float, budget: int) -> float:
        """One Sinkhorn step from the part whose turn it is, at (k, c), to the others, at (m, c); its sharpness."""
        turn = (index - 1) % self.count
        plan = transport_step(source, target, self.potential, epsilon, values=self.others, budget=budget)
        self.crosses[turn] = (self.part(self.rows, turn).T @ plan.targets).double()
        self.received[turn] = plan.received
        seen = min(index, self.count)
        received = self.received.logsumexp(dim=0) - math.log(seen)
        self.potential = balanced(self.potential, received, epsilon, 1 / seen)
        return plan.sharpness

    def cross(self, index: int) -> Tensor:
        """The cross moment (d, e) of all rows, estimated from the parts that have had a turn."""
        seen = sum(len(self.part(self.rows, turn)) for turn in range(min(index, self.count)))
        return len(self.rows) / seen * self.crosses.sum(dim=0)

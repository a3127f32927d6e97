"""The method: start from what both spaces share, anneal on a sample, finish on everything.

*Annealing* works on a sample, in the leading principal axes, with a soft match: an entropic transport plan
whose epsilon falls round by round, so that early mistakes are averaged out instead of believed. *Finishing*
works on all rows and axes with a hard match: CSLS and mutual nearest neighbours. What comes out is judged without
labels; while it is not good, slower ways are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kedge.discovery.alignment import Alignment, fit_map
from kedge.discovery.anchors import place_free_anchors, snap
from kedge.discovery.annealing import Finished, anneal, finish
from kedge.discovery.judgement import Health
from kedge.discovery.problem import Problem
from kedge.discovery.schedule import Schedule
from kedge.discovery.start import rotation_at_start, shared_coordinates
from kedge.discovery.steps import OnStep, Step
from kedge.discovery.suspects import suspect_seeds
from kedge.geometry import principal_axes, unit
from kedge.matching import Match

# Finishing rounds after which an attempt is judged; only the best is finished to the end.
_ROUNDS_TO_JUDGE = 4


def discover_by_alternation(
    problem: Problem,
    anchors: Tensor,
    schedules: Sequence[Schedule],
    health_of: Callable[[Match], Health],
    generator: torch.Generator,
    on_step: OnStep,
) -> Alignment:
    """Try the schedules in turn until the result is aligned; keep the healthiest, and place the anchors."""
    history: list[Step] = []
    attempts: list[tuple[Health, Finished]] = []
    ground = None
    for number, schedule in enumerate(schedules, start=1):
        told = f"attempt {number} of {len(schedules)}: {schedule.describe(len(problem.seeds_x))}"

        def record(step: Step, attempt: str = told) -> None:
            history.append(replace(step, attempt=attempt))
            on_step(history[-1])

        if ground is None or not ground.serves(schedule):
            ground = _prepare(problem, schedule, generator, record)
        rounds = min(_ROUNDS_TO_JUDGE, schedule.finish_rounds)
        finished = finish(problem, _rotation(ground, schedule, record), rounds, record)
        attempts.append((health_of(finished.match), finished))
        if attempts[-1][0].verdict == "aligned":
            break
    health, best = max(attempts, key=lambda attempt: attempt[0].score)
    if not best.settled and schedule.finish_rounds > rounds:
        share = float(best.match.mutual.float().mean())
        further = fit_map(problem, *best.match.pairs())
        best = finish(problem, further, schedule.finish_rounds - rounds, record, share_before=share)
    rows_x, rows_y = best.match.pairs()
    free = place_free_anchors(problem.x[rows_x], problem.y[rows_y], problem.x[anchors])
    suspects = suspect_seeds(problem, best.map) & (health.verdict == "aligned")
    trusted = problem.without_seeds(suspects)
    final_map = fit_map(trusted, rows_x, rows_y) if bool(suspects.any()) else best.map
    snapped = snap(trusted, anchors, unit(problem.x[anchors] @ final_map), best.match.column_hubness)
    return Alignment(final_map, best.match, free, snapped, suspects, tuple(history), best.settled)


@dataclass(frozen=True)
class _Ground:
    """What annealing works on: a sample of the problem, its leading axes, and its rows in shared coordinates."""

    schedule: Schedule
    sample: Problem
    axes_x: Tensor
    axes_y: Tensor
    shared_x: Tensor
    shared_y: Tensor

    def serves(self, schedule: Schedule) -> bool:
        """Whether another schedule works on the same ground."""
        return all(
            getattr(self.schedule, name) == getattr(schedule, name) for name in ("sample_size", "rank", "fingerprints")
        )


def _prepare(problem: Problem, schedule: Schedule, generator: torch.Generator, on_step: OnStep) -> _Ground:
    sample = problem.sample(schedule.sample_size, generator)
    axes_x, axes_y = (principal_axes(rows, min(schedule.rank, rows.shape[1])) for rows in (sample.x, sample.y))
    shared = shared_coordinates(sample, with_fingerprints=schedule.fingerprints, on_step=on_step)
    return _Ground(schedule, sample, axes_x, axes_y, *shared)


def _rotation(ground: _Ground, schedule: Schedule, on_step: OnStep) -> Tensor:
    """A rotation (dx, dy) found on the sample, in the leading axes."""
    x, y = unit(ground.sample.x @ ground.axes_x), unit(ground.sample.y @ ground.axes_y)
    start = rotation_at_start(ground.shared_x, ground.shared_y, x, y, ground.sample)
    hints = (ground.shared_x, ground.shared_y) if schedule.fingerprints else None
    return ground.axes_x @ anneal(ground.sample, x, y, start, schedule, on_step, hints) @ ground.axes_y.T

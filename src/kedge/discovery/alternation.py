"""The method: start from what both spaces share, anneal on a sample, finish on everything.

*Annealing* works on a sample, in the leading principal axes, with a soft match: an entropic transport plan
whose epsilon falls round by round, so that early mistakes are averaged out instead of believed. *Finishing*
works on all rows and axes with a hard match: CSLS and mutual nearest neighbours. What comes out is judged without
labels; while it is not good, slower ways are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kedge.discovery.alignment import Alignment, fit_map, pair_moments
from kedge.discovery.anchors import place_free_anchors, snap
from kedge.discovery.annealing import Finished, anneal, finish, leading_axes
from kedge.discovery.journal import Journal
from kedge.discovery.judgement import Health
from kedge.discovery.problem import Problem
from kedge.discovery.schedule import FINISH_ROWS, Schedule
from kedge.discovery.start import rotation_at_start, shared_coordinates
from kedge.discovery.steps import Step
from kedge.discovery.suspects import suspect_seeds
from kedge.geometry import unit
from kedge.matching import Match

# Finishing rounds after which an attempt is judged; only the best is finished to the end.
_ROUNDS_TO_JUDGE = 4


def discover_by_alternation(
    problem: Problem,
    anchors: Tensor,
    schedules: Sequence[Schedule],
    health_of: Callable[[Match], Health],
    generator: torch.Generator,
    journal: Journal,
) -> Alignment:
    """Try the schedules in turn until the result is aligned; keep the healthiest, and place the anchors."""
    attempts: list[_Attempt] = []
    ground = None
    sample = problem.sample_of_x(FINISH_ROWS, generator)
    for number, schedule in enumerate(schedules, start=1):
        told = f"attempt {number} of {len(schedules)}: {schedule.describe(len(problem.seeds_x))}"
        notes = journal.of(f"attempt-{number}", told)
        if ground is None or not ground.serves(schedule):
            ground = _prepare(problem, schedule, generator, notes)
        rounds = min(_ROUNDS_TO_JUDGE, schedule.finish_rounds)
        start = partial(_rotation, ground, schedule, notes)
        finished = finish(problem, start, rounds, notes, sample=sample)
        health = health_of(finished.match)
        notes.apart().tell(Step("health", number, len(schedules), {"score": health.score}))
        attempts.append(_Attempt(finished, health, schedule.finish_rounds - rounds, notes))
        if health.verdict == "aligned":
            break
    chosen = max(attempts, key=lambda attempt: attempt.health.score)
    best, health = chosen.finished, chosen.health
    if not best.settled and chosen.rounds_left:
        further = partial(fit_map, problem, *best.match.pairs())
        notes = chosen.journal.of("further")
        best = finish(problem, further, chosen.rounds_left, notes, sample=sample, share_before=best.share)
    rows_x, rows_y = best.match.pairs()
    vectors = problem.x.take(anchors)
    free = place_free_anchors(pair_moments(problem, rows_x, rows_y), vectors)
    suspects = suspect_seeds(problem, best.map) & (health.verdict == "aligned")
    trusted = problem.without_seeds(suspects)
    final_map = fit_map(trusted, rows_x, rows_y) if bool(suspects.any()) else best.map
    snapped = snap(trusted, anchors, unit(vectors @ final_map), best.match.column_hubness)
    return Alignment(final_map, best.match, free, snapped, suspects, tuple(journal.history), best.settled)


class _Attempt(NamedTuple):
    """What an attempt came to, how many rounds of finishing it has left, and where it reports."""

    finished: Finished
    health: Health
    rounds_left: int
    journal: Journal


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


def _prepare(problem: Problem, schedule: Schedule, generator: torch.Generator, journal: Journal) -> _Ground:
    sample = problem.sample(schedule.sample_size, generator)
    axes_x, axes_y = (leading_axes(rows, schedule.rank) for rows in (sample.x, sample.y))
    shared = shared_coordinates(sample, with_fingerprints=schedule.fingerprints, journal=journal)
    return _Ground(schedule, sample, axes_x, axes_y, *shared)


def _rotation(ground: _Ground, schedule: Schedule, journal: Journal) -> Tensor:
    """A rotation (dx, dy) found on the sample, in the leading axes."""
    sample = ground.sample
    x, y = unit(sample.x.gathered() @ ground.axes_x), unit(sample.y.gathered() @ ground.axes_y)
    start = partial(rotation_at_start, ground.shared_x, ground.shared_y, x, y, sample)
    hints = (ground.shared_x, ground.shared_y) if schedule.fingerprints else None
    return ground.axes_x @ anneal(sample, x, y, start, schedule, journal, hints) @ ground.axes_y.T

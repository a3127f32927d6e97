"""The method: start from what both spaces share, anneal on a sample, finish on everything.

*Annealing* works on a sample, in the leading principal axes, with a soft match: an entropic transport plan
whose epsilon falls round by round, so that early mistakes are averaged out instead of believed. *Finishing*
works on all axes and on all rows, or on a part where they are many, with a hard match, read by the pair model: CSLS and
mutual nearest neighbours. What comes out is judged without labels; while it is not good, other ways are tried, slower
ones and on whitened spaces. Where so many pairs are known that they tell all there is to tell, finishing is enough;
where hardly a row recognises its counterpart, because few items are shared, finishing stays soft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, unit
from kedge.judging.judge import Judged
from kedge.matching import Match, nearest_of, processes
from kedge.matching.problem import Problem, draw_rows
from kedge.models.maps import ENOUGH_KNOWN
from kedge.runs.arrays import rows_of
from kedge.runs.checkpoint import Kept
from kedge.runs.journal import Journal
from kedge.solving.alignment import Alignment, Reading, Turned, fit_model, known_and_found, pair_moments
from kedge.solving.annealing import Finished, anneal, finish, finish_softly, leading_axes
from kedge.solving.sampling import dense_sample
from kedge.solving.schedule import FINISH_ROWS, FINISH_ROWS_OF_X, SOFT_ROWS, Schedule
from kedge.solving.starts import rotation_at_start, shared_coordinates
from kedge.solving.steps import Step

# Finishing rounds after which an attempt is judged; only the best is finished to the end.
_ROUNDS_TO_JUDGE = 4
# Where fewer of the rows recognise their counterpart, there may be none to speak of.
_FEW_RECOGNISED = 0.1
# A result that is right, but less healthy than this, is compared with one on whitened spaces.
_SURE = 0.8
# A map that is so good needs no slower way, even if no row recognises another.
_GOOD = 0.5
# Rows of Y that are taken along for each row of X, where a part of the rows is finished on.
_LIKELY = 3
# So many known pairs a dimension determine the model; so does knowing the greater part of a space.
_PAIRS_PER_DIM, _KNOWN_SHARE = 3, 0.5


def discover_by_alternation(
    problem: Problem,
    schedules: Sequence[Schedule],
    judge: Callable[[Problem, Match], Judged],
    generator: torch.Generator,
    journal: Journal,
    *,
    disjoint: bool = False,
) -> tuple[Alignment, Judged]:
    """Try the schedules in turn until the map is right, and keep the healthiest.

    Spaces that are said to be `disjoint` are finished softly, without a look for pairs.
    """
    attempts: list[_Attempt] = []
    ground = None
    some_x = draw_rows(len(problem.x), FINISH_ROWS_OF_X, problem.seeds_x, generator)
    if _knows_enough(problem):
        schedules = (Schedule(anneal_rounds=0, whitening=schedules[0].whitening),)
    for number, schedule in enumerate(schedules, start=1):
        if not _worth_trying(schedule, attempts):
            continue
        told = f"attempt {number} of {len(schedules)}: {schedule.describe(len(problem.seeds_x))}"
        notes = journal.of(f"attempt-{number}", told)
        start: Callable[[], Reading]
        if schedule.anneal_rounds:
            if ground is None or not ground.serves(schedule):
                ground = _prepare(problem, schedule, generator, notes)
            start = cache(partial(_turned, ground, schedule, notes))
        else:
            start = cache(partial(fit_model, problem, problem.seeds_x, problem.seeds_y))
        part = _to_finish_on(problem, some_x, start, notes)
        finished = finish(part, start, min(_ROUNDS_TO_JUDGE, schedule.finish_rounds), notes)
        judged = judge(part, finished.match)
        notes.apart().tell(Step("health", number, len(schedules), {"score": judged.answer.score}))
        attempts.append(_Attempt(part, finished, judged, schedule, notes))
    chosen = max(attempts, key=_rank)
    part, best, judged = chosen.part, chosen.finished, chosen.judged
    rounds_left = chosen.schedule.finish_rounds - _ROUNDS_TO_JUDGE
    if not best.settled and rounds_left > 0:
        further = partial(fit_model, part, *known_and_found(part, best.match))
        best = finish(part, further, rounds_left, chosen.journal.of("further"), share_before=best.share)
        judged = judge(part, best.match)
    if disjoint or (judged.recognition.share < _FEW_RECOGNISED and not _knows_enough(problem)):
        soft_sample = problem.sample(SOFT_ROWS, generator)
        best = finish_softly(problem, soft_sample, partial(_rotation_of, part, best.match), chosen.journal)
        judged = judge(problem, best.match)
    elif part is not problem:
        on_part = partial(fit_model, part, *known_and_found(part, best.match))
        best = finish(problem, on_part, chosen.schedule.finish_rounds, chosen.journal.of("all"))
        judged = judge(problem, best.match)
    history, whitening = tuple(journal.history), chosen.schedule.whitening
    return Alignment(best.match, history, best.settled, whitening, candidates=best.candidates), judged


def _to_finish_on(problem: Problem, some_x: Tensor, start: Callable[[], Reading], journal: Journal) -> Problem:
    """The problem; where there are many rows, some rows (k,) of X and what a first reading takes for the best of Y.

    That gives as good a model at a bounded cost: rows of X lose their rivals, but those of Y that they might take for
    their counterparts are there.
    """
    if max(len(problem.x), len(problem.y)) <= FINISH_ROWS:
        return problem

    def choose() -> dict[str, Tensor]:
        reading = start()
        parts = ((first, reading.shared_y(part)) for first, part in problem.y.parts())
        _, nearest = nearest_of(reading.shared_x(problem.x.take(some_x)), parts, _LIKELY, problem.budget)
        return {"rows": torch.unique(torch.cat([nearest.flatten(), problem.seeds_y]))}

    chosen = rows_of(len(problem.y), "rows", ascending=True)
    seeds = problem.seeds_y.cpu()
    expected = Kept({"rows": chosen}, lambda state: bool(torch.isin(seeds, state["rows"]).all()))
    return problem.part(some_x, journal.once("part", some_x.device, expected, choose)["rows"])


def _rotation_of(problem: Problem, match: Match) -> Tensor:
    """The rotation (dx, dy) that the seeds and the mutual pairs of a match imply."""
    cross = pair_moments(problem, *known_and_found(problem, match)).cross
    return processes().from_first(nearest_rotation(cross).float())


class _Attempt(NamedTuple):
    """Which rows an attempt went over, what it came to, what it tried, and where it reports."""

    part: Problem
    finished: Finished
    judged: Judged
    schedule: Schedule
    journal: Journal


def _knows_enough(problem: Problem) -> bool:
    """Whether the seeds say all that there is to say, so that nothing needs to be annealed."""
    known, rows = len(problem.seeds_x), min(len(problem.x), len(problem.y))
    enough = min(_PAIRS_PER_DIM * min(problem.x.dim, problem.y.dim), _KNOWN_SHARE * rows)
    return known >= max(enough, ENOUGH_KNOWN)


def _worth_trying(schedule: Schedule, attempts: Sequence[_Attempt]) -> bool:
    """Whether an attempt may still gain something over those made before."""
    best = max(attempts, key=_rank, default=None)
    if best is None or best.judged.answer.verdict != "ok":
        return True
    if not best.judged.surely:  # by and large, but no row recognises another: a slower way may
        return best.judged.answer.score < _GOOD
    # On whitened spaces what has just worked may work better.
    twin = schedule.whitening > 0 and replace(schedule, whitening=0.0) == best.schedule
    return twin and best.judged.answer.score < _SURE


def _rank(attempt: _Attempt) -> tuple[bool, float]:
    """Attempts after which rows recognise each other come before all others."""
    return attempt.judged.surely, attempt.judged.answer.score


@dataclass(frozen=True)
class _Ground:
    """What annealing works on: a sample of the problem, its leading axes, and its rows in shared coordinates.

    The sample is whitened, if it is, by matrices (dx, dx) and (dy, dy).
    """

    schedule: Schedule
    sample: Problem
    whitening_x: Tensor
    whitening_y: Tensor
    axes_x: Tensor
    axes_y: Tensor
    shared_x: Tensor
    shared_y: Tensor

    def serves(self, schedule: Schedule) -> bool:
        """Whether another schedule works on the same ground."""
        return all(
            getattr(self.schedule, name) == getattr(schedule, name)
            for name in ("sample_size", "rank", "fingerprints", "whitening")
        )


def _prepare(problem: Problem, schedule: Schedule, generator: torch.Generator, journal: Journal) -> _Ground:
    draw = dense_sample if schedule.fingerprints else Problem.sample
    plain = draw(problem, schedule.sample_size, generator)
    sample = plain.whitened(schedule.whitening)
    axes_x, axes_y = (leading_axes(rows, schedule.rank) for rows in (sample.x, sample.y))
    shared = shared_coordinates(sample, with_fingerprints=schedule.fingerprints, journal=journal)
    return _Ground(schedule, sample, *plain.whitenings(schedule.whitening), axes_x, axes_y, *shared)


def _turned(ground: _Ground, schedule: Schedule, journal: Journal) -> Turned:
    """A first reading: a rotation found on the sample, in the leading axes."""
    sample = ground.sample
    x, y = unit(sample.x.gathered() @ ground.axes_x), unit(sample.y.gathered() @ ground.axes_y)
    start = partial(rotation_at_start, ground.shared_x, ground.shared_y, x, y, sample)
    hints = (ground.shared_x, ground.shared_y) if schedule.fingerprints else None
    rotation = anneal(sample, x, y, start, schedule, journal, hints, until_sharp=True)
    return Turned(ground.whitening_x @ ground.axes_x @ rotation, ground.whitening_y @ ground.axes_y)

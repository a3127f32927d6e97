"""The method: start from what both spaces share, anneal on a sample, finish on everything.

*Annealing* works on a sample, in the leading principal axes, with a soft match: an entropic transport plan whose
epsilon falls round by round. *Finishing* works on all axes and all rows (a part of them in large spaces) with a hard
match: mutual nearest neighbours by CSLS, as the pair model reads the rows. The result is judged without labels; until
it is good, further attempts are made, slower ones and on whitened spaces. Where enough pairs are known to determine
the model, finishing alone is enough; where hardly any row recognises its counterpart, because few items are shared,
finishing stays soft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, unit
from kedge.matching import (
    CosineReading,
    Match,
    Problem,
    Reading,
    draw_rows,
    nearest_of,
)
from kedge.models.maps.choosing import ENOUGH_KNOWN
from kedge.models.pair_fitting import fit_model, known_and_found, pair_cross
from kedge.solving.alignment import Alignment, Judge, Opinion
from kedge.solving.annealing import anneal, leading_axes
from kedge.solving.closeness import Closeness, implied_cross
from kedge.solving.components import read_by_components
from kedge.solving.fingerprints import WHITENINGS
from kedge.solving.finishing import Finished, finish, finish_softly
from kedge.solving.sampling import dense_sample
from kedge.solving.schedule import FINISH_ROWS, FINISH_ROWS_OF_X, SOFT_ROWS, Schedule
from kedge.solving.starts import SharedCoordinates, rotation_at_start, shared_coordinates
from kedge.solving.steps import Log

# Finishing rounds after which an attempt is judged; only the best is finished to the end.
_ROUNDS_TO_JUDGE = 4
# If a smaller share of rows recognises its counterpart, there may be hardly any pairs to find.
_FEW_RECOGNISED = 0.1
# A result that is ok but scores less than this is compared with attempts on whitened spaces and both ways.
_SURE = 0.8
# A map with this score needs no slower attempt, even if rows do not recognise each other.
_GOOD = 0.5
# Attempts whose closeness differs by less than this are equally close.
_AS_CLOSE = 1e-3
# Profiles of fully whitened rows make better starts, but mislead as similarities.
_WHITENINGS_TO_START = (*WHITENINGS, 1.0)
# Rows of Y included for each row of X, where finishing uses only a part of the rows.
_LIKELY = 3
# This many known pairs per dimension determine the model; so does knowing this share of a space.
_PAIRS_PER_DIM, _KNOWN_SHARE = 3, 0.5


def solve(
    problem: Problem,
    schedules: Sequence[Schedule],
    judge: Judge,
    generator: torch.Generator,
    log: Log,
    *,
    disjoint: bool = False,
) -> Alignment:
    """Try the schedules in turn until the map is ok, and keep the best.

    Spaces that are declared `disjoint` are finished softly, without looking for pairs.
    """
    attempts: list[_Attempt] = []
    closeness = Closeness(problem)
    ground = None
    some_x = draw_rows(len(problem.x), FINISH_ROWS_OF_X, problem.seeds_x, generator)
    if _knows_enough(problem):
        first = schedules[0]
        schedules = (Schedule(anneal_rounds=0, whitening=first.whitening, finish_rounds=first.finish_rounds),)
    for number, schedule in enumerate(schedules, start=1):
        if not _worth_trying(schedule, attempts):
            continue
        described = f"attempt {number} of {len(schedules)}: {schedule.describe(len(problem.seeds_x))}"
        within = log.within(f"attempt-{number}", described)
        reading: Reading
        if schedule.anneal_rounds:
            if ground is None or not ground.serves(schedule):
                ground = _prepare(problem, schedule, generator, within)
            reading = within.once("annealed", CosineReading, partial(_first_reading, problem, ground, schedule, within))
        else:
            reading = fit_model(problem, problem.seeds_x, problem.seeds_y)
        part = _to_finish_on(problem, some_x, reading)
        rounds = min(_ROUNDS_TO_JUDGE, schedule.finish_rounds)
        finished = within.once("finished", Finished, partial(finish, part, reading, rounds, judge, within))
        opinion = judge.judge(part, finished.match)
        within.aside().report("health", number, len(schedules), score=opinion.score)
        close = 0.0 if opinion.significant else _closest(part, finished.match, reading, closeness)[0]
        attempts.append(_Attempt(part, reading, finished, opinion, close, schedule, within))
    return _finish_best(problem, _best(attempts), judge, generator, closeness, disjoint=disjoint)


def _finish_best(
    problem: Problem,
    chosen: _Attempt,
    judge: Judge,
    generator: torch.Generator,
    closeness: Closeness,
    *,
    disjoint: bool,
) -> Alignment:
    """Finish the chosen attempt: on its own rows until they settle, then softly or on all rows, where needed."""
    part, best, recognised, log = chosen.part, chosen.finished, chosen.opinion.recognised, chosen.log
    rounds_left = chosen.schedule.finish_rounds - _ROUNDS_TO_JUDGE
    if not best.settled and rounds_left > 0:
        reading = fit_model(part, *known_and_found(part, best.match))
        share = best.match.mutual_share
        further = partial(finish, part, reading, rounds_left, judge, log, share_before=share)
        best = log.once("further", Finished, further)
        recognised = judge.judge(part, best.match).recognised
    if disjoint or (recognised < _FEW_RECOGNISED and not _knows_enough(problem)):
        sample = problem.sample(SOFT_ROWS, generator)
        _, cross = _closest(part, best.match, chosen.reading, closeness)
        rotation = nearest_rotation(cross.double()).float()
        best = log.once("soft", Finished, partial(finish_softly, problem, sample, rotation, judge, log))
    elif part is not problem:
        reading = fit_model(part, *known_and_found(part, best.match))
        rounds = chosen.schedule.finish_rounds
        best = log.once("all", Finished, partial(finish, problem, reading, rounds, judge, log))
    return Alignment(
        best.match, best.settled, chosen.schedule.whitening, candidates=best.candidates, rotation=best.rotation
    )


def _to_finish_on(problem: Problem, some_x: Tensor, reading: Reading) -> Problem:
    """The problem; if it is large, some rows (k,) of X and the rows of Y nearest to them by a first reading.

    This gives an equally good model at bounded cost: rows of X lose rivals, but the rows of Y that they might take for
    their counterparts are all there.
    """
    if max(len(problem.x), len(problem.y)) <= FINISH_ROWS:
        return problem
    queries = reading.shared_x(problem.take_x(some_x))
    _, nearest = nearest_of(queries, problem.y, _LIKELY, problem.budget, reading.shared_y)
    return problem.part(some_x, torch.unique(torch.cat([nearest.flatten(), problem.seeds_y])))


def _closest(part: Problem, match: Match, reading: Reading, closeness: Closeness) -> tuple[float, Tensor]:
    """How close an attempt brings the spaces, and the cross moment (dx, dy) that does so.

    It is that of the mutual pairs at the end or that of the annealed rotation, whichever brings the spaces closer.
    """
    crosses = [pair_cross(part, *known_and_found(part, match))]
    if isinstance(reading, CosineReading):
        crosses.append(implied_cross(closeness.sample, reading))
    return max(((closeness.of(cross), cross) for cross in crosses), key=lambda close: close[0])


class _Attempt(NamedTuple):
    """An attempt: its rows, first reading and result, how good and how close that is, its schedule and its log."""

    part: Problem
    reading: Reading
    finished: Finished
    opinion: Opinion
    closeness: float
    schedule: Schedule
    log: Log


def _knows_enough(problem: Problem) -> bool:
    """Whether the seeds alone determine the model, so that nothing needs to be annealed."""
    known, rows = len(problem.seeds_x), min(len(problem.x), len(problem.y))
    enough = min(_PAIRS_PER_DIM * min(problem.dims), _KNOWN_SHARE * rows)
    return known >= max(enough, ENOUGH_KNOWN)


def _worth_trying(schedule: Schedule, attempts: Sequence[_Attempt]) -> bool:
    """Whether an attempt may still improve on those made before."""
    if not attempts or not (best := _best(attempts)).opinion.ok:
        return True
    if not best.opinion.significant:  # then slower attempts may do better
        return best.opinion.score < _GOOD
    # What just worked may work better on whitened spaces; annealing both ways may correct what was half right.
    twin = schedule.whitening > 0 and replace(schedule, whitening=0.0) == best.schedule
    first_both_ways = schedule.both_ways and not any(attempt.schedule.both_ways for attempt in attempts)
    return (twin or first_both_ways) and best.opinion.score < _SURE


def _best(attempts: Sequence[_Attempt]) -> _Attempt:
    """The attempt with the best score among those after which rows recognise each other.

    If there are none, the one that brings the spaces closest: scores of vague maps say little and are often all 0, so
    they only decide between equally close attempts.
    """
    significant = [attempt for attempt in attempts if attempt.opinion.significant]
    closest = max(attempt.closeness for attempt in attempts)
    as_close = [attempt for attempt in attempts if attempt.closeness > closest - _AS_CLOSE]
    return max(significant or as_close, key=lambda attempt: attempt.opinion.score)


@dataclass(frozen=True)
class _AnnealingGround:
    """What annealing works on: a sample of the problem, its leading axes, and its rows in shared coordinates.

    `sample` is the `plain` sample whitened by the matrices (dx, dx) and (dy, dy); the two are the same at strength 0.
    """

    schedule: Schedule
    plain: Problem
    sample: Problem
    whitening_x: Tensor
    whitening_y: Tensor
    axes_x: Tensor
    axes_y: Tensor
    shared: SharedCoordinates

    def serves(self, schedule: Schedule) -> bool:
        """Whether another schedule can use the same ground."""
        return all(
            getattr(self.schedule, name) == getattr(schedule, name)
            for name in ("sample_size", "rank", "fingerprints", "whitening", "hints")
        )


def _prepare(problem: Problem, schedule: Schedule, generator: torch.Generator, log: Log) -> _AnnealingGround:
    draw = dense_sample if schedule.fingerprints and schedule.hints else Problem.sample
    plain = draw(problem, schedule.sample_size, generator)
    sample = plain.whitened(schedule.whitening)
    axes_x, axes_y = (leading_axes(rows, schedule.rank) for rows in (sample.x, sample.y))
    start = partial(
        shared_coordinates,
        sample,
        with_fingerprints=schedule.fingerprints,
        log=log,
        whitenings=WHITENINGS if schedule.hints else _WHITENINGS_TO_START,
    )
    shared = log.once("start", SharedCoordinates, start)
    return _AnnealingGround(schedule, plain, sample, *plain.whitenings(schedule.whitening), axes_x, axes_y, shared)


def _first_reading(problem: Problem, ground: _AnnealingGround, schedule: Schedule, log: Log) -> CosineReading:
    """The reading by a rotation that annealing finds on the sample, in the leading axes."""
    sample = ground.sample
    if schedule.components:  # whitened to several strengths there
        return read_by_components(problem, ground.plain, ground.shared, schedule, log)
    x, y = unit(sample.x @ ground.axes_x), unit(sample.y @ ground.axes_y)
    start = rotation_at_start(ground.shared, x, y, sample)
    hints = (ground.shared.x, ground.shared.y) if schedule.fingerprints and schedule.hints else None
    found = anneal(sample, x, y, start, schedule, log, hints, until_sharp=True)
    return CosineReading(*found.places(ground.whitening_x @ ground.axes_x, ground.whitening_y @ ground.axes_y))

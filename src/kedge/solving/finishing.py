"""Finishing: hard matches and pair models in turn, over all axes; or soft to the end, where few items are shared."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kedge.geometry import unit
from kedge.matching import Candidates, CosineReading, Match, Problem, Reading, compare
from kedge.models.pair_fitting import fit_model, known_and_found
from kedge.models.pair_model import PairModel
from kedge.solving.alignment import Judge
from kedge.solving.annealing import anneal
from kedge.solving.schedule import Schedule
from kedge.solving.steps import Log

PAIRS_PER_DIM = 2
"""With fewer probable pairs per dimension, all mutual ones are learned from: most of them lead to a neighbour of the
counterpart, if not to itself, and many of them say more than a few that are right.
"""

# The soft finish: a rotation only, cold from the start (warm rounds forget what annealing has found), until it stands
# still; at most so many times over all rows. On a CPU, where minutes count, rows take turns, so that a round compares
# at most so many pairs of rows, and all rounds together so many.
_SOFT_TURNS, _COOL, _COLD = 60, 0.02, 0.015
_PAIRS_PER_ROUND, _PAIRS_IN_ALL = 2e8, 1.2e10
# The hard finish stops when the share of mutual pairs moves by less.
_SETTLED = 0.002
# Where fewer rows have the partner that they have among all, candidates are looked for again.
_MIN_CANDIDATE_RECALL = 0.99


@dataclass(frozen=True)
class Finished:
    """A match of the rows that were gone over, and whether the rounds settled.

    `candidates` are those that were compared, where not all rows were; `rotation` (dx, dy) is what a soft finish
    matched by.
    """

    match: Match
    settled: bool
    candidates: Candidates | None = None
    rotation: Tensor | None = None


def finish(
    problem: Problem, reading: Reading, rounds: int, judge: Judge, log: Log, *, share_before: float = math.inf
) -> Finished:
    """Hard rounds over all axes, from a first reading, until the share of mutual pairs settles.

    Each matches the rows as they are read, and fits the pair model to the pairs that are probably right, by which the
    next round reads; to all mutual pairs, where such are few. `share_before` is that of the match which the first
    reading was fitted to, if there was one. Candidates, where not all rows are compared, are looked for in the first
    round, and once more when the share has settled, or halfway, if by then too few rows have the partner that they have
    among all.
    """
    candidates, again, share = None, False, share_before
    for index in range(1, rounds + 1):
        compared = compare(problem, reading, candidates)
        candidates = compared.candidates
        match = compared.match()
        previous, share = share, match.mutual_share
        log.report("finish", index, rounds, mutual=share)
        settled = share > 0 and abs(share - previous) < _SETTLED
        if index == rounds:
            break
        if settled or index == rounds // 2:
            recall = None if again else compared.candidate_recall(match)
            if recall is not None and recall.share < _MIN_CANDIDATE_RECALL:
                again, candidates = True, None
            elif settled:
                break
        near = reading.ridge if isinstance(reading, PairModel) else None
        reading = next_reading(problem, match, judge.probable(compared, match), near)
    return Finished(match, settled, candidates)


def next_reading(problem: Problem, match: Match, probable: Tensor, near: float | None = None) -> PairModel:
    """The pair model of the seeds and the pairs in a mask (n,) of rows; of all mutual pairs, where these are few.

    Its ridge is `near` that of the model before: between rounds a model changes little.
    """
    enough = int(probable.sum()) >= PAIRS_PER_DIM * min(problem.dims)
    return fit_model(problem, *known_and_found(problem, match, probable if enough else None), near)


def finish_softly(problem: Problem, sample: Problem, rotation: Tensor, judge: Judge, log: Log) -> Finished:
    """The match by a rotation (dx, dy) that is improved over all axes of a sample, but never by hard pairs.

    Where few items are shared, mutual pairs lead to neighbours of counterparts that are not there. A rotation fitted to
    soft matches, both ways, averages over such neighbours; anything more flexible, or sharper, learns them by heart.
    """
    pairs = len(sample.x) * len(sample.y)
    parts, turns = 1, _SOFT_TURNS
    if problem.device.type == "cpu":
        parts, turns = math.ceil(pairs / _PAIRS_PER_ROUND), min(turns, math.ceil(_PAIRS_IN_ALL / pairs))
    schedule = Schedule(
        anneal_rounds=parts * turns, epsilon_start=_COOL, epsilon_end=_COLD, parts=parts, both_ways=True
    )
    found = anneal(
        sample, unit(sample.x), unit(sample.y), rotation, schedule, log, fade=False, until_still=True
    ).rotation
    improved = CosineReading(found, torch.eye(problem.dims[1], dtype=found.dtype, device=found.device))
    return replace(finish(problem, improved, 1, judge, log), settled=True, rotation=found)

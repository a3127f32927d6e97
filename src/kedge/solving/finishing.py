"""Finishing: alternate hard matches and pair models over all axes, or stay soft where few items are shared."""

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
"""With fewer probable pairs per dimension, the model is fitted to all mutual pairs.

Most of those lead to the counterpart or to a neighbour of it, and many such pairs say more than a few right ones.
"""

# The soft finish fits a rotation only, cold from the start (warm rounds forget what annealing found), until it stands
# still or has gone over all rows this many times. On a CPU, where it would take long, rows take turns, so that both a
# single round and all rounds together compare a bounded number of pairs of rows.
_SOFT_TURNS, _COOL, _COLD = 60, 0.02, 0.015
_PAIRS_PER_ROUND, _PAIRS_IN_ALL = 2e8, 1.2e10
# The hard finish stops when the share of mutual pairs changes by less than this.
_SETTLED = 0.002
# If a smaller share of rows has the partner of an exact comparison, candidates are looked for again.
_MIN_CANDIDATE_RECALL = 0.99


@dataclass(frozen=True)
class Finished:
    """The match that finishing ends with, and whether the rounds settled.

    `candidates` is set if not all rows were compared with all; `rotation` (dx, dy) is what a soft finish matched by.
    """

    match: Match
    settled: bool
    candidates: Candidates | None = None
    rotation: Tensor | None = None


def finish(
    problem: Problem, reading: Reading, rounds: int, judge: Judge, log: Log, *, share_before: float = math.inf
) -> Finished:
    """Hard rounds over all axes, from a first reading, until the share of mutual pairs settles.

    Each round matches the rows and fits the pair model, by which the next round reads, to the pairs that are probably
    right, or to all mutual pairs where those are few. `share_before` is the mutual share of the match that the first
    reading was fitted to, if there was one. Where not all rows are compared with all, candidates are looked for in the
    first round, and once more when the share has settled, or halfway, if by then too few rows have their exact partner.
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
    """The pair model of the seeds and the probable pairs, a mask (n,) of rows; of all mutual pairs where these are few.

    Its ridge is that of the previous model, `near`, or a neighbour of it: between rounds a model changes little.
    """
    enough = int(probable.sum()) >= PAIRS_PER_DIM * min(problem.dims)
    return fit_model(problem, *known_and_found(problem, match, probable if enough else None), near)


def finish_softly(problem: Problem, sample: Problem, rotation: Tensor, judge: Judge, log: Log) -> Finished:
    """Match by a rotation (dx, dy) that is first improved on a sample, in all axes, but never by hard pairs.

    Where few items are shared, mutual pairs lead to neighbours of missing counterparts. A rotation fitted to soft
    matches in both directions averages over such neighbours; anything more flexible, or sharper, overfits to them.
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

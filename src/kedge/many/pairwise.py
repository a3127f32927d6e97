"""Align one pair of spaces, by itself or from what its neighbours know, as far as many spaces need it.

No anchors are chosen and no maps compared here: the maps of all spaces are fitted to all pairs together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kedge.estimators.devices import Loaded
from kedge.geometry import nearest_rotation
from kedge.judging.answers import judge_by_known
from kedge.judging.confidence import Confidence, measure_confidence
from kedge.judging.doubtful_seeds import rows_closer, suspect_seeds
from kedge.judging.judge import Judgement, LabelFreeJudge
from kedge.judging.recognition import PROBABLE
from kedge.many.numerics.loops import Link
from kedge.matching import DEFAULT_BUDGET, Problem, Reading, exact_is_quick
from kedge.models.cross_fitting import cross_fitted
from kedge.models.maps.choosing import Centers
from kedge.models.pair_fitting import known_and_found, pair_moments
from kedge.models.soft_pairs import soft_cross
from kedge.solving.alignment import Alignment
from kedge.solving.attempts import solve
from kedge.solving.finishing import PAIRS_PER_DIM, finish, finish_softly
from kedge.solving.schedule import SOFT_ROWS, Schedule, schedules_for
from kedge.solving.steps import Log

How = Literal["alone", "through neighbours", "not run"]
"""How a pair of spaces was aligned; one that was not run is aligned by all others."""


@dataclass(frozen=True)
class PairOutcome:
    """The result of aligning two spaces.

    `partner` (n,) is the match of all rows of the first space; `partner_back` (m,) holds for each row of the second the
    row of the first that it is mutual with, or -1. `pairs` (p, 2) are rows that are probably one item, seeds first.
    Rotations are fitted to `cross` (ds, dt): the cross moment of the pairs, plus, if these are too few to learn from
    (`soft`), that of the soft pairs of all rows.
    """

    how: How
    judged: Judgement
    partner: Tensor
    partner_back: Tensor
    pairs: Tensor
    cross: Tensor
    soft: bool

    @property
    def link(self) -> Link:
        """The match from the first space to the second, as a link of a loop."""
        return Link(self.partner, _sure(self.pairs, len(self.partner)))

    @property
    def link_back(self) -> Link:
        """The match from the second space to the first, as a link of a loop."""
        return Link(self.partner_back, _sure(self.pairs.flip(1), len(self.partner_back)))

    @property
    def ok(self) -> bool:
        """Whether the map was judged to be right."""
        return self.judged.ok


def problem_of(first: Loaded, second: Loaded, seeds: Tensor) -> Problem:
    """The matching problem of two spaces and their seeds (s, 2)."""
    exact = exact_is_quick(len(first.rows), len(second.rows), first.rows.device)
    spectra = (first.spectrum, second.spectrum)
    seeds_x, seeds_y = (rows.contiguous().to(first.rows.device) for rows in seeds.T)
    return Problem(
        first.rows,
        second.rows,
        seeds_x,
        seeds_y,
        DEFAULT_BUDGET,
        first.center is not None,
        exact,
        spectra,
    )


def align_alone(
    first: Loaded, second: Loaded, seeds: Tensor, random_state: int, log: Log, *, disjoint: bool
) -> PairOutcome:
    """Align two spaces from their seeds (s, 2), or from nothing."""

    def find(problem: Problem, judge: LabelFreeJudge, generator: torch.Generator) -> Alignment:
        schedules = schedules_for(len(seeds), None, max(len(first.rows), len(second.rows)))
        return solve(problem, schedules, judge, generator, log, disjoint=disjoint)

    return _align("alone", first, second, seeds, random_state, log, find, disjoint=disjoint)


def align_from(
    first: Loaded, second: Loaded, seeds: Tensor, reading: Reading, random_state: int, log: Log, *, disjoint: bool
) -> PairOutcome:
    """Align two spaces starting from a reading of them that other pairs have led to."""

    def find(problem: Problem, judge: LabelFreeJudge, generator: torch.Generator) -> Alignment:
        finished = finish(problem, reading, Schedule().finish_rounds, judge, log)
        if disjoint:
            cross = pair_moments(problem, *known_and_found(problem, finished.match)).cross
            sample = problem.sample(SOFT_ROWS, generator)
            finished = finish_softly(problem, sample, nearest_rotation(cross).float(), judge, log)
        return Alignment(finished.match, finished.settled, candidates=finished.candidates)

    return _align("through neighbours", first, second, seeds, random_state, log, find, disjoint=disjoint)


def _align(
    how: How,
    first: Loaded,
    second: Loaded,
    seeds: Tensor,
    random_state: int,
    log: Log,
    find: Callable[[Problem, LabelFreeJudge, torch.Generator], Alignment],
    *,
    disjoint: bool,
) -> PairOutcome:
    problem = problem_of(first, second, seeds)
    generator = torch.Generator().manual_seed(random_state)
    judge = LabelFreeJudge(problem, random_state, log.aside(), disjoint=disjoint)
    alignment = find(problem, judge, generator)
    judged = judge.judge(problem, alignment.match)
    judged = judge_by_known(problem, judged, Centers(first.center_in_axes, second.center_in_axes))
    honest = cross_fitted(
        problem, *known_and_found(problem, alignment.match), generator, candidates=alignment.candidates
    )
    suspects = suspect_seeds(problem, rows_closer(problem, honest.x, honest.y)) & (judged.verdict == "ok")
    trusted = problem.without_seeds(suspects)
    confidence = measure_confidence(
        problem,
        honest,
        alignment.match.partner,
        (trusted.seeds_x, trusted.seeds_y),
        judged,
        log.aside(),
        disjoint=disjoint,
    )
    pairs = _probable(trusted, confidence)
    cross = pair_moments(trusted, pairs[:, 0], pairs[:, 1]).cross
    soft = len(pairs) < PAIRS_PER_DIM * min(problem.dims)
    unknown = len(trusted.seeds_x) < min(len(problem.x), len(problem.y))  # a side without other rows has no soft pairs
    if soft and unknown and judged.verdict != "failed":
        mutual = pair_moments(trusted, *known_and_found(trusted, confidence.match)).cross
        cross = cross + soft_cross(trusted.sample(SOFT_ROWS, generator), nearest_rotation(mutual))
    match = confidence.match
    partner_back = torch.full((len(problem.y),), -1, dtype=torch.int64, device=problem.device)
    partner_back[match.partner[match.mutual]] = match.mutual.nonzero(as_tuple=True)[0]
    return PairOutcome(how, judged, match.partner, partner_back, pairs, cross, soft)


def _sure(pairs: Tensor, count: int) -> Tensor:
    """The partners (n,) of `count` rows in pairs (p, 2), -1 for the others."""
    found = torch.full((count,), -1, dtype=torch.int64, device=pairs.device)
    found[pairs[:, 0]] = pairs[:, 1]
    return found


def _probable(trusted: Problem, confidence: Confidence) -> Tensor:
    """The seeds, followed by the mutual pairs of other rows that are probably right (p, 2)."""
    probable = torch.from_numpy(confidence.paired >= PROBABLE).to(trusted.device)
    return torch.stack(known_and_found(trusted, confidence.match, probable), dim=1)

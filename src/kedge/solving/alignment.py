"""What a method returns, and what pairs imply: their moments, the map, the pair model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kedge.geometry import Moments, PairModel, fit_pair_model, moments_of, nearest_rotation, refine_rotation, unit
from kedge.matching import Candidates, Match, Rows, processes
from kedge.matching.problem import Problem
from kedge.solving.steps import Step

# The rotation counts as this many pairs a dimension when the map is refined.
_PRIOR_PAIRS_PER_DIM = 2.0
# Of fewer pairs no correlation can be held out: the rotation they imply is all they give.
_FEWEST_FOR_A_MODEL = 20
# What all directions of such a rotation are taken to correlate by: little, so that likelihood is all but cosine.
_SLIGHT = 0.01
# Pairs whose rows are side by side in memory at once.
_PAIRS = 16_384


@dataclass(frozen=True)
class Alignment:
    """The match of all rows that a method ends with.

    `whitening` is the strength to which the spaces were whitened when it was found; `free_anchors` (a, dy) are there
    where the method itself places them; `candidates` are there where only such were compared.
    """

    match: Match
    history: tuple[Step, ...]
    converged: bool
    whitening: float = 0.0
    free_anchors: Tensor | None = None
    candidates: Candidates | None = None


class Reading(Protocol):
    """Anything that sends the rows of both spaces to coordinates in which an inner product is their similarity.

    The last `biases` coordinates are numbers that a row has whatever it is compared with.
    """

    @property
    def biases(self) -> int:
        """How many."""

    def shared_x(self, rows: Tensor) -> Tensor:
        """Coordinates (n, c) of rows (n, dx)."""

    def shared_y(self, rows: Tensor) -> Tensor:
        """Coordinates (m, c) of rows (m, dy)."""


@dataclass(frozen=True)
class Turned:
    """The reading by cosine: rows multiplied by (dx, c) and (dy, c)."""

    matrix_x: Tensor
    matrix_y: Tensor
    biases: int = 0

    def shared_x(self, rows: Tensor) -> Tensor:
        """Unit rows (n, c)."""
        return unit(rows @ self.matrix_x)

    def shared_y(self, rows: Tensor) -> Tensor:
        """Unit rows (m, c)."""
        return unit(rows @ self.matrix_y)


def read_rows(problem: Problem, reading: Reading) -> tuple[Rows, Rows]:
    """All rows of both spaces in the coordinates of a reading."""
    return problem.x.sent(reading.shared_x), problem.y.sent(reading.shared_y)


def known_and_found(problem: Problem, match: Match, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The seeds, and the mutual pairs that touch none of their rows, as rows (p,) of X and of Y.

    Of the pairs only those of rows in a mask (n,), if one is given.
    """
    rows_x, rows_y = match.pairs()
    free = ~(torch.isin(rows_x, problem.seeds_x) | torch.isin(rows_y, problem.seeds_y))
    if which is not None:
        free &= which[rows_x]
    return torch.cat([problem.seeds_x, rows_x[free]]), torch.cat([problem.seeds_y, rows_y[free]])


def fit_model(problem: Problem, rows_x: Tensor, rows_y: Tensor, ridge: float | None = None) -> PairModel:
    """The pair model that pairs (p,) of rows imply, the same in every process."""
    halves = halves_of(problem, rows_x, rows_y)
    if len(rows_x) < _FEWEST_FOR_A_MODEL:
        model = _rotation_model((halves[0] + halves[1]).cross)
    else:
        model = fit_pair_model(problem.spectrum_x, problem.spectrum_y, halves, ridge)
    here = processes()
    return PairModel(
        here.from_first(model.directions_x),
        here.from_first(model.directions_y),
        here.from_first(model.correlations),
        model.ridge,
    )


def halves_of(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> tuple[Moments, Moments]:
    """Moments of two halves of the pairs, drawn at random but always alike."""
    order = torch.randperm(len(rows_x), generator=torch.Generator().manual_seed(0)).to(rows_x.device)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    return pair_moments(problem, rows_x[first], rows_y[first]), pair_moments(problem, rows_x[second], rows_y[second])


def _rotation_model(cross: Tensor) -> PairModel:
    rotation = nearest_rotation(cross)
    return PairModel(
        rotation,
        torch.eye(rotation.shape[1], dtype=rotation.dtype, device=rotation.device),
        torch.full((rotation.shape[1],), _SLIGHT, dtype=rotation.dtype, device=rotation.device),
        ridge=0.0,
    )


def fit_map(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> Tensor:
    """The map (dx, dy) that pairs imply: a rotation, refined as far as the pairs support it."""
    return processes().from_first(map_from(pair_moments(problem, rows_x, rows_y)).float())


def map_from(moments: Moments) -> Tensor:
    """The same from the moments of the pairs."""
    rotation = nearest_rotation(moments.cross)
    return refine_rotation(moments, rotation, _PRIOR_PAIRS_PER_DIM * len(rotation))


def pair_moments(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> Moments:
    """Moments of the rows (p,) of X and the rows (p,) of Y that they are paired with, over all processes."""
    x, own = problem.x, problem.x.span
    mine = (rows_x >= own.start) & (rows_x < own.stop)
    left, right = rows_x[mine] - own.start, rows_y[mine]
    total = moments_of(x.own[:0].float(), problem.y.own[:0].float())
    for first, part in problem.y.parts():
        here = (right >= first) & (right < first + len(part))
        rows, partners = left[here], right[here] - first
        for begin in range(0, len(rows), _PAIRS):
            some = slice(begin, begin + _PAIRS)
            total += moments_of(x.own[rows[some]].float(), part[partners[some]])
    source, cross, target = (processes().sum(sums) for sums in (total.source, total.cross, total.target))
    return Moments(source, cross, target)

"""What is computed from a list of pairs: their moments, and the pair model."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry import Moments, moments_of, nearest_rotation
from kedge.matching import Match, Problem
from kedge.models.pair_model import PairModel, fit_pair_model

# With fewer pairs correlations cannot be measured on held-out ones, and only a rotation is fitted.
_MIN_FOR_A_MODEL = 20
# The correlation assumed along all directions of such a rotation: so small that the likelihood is almost a cosine.
_SLIGHT = 0.01
# Pairs whose rows are gathered in memory at once.
_PAIRS = 16_384


def found_pairs(problem: Problem, match: Match, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The mutual pairs that share no row with a seed, as rows (p,) of X and of Y; only rows in a mask (n,) if given."""
    rows_x, rows_y = match.pairs()
    free = ~(torch.isin(rows_x, problem.seeds_x) | torch.isin(rows_y, problem.seeds_y))
    if which is not None:
        free &= which[rows_x]
    return rows_x[free], rows_y[free]


def known_and_found(problem: Problem, match: Match, which: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The seeds, then the found pairs, as rows (p,) of X and of Y."""
    rows_x, rows_y = found_pairs(problem, match, which)
    return torch.cat([problem.seeds_x, rows_x]), torch.cat([problem.seeds_y, rows_y])


def pair_moments(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> Moments:
    """Moments of the pairs of rows (p,) of X and rows (p,) of Y."""
    total = moments_of(problem.x[:0].float(), problem.y[:0].float())
    for begin in range(0, len(rows_x), _PAIRS):
        some = slice(begin, begin + _PAIRS)
        total += moments_of(problem.take_x(rows_x[some]), problem.take_y(rows_y[some]))
    return total


def pair_cross(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> Tensor:
    """Only the cross moment (dx, dy) of the pairs, in a third of the time."""
    total = torch.zeros(*problem.dims, dtype=torch.float64, device=problem.device)
    for begin in range(0, len(rows_x), _PAIRS):
        some = slice(begin, begin + _PAIRS)
        total += (problem.take_x(rows_x[some]).T @ problem.take_y(rows_y[some])).double()
    return total


def moments_of_halves(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> tuple[Moments, Moments]:
    """Moments of two random halves of the pairs, always the same ones."""
    order = torch.randperm(len(rows_x), generator=torch.Generator().manual_seed(0)).to(rows_x.device)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    return pair_moments(problem, rows_x[first], rows_y[first]), pair_moments(problem, rows_x[second], rows_y[second])


def fit_model(problem: Problem, rows_x: Tensor, rows_y: Tensor, near: float | None = None) -> PairModel:
    """Fit the pair model to pairs (p,) of rows; its ridge is sought `near` one, if given."""
    halves = moments_of_halves(problem, rows_x, rows_y)
    if len(rows_x) < _MIN_FOR_A_MODEL:
        return _rotation_model((halves[0] + halves[1]).cross)
    return fit_pair_model(problem.spectrum_x, problem.spectrum_y, halves, near=near)


def _rotation_model(cross: Tensor) -> PairModel:
    rotation = nearest_rotation(cross)
    return PairModel(
        rotation,
        torch.eye(rotation.shape[1], dtype=rotation.dtype, device=rotation.device),
        torch.full((rotation.shape[1],), _SLIGHT, dtype=rotation.dtype, device=rotation.device),
        ridge=0.0,
    )

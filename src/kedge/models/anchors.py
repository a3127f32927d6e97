"""Which rows of X serve as anchors, and which rows of Y stand for them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from kedge.errors import InputError
from kedge.geometry import Moments, ridge, unit
from kedge.matching import Problem, assign_distinct, row_pieces

AnchorChoice = Literal["random", "farthest"]

DEFAULT_COUNT = 300
"""The paper's number of anchors."""

# More than any similarity, so that no other anchor takes a seed's row of Y while others are free.
_TAKEN = 1e6
# Keeps directions in which Y hardly varies from dominating when free anchors are scaled to unit norm.
_ANCHOR_PENALTY = 1e-4


def choose_anchors(problem: Problem, count: int, how: AnchorChoice, generator: torch.Generator) -> Tensor:
    """`count` distinct rows (a,) of X: the seeds first, then others at random or far from all chosen so far.

    If there are at least as many seeds as anchors, they are a random sample of the seeds.
    """
    seeds = problem.seeds_x
    if count <= len(seeds):
        return seeds[torch.randperm(len(seeds), generator=generator)[:count].to(seeds.device)]
    if how == "farthest":
        return _farthest(problem.x, count, seeds, generator)
    free = torch.ones(len(problem.x), dtype=torch.bool)
    free[seeds.cpu()] = False
    others = free.nonzero(as_tuple=True)[0]
    drawn = others[torch.randperm(len(others), generator=generator)[: count - len(seeds)]]
    return torch.cat([seeds, drawn.to(seeds.device)])


def snap(
    problem: Problem, anchors: Tensor, estimates: Tensor, y: Tensor, column_penalty: Tensor | None = None
) -> Tensor:
    """Distinct rows (a,) of Y for the anchors; seeds keep their own row of Y.

    Parameters
    ----------
    anchors : Tensor, shape (a,)
        Rows of X.
    estimates : Tensor, shape (a, c)
        Their estimates, to be compared with `y` by inner product.
    y : Tensor, shape (m, c)
        The rows of Y in the same coordinates.
    column_penalty : Tensor, shape (m,), optional
        Subtracted from the similarity of each row of Y.
    """
    rows = problem.seed_partners(anchors)
    open_places = rows < 0
    if bool(open_places.any()):
        penalty = estimates.new_zeros(len(problem.y)) if column_penalty is None else column_penalty.clone()
        penalty[problem.seeds_y] = _TAKEN
        penalty[rows[~open_places]] = 2 * _TAKEN  # not even then: anchors are distinct
        rows[open_places] = assign_distinct(estimates[open_places], y, penalty, budget=problem.budget)
    return rows


def place_free_anchors(moments: Moments, anchors: Tensor) -> Tensor:
    """Unit vectors (a, dt) that give rows of the target the same relative coordinates as their partners, by ridge.

    Parameters
    ----------
    moments : Moments
        Of pairs of normalised rows of the source and the target.
    anchors : Tensor, shape (a, ds)
        Normalised rows of the source.
    """
    coordinates = moments.cross.T @ anchors.double().T  # of the target's rows with their partners' coordinates
    return unit(ridge(moments.target, coordinates, _ANCHOR_PENALTY).T.to(anchors.dtype))


def _farthest(x: Tensor, count: int, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Farthest-point sampling on the sphere: each next row is the one farthest from all before it."""
    rows = chosen.tolist()
    if not rows:
        rows = [int(torch.randint(len(x), (1,), generator=generator))]
    chosen = torch.tensor(rows, device=x.device)
    vectors = x[chosen].float()
    closest = torch.cat([(piece @ vectors.T).amax(dim=1) for piece in row_pieces(x)])
    closest[rows] = torch.inf
    while len(rows) < count:
        rows.append(int(closest.argmin()))
        newest = x[rows[-1]].float()
        closest = torch.maximum(closest, torch.cat([piece @ newest for piece in row_pieces(x)]))
        closest[rows[-1]] = torch.inf
    return torch.tensor(rows, device=x.device)


def anchor_count(wanted: int | None, maximum: int, name: str) -> int:
    """The number of anchors, checked: they are distinct rows on both sides, so at most `maximum`, the smaller space's.

    None means the default, or `maximum` if that is less; `name` is what messages call the number.
    """
    if wanted is None:
        return min(DEFAULT_COUNT, maximum)
    if not 1 <= wanted <= maximum:
        raise InputError(f"{name} must be between 1 and the rows of the smaller space ({maximum}), got {wanted}")
    return wanted

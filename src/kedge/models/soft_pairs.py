"""What rows softly correspond to: all that a map can be fitted to where few items are shared.

There the mutual pairs lead to neighbours of counterparts that are not there. Averaged over all its neighbours, by an
entropic plan, a row has a target that is right on the whole, in either direction. Of such targets only the cross moment
is used, for they are shorter than rows are and a regression would learn that; and only by a rotation that is coloured,
which has little to learn by heart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry import coloured_rotation, unit
from kedge.matching import Rows, processes, transport_step
from kedge.matching.problem import Problem

PAIRS_PER_ROW = 0.5
"""A row and its soft target count as so many known pairs."""

_ROUNDS, _EPSILON = 4, 0.03


def soft_cross(sample: Problem, start: Tensor) -> Tensor:
    """The cross moment (dx, dy) of rows with what they softly correspond to, as that of known pairs weighs.

    It begins with a map (dx, dy), and in each round takes the coloured rotation that it and the seeds imply. The seeds'
    own rows are left out: they can be held out, where they are many.
    """
    x, y = (
        _without(rows.gathered(), seeds) for rows, seeds in ((sample.x, sample.seeds_x), (sample.y, sample.seeds_y))
    )
    seeds = (sample.x.take(sample.seeds_x).T @ sample.y.take(sample.seeds_y)).double()
    matrix = start.to(x.dtype)
    forth, back = y.new_zeros(len(y)), x.new_zeros(len(x))
    for _ in range(_ROUNDS):
        carried = unit(x @ matrix)
        to_y = transport_step(Rows.shared(carried), y, forth, _EPSILON, budget=sample.budget)
        to_x = transport_step(Rows.shared(y), carried, back, _EPSILON, values=x, budget=sample.budget)
        forth, back = to_y.potential, to_x.potential
        mean = _summed(Rows.shared(x).own, to_y.targets) / len(x) + _summed(to_x.targets, Rows.shared(y).own) / len(y)
        cross = PAIRS_PER_ROW * min(len(x), len(y)) * mean / 2
        found = coloured_rotation(sample.spectrum_x, sample.spectrum_y, cross + seeds)
        matrix = processes().from_first(found.to(x.dtype))
    return processes().from_first(cross)


def _without(rows: Tensor, seeds: Tensor) -> Tensor:
    kept = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    kept[seeds] = False
    return rows[kept]


def _summed(left: Tensor, right: Tensor) -> Tensor:
    """Sum (dx, dy) over the rows of all processes."""
    return processes().sum((left.T @ right).double())

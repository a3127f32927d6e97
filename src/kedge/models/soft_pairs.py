"""What rows softly correspond to: all that a map can be fitted to where few items are shared.

There the mutual pairs lead to neighbours of counterparts that are not there. Averaged over all its neighbours, by an
entropic plan, a row has a target that is right on the whole, in either direction. Of such targets only the cross moment
is used, for they are shorter than rows are and a regression would learn that; and only by a whiten-rotate-recolor map,
which has little to learn by heart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry import recolored_rotation, unit
from kedge.matching import Problem, transport_step

PAIRS_PER_ROW = 0.5
"""A row and its soft target count as so many known pairs."""

_ROUNDS, _EPSILON = 4, 0.02


def soft_cross(sample: Problem, start: Tensor) -> Tensor:
    """The cross moment (dx, dy) of rows with what they softly correspond to, weighted as that of known pairs.

    It begins with a map (dx, dy), and in each round takes the map that it and the seeds imply. The seeds' own rows are
    left out: they can be held out, where they are many.
    """
    x, y = unit(_without(sample.x, sample.seeds_x)), unit(_without(sample.y, sample.seeds_y))
    seeds = (sample.take_x(sample.seeds_x).T @ sample.take_y(sample.seeds_y)).double()
    matrix = start.to(x.dtype)
    forth, back = y.new_zeros(len(y)), x.new_zeros(len(x))
    for _ in range(_ROUNDS):
        mapped = unit(x @ matrix)
        to_y = transport_step(mapped, y, forth, _EPSILON, budget=sample.budget)
        to_x = transport_step(y, mapped, back, _EPSILON, values=x, budget=sample.budget)
        forth, back = to_y.potential, to_x.potential
        mean = (x.T @ to_y.targets).double() / len(x) + (to_x.targets.T @ y).double() / len(y)
        cross = PAIRS_PER_ROW * min(len(x), len(y)) * mean / 2
        matrix = recolored_rotation(sample.spectrum_x, sample.spectrum_y, cross + seeds).to(x.dtype)
    return cross


def _without(rows: Tensor, seeds: Tensor) -> Tensor:
    kept = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    kept[seeds] = False
    return rows[kept]

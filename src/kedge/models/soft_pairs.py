"""Soft pairs: what rows softly correspond to, which a map is fitted to if few items are shared.

In that case mutual pairs lead to neighbours of counterparts that are missing. Averaged over all its neighbours, by an
entropic plan, a row has a target that is right on the whole, in either direction. Only the cross moment of such targets
is used, because they are shorter than rows and a regression would learn that; and only for a whiten-rotate-recolor map,
which has too few parameters to overfit much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.geometry import recolored_rotation, unit
from kedge.matching import Problem, transport_step

PAIRS_PER_ROW = 0.5
"""How many known pairs a row and its soft target count as."""

_ROUNDS, _EPSILON = 4, 0.02


def soft_cross(sample: Problem, start: Tensor) -> Tensor:
    """The cross moment (dx, dy) of rows with their soft targets, on the same scale as that of known pairs.

    The first round uses the map `start` (dx, dy), and every other round the map that the last cross moment and the
    seeds imply. The seeds' own rows are left out, so that seeds can be held out if they are many.
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

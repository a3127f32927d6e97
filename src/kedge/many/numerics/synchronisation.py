"""Synchronisation: one rotation per space into a common one, from what is known between pairs of spaces.

Pairs (s, t) of spaces have cross moments M_st (ds, dt), sums over pairs of rows. Wanted are Q_s with orthonormal rows
or columns that maximise the sum of tr(Q_s^T M_st Q_t): generalised Procrustes. A pair that is sure brings many rows,
and so counts for more; a space that is paired with one other only still gets its place, through it. The start is
spectral (the leading eigenvectors of all M_st side by side), and then each rotation in turn is the best given the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation
from kedge.geometry.eigen import eigh

Crosses = Mapping[tuple[int, int], Tensor]
"""Matrices (ds, dt) by the numbers s < t of two spaces."""

_ROUNDS, _SETTLED = 30, 1e-5


def synchronise(crosses: Crosses, dims: Sequence[int]) -> list[Tensor]:
    """Rotations Q_s (ds, d), d the largest dimension, that fit all cross moments (ds, dt) best.

    Every space must be connected with the others by some; Q_s Q_t^T then takes rows of s to where those of t are.
    """
    start = leading_blocks(crosses, dims, max(dims))
    rotations = [nearest_rotation(block) for block in start]
    before = -torch.inf
    for _ in range(_ROUNDS):
        for space in range(len(dims)):
            rotations[space] = nearest_rotation(_pull(crosses, rotations, space))
        value = sum(float((rotations[s] * (cross @ rotations[t])).sum()) for (s, t), cross in crosses.items())
        if value - before <= _SETTLED * abs(value):
            break
        before = value
    return rotations


def rotation_into(crosses: Mapping[int, Tensor], rotations: Sequence[Tensor]) -> Tensor:
    """The rotation (d, D) of one more space, of which these are the cross moments (d, dt) with others that stay put."""
    return nearest_rotation(torch.stack([cross @ rotations[t] for t, cross in crosses.items()]).sum(dim=0))


def leading_blocks(crosses: Crosses, dims: Sequence[int], count: int) -> list[Tensor]:
    """The leading `count` eigenvectors of the symmetric matrix whose blocks are the crosses, one block (ds, count) per
    space; its diagonal blocks are zero.
    """
    ends = torch.tensor([0, *dims]).cumsum(dim=0).tolist()
    places = [slice(begin, end) for begin, end in pairwise(ends)]
    example = next(iter(crosses.values()))
    whole = torch.zeros(ends[-1], ends[-1], dtype=example.dtype, device=example.device)
    for (s, t), cross in crosses.items():
        whole[places[s], places[t]] = cross
        whole[places[t], places[s]] = cross.T
    vectors = eigh(whole)[1].flip(1)[:, :count]
    return [vectors[place] for place in places]


def _pull(crosses: Crosses, rotations: Sequence[Tensor], space: int) -> Tensor:
    """Where the others' rotations would have a space's rows (ds, d)."""
    total = torch.zeros_like(rotations[space])
    for (s, t), cross in crosses.items():
        if s == space:
            total += cross @ rotations[t]
        elif t == space:
            total += cross.T @ rotations[s]
    return total

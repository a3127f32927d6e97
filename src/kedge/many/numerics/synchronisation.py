"""Synchronisation: one rotation per space into a common one, from what is known between pairs of spaces.

Pairs (s, t) of spaces have cross moments M_st (ds, dt), sums over pairs of rows. We look for Q_s with orthonormal rows
or columns that maximise the sum of tr(Q_s^T M_st Q_t): generalised Procrustes. Pairs of spaces with many sure rows
weigh more, and a space that is paired with only one other still gets its place through it. The start is spectral (the
leading eigenvectors of the block matrix of all M_st); then each rotation in turn is set to the best given the others.
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
    """Rotations Q_s (ds, d), where d is the largest dimension, that fit all cross moments (ds, dt) best.

    The cross moments must connect all spaces; Q_s Q_t^T then maps rows of s to their counterparts in t.
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
    """The rotation (d, D) of one more space, given its cross moments (d, dt) with spaces whose rotations are fixed."""
    return nearest_rotation(torch.stack([cross @ rotations[t] for t, cross in crosses.items()]).sum(dim=0))


def leading_blocks(crosses: Crosses, dims: Sequence[int], count: int) -> list[Tensor]:
    """The leading `count` eigenvectors of the symmetric block matrix of the crosses, as a block (ds, count) per space.

    Its diagonal blocks are zero.
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
    """The sum (ds, d) of the space's cross moments with the rotated others; its nearest rotation is the update."""
    total = torch.zeros_like(rotations[space])
    for (s, t), cross in crosses.items():
        if s == space:
            total += cross @ rotations[t]
        elif t == space:
            total += cross.T @ rotations[s]
    return total

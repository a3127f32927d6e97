"""Islands: spaces that hold together, while no pair of one of them with one of the others is ok.

What two spaces show may be too little to find the map between them: few rows, few seeds, little in common. Two islands
show more. The rows of an island, translated into one of its spaces, are a larger space, with one row for every group,
and its seeds have been seen by several encoders; two such spaces are aligned like any two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.estimators.devices import Loaded, load_space, to_numpy
from kedge.geometry import unit
from kedge.many.numerics.grouping import Groups


@dataclass(frozen=True)
class Island:
    """Some of all spaces, by their numbers, and their rows as one space.

    `into` (ds, k) takes normalised rows of each to rows of `pooled` (g, k); `groups` are the latter as rows (g, a) of
    all a spaces.
    """

    members: tuple[int, ...]
    pooled: Loaded
    into: tuple[Tensor, ...]
    groups: Tensor

    def matrices(self, onward: Tensor) -> dict[int, Tensor]:
        """By space, what takes its rows to where a matrix (k, c) takes those of the pooled one."""
        return {space: matrix @ onward.float() for space, matrix in zip(self.members, self.into, strict=True)}

    def seeds_with(self, other: Island, known: Tensor) -> Tensor:
        """The rows (s, 2) of both that hold rows of one known tuple (a,), each at most once."""
        found: dict[int, int] = {}
        for item in known.tolist():
            first, second = (_group_of(groups, item) for groups in (self.groups, other.groups))
            if first is not None and second is not None and first not in found and second not in found.values():
                found[first] = second
        return torch.tensor(list(found.items()), dtype=torch.int64).reshape(-1, 2)


def pool(
    members: Sequence[int],
    spaces: Sequence[Loaded],
    into: Sequence[Tensor],
    back: Sequence[Tensor],
    groups: Groups,
    count: int,
) -> Island:
    """The island of these of `count` spaces, by their maps into a common space and back, and their groups."""
    device = spaces[0].rows.device
    hub = max(range(len(spaces)), key=lambda place: len(spaces[place].rows))
    there = [(matrix @ back[hub]).float() for matrix in into]
    total = torch.zeros(len(groups.rows), there[0].shape[1], device=device)
    for place, (space, matrix) in enumerate(zip(spaces, there, strict=True)):
        rows = groups.rows[:, place].to(device)
        has = rows >= 0
        total[has] += unit(space.rows.float() @ matrix)[rows[has]]
    pooled = load_space(to_numpy(total), device, "an island", center=True, dtype=spaces[0].rows.dtype)
    wide = torch.full((len(groups.rows), count), -1, dtype=torch.int64)
    wide[:, list(members)] = groups.rows.cpu()
    return Island(tuple(members), pooled, tuple(matrix @ pooled.axes for matrix in there), wide)


def single(space: int, loaded: Loaded, count: int) -> Island:
    """The island of one of `count` spaces."""
    here = torch.eye(loaded.rows.shape[1], dtype=torch.float64, device=loaded.rows.device)
    rows = torch.arange(len(loaded.rows))[:, None]
    return pool([space], [loaded], [here], [here], Groups(rows, torch.ones(len(rows))), count)


def _group_of(groups: Tensor, item: Sequence[int]) -> int | None:
    """The first group that holds a row of a tuple."""
    hits = ((groups == torch.tensor(item)) & (groups >= 0)).any(dim=1).nonzero()
    return int(hits[0]) if len(hits) else None

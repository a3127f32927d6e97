"""Loop closure: does a row come back to itself over three spaces? Evidence that needs no labels.

Three matches that were found independently lead a row of A to B, on to C and back to A. If all three are right, it
comes back; if one of them is wrong, hardly any row does, however sure that match looks by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.many.numerics.pair_graph import Pair

CLOSED = 0.1
"""A loop is closed if at least this share of rows comes back beyond chance."""

_SHUFFLES = 5


@dataclass(frozen=True)
class Loop:
    """Over `spaces` s, t, u the share of the rows of s that come `back`, and the share that would by `chance`."""

    spaces: tuple[int, int, int]
    back: float
    chance: float

    @property
    def closure(self) -> float:
        """The share that comes back, of those that chance would not bring back."""
        return max(self.back - self.chance, 0.0) / max(1 - self.chance, 1e-9)

    @property
    def closed(self) -> bool:
        """Whether enough rows come back."""
        return self.closure >= CLOSED


def close_loop(spaces: tuple[int, int, int], forth: Tensor, across: Tensor, back: Tensor) -> Loop:
    """The loop of the matches of s with t (n,), of t with u (m,) and of u with s (l,): partners of all rows.

    What chance brings back is seen with the rows of t dealt anew among their partners in u: as many rows meet, at the
    same popular ones.
    """
    own = torch.arange(len(forth), device=forth.device)
    generator = torch.Generator().manual_seed(0)
    by_chance = []
    for _ in range(_SHUFFLES):
        order = torch.randperm(len(across), generator=generator).to(across.device)
        by_chance.append(_share(back[across[order][forth]] == own))
    return Loop(spaces, _share(back[across[forth]] == own), sum(by_chance) / _SHUFFLES)


def breaking_pairs(loops: Sequence[Loop]) -> list[Pair]:
    """The pairs that break loops: none that goes over them closes, but for each loop every other pair closes another.

    Where a single loop is all there is, nobody can say which of its pairs is wrong, and none is named.
    """
    closed = {pair for loop in loops if loop.closed for pair in _sides(loop)}
    suspects: dict[Pair, None] = {}
    for loop in loops:
        if not loop.closed:
            broken = [pair for pair in _sides(loop) if pair not in closed]
            if len(broken) == 1:
                suspects[broken[0]] = None
    return list(suspects)


def closures(loops: Sequence[Loop]) -> Mapping[Pair, float]:
    """The mean closure of the loops over each pair."""
    found: dict[Pair, list[float]] = {}
    for loop in loops:
        for pair in _sides(loop):
            found.setdefault(pair, []).append(loop.closure)
    return {pair: sum(values) / len(values) for pair, values in found.items()}


def _sides(loop: Loop) -> tuple[Pair, Pair, Pair]:
    s, t, u = loop.spaces
    return (s, t), (t, u), (s, u)


def _share(mask: Tensor) -> float:
    return float(mask.double().mean())

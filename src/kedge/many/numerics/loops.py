"""Loop closure: does a row come back to itself over three spaces? This is evidence without labels.

Three independently found matches lead a row of A to B, on to C and back to A. If all three are right, it comes back to
itself; if one of them is wrong, hardly any row does, however sure that match looks by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.many.numerics.pair_graph import Pair

CLOSED = 0.3
"""A loop is closed if at least this share of its complete chains, beyond chance, comes back."""

_MIN_CHAINS = 30
_SHUFFLES = 5


@dataclass(frozen=True)
class Link:
    """The partners (n,) of all rows of a space in the next one, and only the `sure` ones (n,); -1 for none."""

    partner: Tensor
    sure: Tensor


@dataclass(frozen=True)
class Loop:
    """A loop over `spaces` s, t, u.

    `back` is the share of the rows of s that come back, `chance` the share expected by chance. If items are missing,
    few rows can come back, so `kept` is the share among the `chains`, the rows whose three partners are all sure.
    """

    spaces: tuple[int, int, int]
    back: float
    chance: float
    chains: int
    kept: float

    @property
    def closure(self) -> float:
        """The share of rows that come back, corrected for chance."""
        return max(self.back - self.chance, 0.0) / max(1 - self.chance, 1e-9)

    @property
    def closed(self) -> bool | None:
        """Whether enough complete chains come back; None if there are too few to say."""
        return None if self.chains < _MIN_CHAINS else self.kept - self.chance >= CLOSED


def close_loop(spaces: tuple[int, int, int], forth: Link, across: Link, back: Link) -> Loop:
    """Close the loop of the matches of s with t (n,), of t with u (m,) and of u with s (l,).

    The chance level is measured by shuffling the partners in u among the rows of t, which keeps popular rows popular.
    """
    own = torch.arange(len(forth.partner), device=forth.partner.device)
    generator = torch.Generator().manual_seed(0)
    by_chance = []
    for _ in range(_SHUFFLES):
        order = torch.randperm(len(across.partner), generator=generator).to(own.device)
        by_chance.append(_share(_onward(forth.partner, across.partner[order], back.partner) == own))
    ends = _onward(forth.sure, across.sure, back.sure)
    chains = int((ends >= 0).sum())
    kept = float((ends == own).sum()) / chains if chains else 0.0
    comes_back = _share(_onward(forth.partner, across.partner, back.partner) == own)
    return Loop(spaces, comes_back, sum(by_chance) / _SHUFFLES, chains, kept)


def _onward(rows: Tensor, *partners: Tensor) -> Tensor:
    """Where rows (n,) lead by the partners of one space after another; -1 where a row has none."""
    for partner in partners:
        rows = torch.where(rows >= 0, partner[rows.clamp_min(0)], -1)
    return rows


def breaking_pairs(loops: Sequence[Loop], right: Iterable[Pair] = ()) -> list[Pair]:
    """The pairs that break loops: no loop over them closes, but in one of these both other pairs close another loop.

    With a single loop it is impossible to say which of its pairs is wrong, so none is returned. Pairs that are known to
    be `right` count as if they closed one.
    """
    closed = {pair for loop in loops if loop.closed for pair in _sides(loop)}.union(right)
    suspects: dict[Pair, None] = {}
    for loop in loops:
        if loop.closed is False:
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

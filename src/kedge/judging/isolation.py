"""Rows that look like nothing else: as far from all rows of their own space as random directions are.

Real items have neighbours: words of one topic, texts about one subject. Rows that were filled with noise, hashed or
damaged have none. Such rows look like nothing in the other space either, but noise can be fitted to noise, and where
half of the rows are of that kind, their pairs look like others. So they are found first, from their own space alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.geometry import unit
from kedge.matching import Problem, map_rows, nearest_of

# A row's nearness is its mean similarity to this many nearest rows, among a sample of this many.
_NEIGHBOURS, _SAMPLE = 10, 1000
# A row is isolated if its nearness exceeds that of random directions by less than this share of what the 90th
# percentile of rows exceeds it by.
_SHARE_OF_DENSITY = 0.25
# If even that is less than this, the space as a whole is of that kind, and nothing is said of single rows.
_MIN_CONTRAST = 0.1
# Some rows of every space are isolated. They are a kind if they are at least this share of all rows, and if there is a
# gap between them and the others: the band of the same width above the threshold holds at most this fraction as many.
_MIN_ISOLATED, _MAX_BETWEEN = 0.2, 0.5


@dataclass(frozen=True)
class Isolation:
    """Masks (n,) and (m,) of the isolated rows of X and of Y; all False where there are too few to be a kind."""

    x: Tensor
    y: Tensor

    @classmethod
    def from_problem(cls, problem: Problem) -> Isolation:
        """The isolated rows of a problem, each found from its own space."""
        return cls(*(_isolated(rows, problem.budget) for rows in (problem.x, problem.y)))

    @property
    def any(self) -> bool:
        """Whether either side has isolated rows."""
        return bool(self.x.any() or self.y.any())

    def __str__(self) -> str:
        sides = (("X", "Y", self.x), ("Y", "X", self.y))
        return " ".join(
            f"About {_in_words(float(mask.float().mean()))} of {name}'s rows look like nothing in {other}: they are as "
            "far from all others as noise."
            for name, other, mask in sides
            if bool(mask.any())
        )

    def rest(self, problem: Problem) -> Problem:
        """The problem without these rows and without its seeds."""
        if not self.any:
            return problem.without_seeds()
        kept = ((~mask).nonzero(as_tuple=True)[0] for mask in (self.x, self.y))
        return problem.without_seeds().part(*kept)


def _isolated(rows: Tensor, budget: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    some = torch.randperm(len(rows), generator=generator)[:_SAMPLE].sort().values.to(rows.device)
    others = unit(rows[some].float())
    if len(others) <= _NEIGHBOURS:
        return torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    near = map_rows(rows, lambda piece: _nearness(unit(piece), others, budget))
    in_sample = torch.zeros_like(near, dtype=torch.bool)
    in_sample[some] = True  # each of these is nearest to itself
    near = torch.where(in_sample, near - (1 - near) / (_NEIGHBOURS - 1), near)
    random = unit(torch.randn(_SAMPLE, rows.shape[1], generator=generator).to(others))
    by_chance = _nearness(random, others, budget).median()
    density = near[some].quantile(0.9) - by_chance
    isolated, no_further = (near < by_chance + share * density for share in (_SHARE_OF_DENSITY, 2 * _SHARE_OF_DENSITY))
    count, between = int(isolated.sum()), int((no_further & ~isolated).sum())
    is_kind = count >= _MIN_ISOLATED * len(rows) and between <= _MAX_BETWEEN * count
    return isolated & (is_kind and float(density) >= _MIN_CONTRAST)


def _nearness(rows: Tensor, others: Tensor, budget: int) -> Tensor:
    """The mean similarity (n,) of unit rows (n, d) to the nearest of others (k, d)."""
    return nearest_of(rows, others, _NEIGHBOURS, budget)[0].mean(dim=1)


def _in_words(share: float) -> str:
    return "half" if 0.45 <= share <= 0.55 else f"{share:.0%}"

"""The two normalised spaces and the seeds between them: what every part of the method works on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kedge.matching import Rows


@dataclass(frozen=True)
class Problem:
    """Unit rows x (n, dx) and y (m, dy) on one device, seeds as rows (s,) of each, and the memory budget.

    `centred` says whether the mean was taken off the rows.
    """

    x: Rows
    y: Rows
    seeds_x: Tensor
    seeds_y: Tensor
    budget: int
    centred: bool = True

    def seed_partners(self, rows: Tensor) -> Tensor:
        """The seeds' rows (k,) of Y for rows (k,) of X, -1 for rows that are no seed."""
        partner_of = torch.full((len(self.x),), -1, dtype=torch.int64, device=self.x.device)
        partner_of[self.seeds_x] = self.seeds_y
        return partner_of[rows]

    def without_seeds(self, which: Tensor | None = None) -> Problem:
        """The problem without its seeds, or without those in the mask (s,)."""
        kept = torch.zeros_like(self.seeds_x, dtype=torch.bool) if which is None else ~which
        return replace(self, seeds_x=self.seeds_x[kept], seeds_y=self.seeds_y[kept])

    def sample(self, size: int, generator: torch.Generator) -> Problem:
        """At most `size` rows of each side, drawn independently, always with the seeds; every process holds them."""
        x, seeds_x = _draw(self.x, size, self.seeds_x, generator)
        y, seeds_y = _draw(self.y, size, self.seeds_y, generator)
        return replace(self, x=x, y=y, seeds_x=seeds_x, seeds_y=seeds_y)

    def sample_of_x(self, size: int, generator: torch.Generator) -> Problem:
        """At most `size` rows of X, the seeds among them, and all rows of Y."""
        if size >= len(self.x):
            return self
        x, seeds_x = _draw(self.x, size, self.seeds_x, generator)
        return replace(self, x=x, seeds_x=seeds_x)


def _draw(rows: Rows, size: int, seeds: Tensor, generator: torch.Generator) -> tuple[Rows, Tensor]:
    """Some rows, in their order, and where the seeds are among them."""
    if size >= len(rows):
        return Rows.shared(rows.gathered()), seeds
    drawn = torch.randperm(len(rows), generator=generator)[:size].to(seeds.device)
    kept = torch.unique(torch.cat([drawn, seeds]))
    return Rows.shared(rows.take(kept)), torch.searchsorted(kept, seeds)

"""The two normalised spaces and the seeds between them: what every part of the method works on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """Unit rows x (n, dx) and y (m, dy) on one device, seeds as rows (s,) of each, and the memory budget.

    `centred` says whether the mean was taken off the rows.
    """

    x: Tensor
    y: Tensor
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
        """At most `size` rows of each side, drawn independently, always with the seeds."""
        rows_x, seeds_x = _draw(len(self.x), size, self.seeds_x, generator)
        rows_y, seeds_y = _draw(len(self.y), size, self.seeds_y, generator)
        return Problem(self.x[rows_x], self.y[rows_y], seeds_x, seeds_y, self.budget, self.centred)


def _draw(count: int, size: int, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sorted rows to keep, and where the seeds are among them."""
    if size >= count:
        return torch.arange(count, device=seeds.device), seeds
    drawn = torch.randperm(count, generator=generator)[:size].to(seeds.device)
    rows = torch.unique(torch.cat([drawn, seeds]))
    return rows, torch.searchsorted(rows, seeds)

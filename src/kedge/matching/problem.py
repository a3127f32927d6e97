"""The two normalised spaces and the seeds between them: what every part of the method works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kedge.geometry import Spectrum, unit
from kedge.matching import Rows, processes


@dataclass(frozen=True)
class Problem:
    """Unit rows x (n, dx) and y (m, dy) on one device, seeds as rows (s,) of each, and the memory budget.

    `centerd` says whether the mean was taken off the rows; `exact` whether all rows are compared with all, as against
    candidates only.
    """

    x: Rows
    y: Rows
    seeds_x: Tensor
    seeds_y: Tensor
    budget: int
    centerd: bool = True
    exact: bool = True

    @cached_property
    def spectrum_x(self) -> Spectrum:
        """How the rows of X vary."""
        return _spectrum(self.x)

    @cached_property
    def spectrum_y(self) -> Spectrum:
        """How the rows of Y vary."""
        return _spectrum(self.y)

    def whitenings(self, strength: float) -> tuple[Tensor, Tensor]:
        """Matrices (dx, dx) and (dy, dy) that divide each axis of a space by its deviation to the power `strength`."""
        left, right = (spectrum.powered(-strength / 2).float() for spectrum in (self.spectrum_x, self.spectrum_y))
        return left, right

    def whitened(self, strength: float) -> Problem:
        """The same with both spaces whitened, and their rows of unit norm again."""
        if strength == 0:
            return self
        left, right = self.whitenings(strength)
        return replace(
            self, x=self.x.sent(lambda rows: unit(rows @ left)), y=self.y.sent(lambda rows: unit(rows @ right))
        )

    def turned_round(self) -> Problem:
        """The same problem from Y to X."""
        return replace(self, x=self.y, y=self.x, seeds_x=self.seeds_y, seeds_y=self.seeds_x)

    def seed_partners(self, rows: Tensor) -> Tensor:
        """The seeds' rows (k,) of Y for rows (k,) of X, -1 for rows that are no seed."""
        partner_of = torch.full((len(self.x),), -1, dtype=torch.int64, device=self.x.device)
        partner_of[self.seeds_x] = self.seeds_y
        return partner_of[rows]

    def without_seeds(self, which: Tensor | None = None) -> Problem:
        """The problem without its seeds, or without those in the mask (s,)."""
        kept = torch.zeros_like(self.seeds_x, dtype=torch.bool) if which is None else ~which
        return replace(self, seeds_x=self.seeds_x[kept], seeds_y=self.seeds_y[kept])

    def without(self, rows_x: Tensor, rows_y: Tensor) -> Problem:
        """The problem without some rows of either space, none of which is a seed's; the others are numbered anew."""
        return replace(self, x=self.x.without(rows_x), y=self.y.without(rows_y))

    def sample(self, size: int, generator: torch.Generator) -> Problem:
        """At most `size` rows of each side, drawn independently, always with the seeds; every process holds them."""
        x, seeds_x = _draw(self.x, size, self.seeds_x, generator)
        y, seeds_y = _draw(self.y, size, self.seeds_y, generator)
        return replace(self, x=x, y=y, seeds_x=seeds_x, seeds_y=seeds_y, exact=True)

    def part(self, rows_x: Tensor, rows_y: Tensor) -> Problem:
        """Some rows (k,) of X and (l,) of Y, ascending and the seeds' among them; every process holds them."""
        return replace(
            self,
            x=Rows.shared(self.x.take(rows_x)),
            y=Rows.shared(self.y.take(rows_y)),
            seeds_x=torch.searchsorted(rows_x, self.seeds_x),
            seeds_y=torch.searchsorted(rows_y, self.seeds_y),
            exact=True,
        )


def _draw(rows: Rows, size: int, seeds: Tensor, generator: torch.Generator) -> tuple[Rows, Tensor]:
    """Some rows, in their order, and where the seeds are among them."""
    if size >= len(rows):
        return Rows.shared(rows.gathered()), seeds
    kept = draw_rows(len(rows), size, seeds, generator)
    return Rows.shared(rows.take(kept)), torch.searchsorted(kept, seeds)


def draw_rows(total: int, size: int, always: Tensor, generator: torch.Generator) -> Tensor:
    """At least `size` of so many rows, ascending, some of which (k,) are always among them."""
    drawn = torch.randperm(total, generator=generator)[:size].to(always.device)
    return torch.unique(torch.cat([drawn, always]))


def _spectrum(rows: Rows) -> Spectrum:
    """Of all rows, the same in every process."""
    moment = torch.zeros(rows.dim, rows.dim, dtype=torch.float64, device=rows.device)
    for piece in rows.pieces():
        moment += (piece.T @ piece).double()
    found = Spectrum.of(processes().sum(moment) / len(rows))
    return Spectrum(processes().from_first(found.variances), processes().from_first(found.axes))

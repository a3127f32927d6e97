"""The two normalised spaces and the seeds between them: what every part of the method works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kedge.geometry import Spectrum, unit
from kedge.matching.blocks import map_rows, row_pieces


@dataclass(frozen=True)
class Problem:
    """Rows x (n, dx) and y (m, dy) on one device, seeds as rows (s,) of each, and the memory budget.

    The rows have unit norm, except for what was lost with axes that were dropped. `centered` says whether the mean was
    subtracted from them; `exact` whether all rows are compared with all, rather than with candidates only, in which
    case the rows are held in half precision. `spectra` are those of the two whole spaces, for parts and samples of
    them; without them the spectra of the rows at hand are used.
    """

    x: Tensor
    y: Tensor
    seeds_x: Tensor
    seeds_y: Tensor
    budget: int
    centered: bool = True
    exact: bool = True
    spectra: tuple[Spectrum, Spectrum] | None = None

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.x.device

    @property
    def dims(self) -> tuple[int, int]:
        """Dimensions dx and dy."""
        return self.x.shape[1], self.y.shape[1]

    def take_x(self, rows: Tensor) -> Tensor:
        """Rows (k,) of X as float32 (k, dx)."""
        return self.x[rows].float()

    def take_y(self, rows: Tensor) -> Tensor:
        """Rows (k,) of Y as float32 (k, dy)."""
        return self.y[rows].float()

    @cached_property
    def spectrum_x(self) -> Spectrum:
        """How the rows of X vary."""
        return _spectrum(self.x) if self.spectra is None else self.spectra[0]

    @cached_property
    def spectrum_y(self) -> Spectrum:
        """How the rows of Y vary."""
        return _spectrum(self.y) if self.spectra is None else self.spectra[1]

    def whitenings(self, strength: float) -> tuple[Tensor, Tensor]:
        """Matrices (dx, dx) and (dy, dy) that divide each axis of a space by its deviation to the power `strength`."""
        left, right = (spectrum.powered(-strength / 2).float() for spectrum in (self.spectrum_x, self.spectrum_y))
        return left, right

    def whitened(self, strength: float) -> Problem:
        """The same problem with both spaces whitened, and their rows scaled to unit norm again."""
        if strength == 0:
            return self
        left, right = self.whitenings(strength)
        return replace(
            self,
            x=map_rows(self.x, lambda rows: unit(rows @ left)),
            y=map_rows(self.y, lambda rows: unit(rows @ right)),
            spectra=None,
        )

    def reversed(self) -> Problem:
        """The same problem from Y to X."""
        spectra = None if self.spectra is None else (self.spectra[1], self.spectra[0])
        return replace(self, x=self.y, y=self.x, seeds_x=self.seeds_y, seeds_y=self.seeds_x, spectra=spectra)

    def seed_partners(self, rows: Tensor) -> Tensor:
        """The rows (k,) of Y that seeds pair with rows (k,) of X; -1 for rows that are in no seed."""
        partner_of = torch.full((len(self.x),), -1, dtype=torch.int64, device=self.device)
        partner_of[self.seeds_x] = self.seeds_y
        return partner_of[rows]

    def without_seeds(self, which: Tensor | None = None) -> Problem:
        """The problem without its seeds, or without those in the mask (s,)."""
        kept = torch.zeros_like(self.seeds_x, dtype=torch.bool) if which is None else ~which
        return replace(self, seeds_x=self.seeds_x[kept], seeds_y=self.seeds_y[kept])

    def sample(self, size: int, generator: torch.Generator) -> Problem:
        """About `size` rows of each side, drawn independently, always with the seeds."""
        rows_x, rows_y = (
            torch.arange(len(rows), device=seeds.device)
            if size >= len(rows)
            else draw_rows(len(rows), size, seeds, generator)
            for rows, seeds in ((self.x, self.seeds_x), (self.y, self.seeds_y))
        )
        return self.part(rows_x, rows_y)

    def part(self, rows_x: Tensor, rows_y: Tensor) -> Problem:
        """Some rows (k,) of X and (l,) of Y, ascending and including the seeds', as a problem compared exactly."""
        return replace(
            self,
            x=_taken(self.x, rows_x),
            y=_taken(self.y, rows_y),
            seeds_x=torch.searchsorted(rows_x, self.seeds_x),
            seeds_y=torch.searchsorted(rows_y, self.seeds_y),
            exact=True,
        )


def draw_rows(total: int, size: int, always: Tensor, generator: torch.Generator) -> Tensor:
    """About `size` of `total` rows, drawn at random, ascending; those in `always` (k,) are always included."""
    drawn = torch.randperm(total, generator=generator)[:size].to(always.device)
    return torch.unique(torch.cat([drawn, always]))


def _taken(rows: Tensor, which: Tensor) -> Tensor:
    """Rows (k,), ascending, of (n, d) as float32; all of them are not copied."""
    return rows.float() if len(which) == len(rows) else rows[which].float()


def _spectrum(rows: Tensor) -> Spectrum:
    moment = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    for piece in row_pieces(rows):
        moment += (piece.T @ piece).double()
    return Spectrum.from_moment(moment / len(rows))

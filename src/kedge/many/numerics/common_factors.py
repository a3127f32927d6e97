"""Common factors: coordinates of all spaces in which rows of one item agree, and how well each space knows them.

This is generalised CCA (MAXVAR, Kettenring 1971), read as a Gaussian model with independent factors z_i of variance 1:
every space s sees u_i = r_si z_i + noise, also of variance 1, so that rows of one item correlate by r_si r_ti between
any two spaces. The correlations are measured on pairs that the directions were not fitted to; for two spaces this is
the pair model. Rows of one item determine z jointly: given their *evidence* sum r u / (1 - r^2) and their *precision*
sum r^2 / (1 - r^2), z is Gaussian with mean evidence / (1 + precision) and variance 1 / (1 + precision).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.geometry import Moments, Spectrum, never_rising
from kedge.geometry.canonical import Halves
from kedge.many.numerics.common_coordinates import MAX_LOADING
from kedge.many.numerics.synchronisation import leading_blocks
from kedge.models.pair_model import PairModel

_MIN_CORRELATION = 0.03  # factors whose largest correlation is not above this are left out
_ROUNDS = 20
# The assumed correlation of all factors if only rotations are known.
_SLIGHT = 0.01
# Marks pair models whose directions were fitted elsewhere; never one of the ridges that are tried.
_NO_RIDGE = -1.0


@dataclass(frozen=True)
class CommonFactors:
    """Directions (ds, c) of each space, scaled to variance 1, and loadings (k, c): how well it knows each factor."""

    directions: tuple[Tensor, ...]
    loadings: Tensor

    def on_cpu(self) -> CommonFactors:
        """A copy on the CPU, where groups are made."""
        return CommonFactors(tuple(one.cpu() for one in self.directions), self.loadings.cpu())

    def canonical(self, space: int, rows: Tensor) -> Tensor:
        """Coordinates u (n, c) of normalised rows (n, ds) of a space."""
        return rows @ self.directions[space].to(rows.dtype)

    def evidence(self, space: int, rows: Tensor) -> Tensor:
        """The evidence of rows (n, ds) about the factors: r u / (1 - r^2) (n, c), additive over the rows of a group."""
        loading = self.loadings[space].to(rows.dtype)
        return self.canonical(space, rows) * (loading / (1 - loading.square()))

    def precision(self, space: int) -> Tensor:
        """How much a row of a space says about each factor (c,): r^2 / (1 - r^2), additive as well."""
        return self.loadings[space].square() / (1 - self.loadings[space].square())

    def pair_model(self, first: int, second: int) -> PairModel:
        """The pair model of two spaces: their directions, and the products of their loadings."""
        correlations = self.loadings[first] * self.loadings[second]
        return PairModel(self.directions[first], self.directions[second], correlations, ridge=_NO_RIDGE)


def fit_factors(spectra: Sequence[Spectrum], halves: Mapping[tuple[int, int], Halves], ridge: float) -> CommonFactors:
    """Fit the factors to pairs of rows, given by the moments of two halves of the pairs between every two spaces."""
    dims = [len(spectrum.variances) for spectrum in spectra]
    count = min(max(dims), sum(dims))
    correlations = {pair: torch.zeros(count, dtype=torch.float64) for pair in halves}
    for turn in (0, 1):
        fitted = {pair: both[turn] for pair, both in halves.items()}
        directions = _directions(spectra, fitted, ridge, count)
        for (s, t), both in halves.items():
            correlations[s, t] += _correlations(directions[s], directions[t], both[1 - turn]).cpu() / 2
    smooth = {pair: _never_rising(values) for pair, values in correlations.items()}
    loadings = fit_loadings(smooth, len(dims))
    directions = _directions(spectra, {pair: both[0] + both[1] for pair, both in halves.items()}, ridge, count)
    kept = torch.stack(list(smooth.values())).amax(dim=0) > _MIN_CORRELATION
    kept[0] = True  # keep at least one factor, since a model needs coordinates
    device = spectra[0].variances.device
    scaled = [spectra[s].scaled_to_unit(directions[s][:, kept.to(device)]) for s in range(len(dims))]
    return CommonFactors(tuple(scaled), loadings[:, kept].to(device))


def rotation_factors(spectra: Sequence[Spectrum], into: Sequence[Tensor]) -> CommonFactors:
    """Factors from maps (ds, c) into a common space alone, if pairs are too few to say how well each is known.

    All are assumed to be known slightly, so that likelihood ranks almost like cosine.
    """
    directions = [spectrum.scaled_to_unit(matrix.float()) for spectrum, matrix in zip(spectra, into, strict=True)]
    slight = torch.full((len(into), into[0].shape[1]), _SLIGHT**0.5, dtype=torch.float64, device=into[0].device)
    return CommonFactors(tuple(directions), slight)


def fit_loadings(correlations: Mapping[tuple[int, int], Tensor], count: int) -> Tensor:
    """Loadings r (k, c), from 0.01 to 0.99, whose products r_s r_t fit the correlations (c,) of pairs of spaces best.

    Each factor has a column of its own; all columns are fitted in parallel by alternating least squares.
    """
    mean = torch.stack(list(correlations.values())).mean(dim=0).clamp_min(0)
    loadings = mean.sqrt().repeat(count, 1).clamp(0.01, MAX_LOADING)
    for _ in range(_ROUNDS):
        above, below = torch.zeros_like(loadings), torch.full_like(loadings, 1e-9)
        for (s, t), values in correlations.items():
            for one, other in ((s, t), (t, s)):
                above[one] += values * loadings[other]
                below[one] += loadings[other].square()
        # Go halfway: with two spaces, full steps would oscillate.
        loadings = ((loadings + above / below) / 2).clamp(0.01, MAX_LOADING)
    return loadings


def _directions(
    spectra: Sequence[Spectrum], moments: Mapping[tuple[int, int], Moments], ridge: float, count: int
) -> list[Tensor]:
    """Directions (ds, count) of each space along which the rows of pairs vary together, strongest first."""
    white = {
        (s, t): spectra[t].whitened(spectra[s].whitened(m.cross / m.source.trace(), ridge).T, ridge).T.float()
        for (s, t), m in moments.items()
    }
    blocks = leading_blocks(white, [len(spectrum.variances) for spectrum in spectra], count)
    return [spectrum.from_white(block, ridge) for spectrum, block in zip(spectra, blocks, strict=True)]


def _correlations(left: Tensor, right: Tensor, held_out: Moments) -> Tensor:
    """Correlations (c,) of pairs along directions (ds, c) and (dt, c)."""
    dtype, tiny = left.dtype, torch.finfo(torch.float32).tiny
    covariance = (left * (held_out.cross.to(dtype) @ right)).sum(dim=0)
    along_x = (left * (held_out.source.to(dtype) @ left)).sum(dim=0).clamp_min(tiny)
    along_y = (right * (held_out.target.to(dtype) @ right)).sum(dim=0).clamp_min(tiny)
    return (covariance / (along_x.sqrt() * along_y.sqrt())).nan_to_num().double()


def _never_rising(values: Tensor) -> Tensor:
    """Correlations made non-increasing: factors are in order, so if a later one seems stronger, that is noise."""
    return torch.from_numpy(never_rising(values.numpy())).clamp(0, MAX_LOADING**2)

"""What pairs between many spaces imply together: a map into the common space and back for each, and the factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low

import torch
from torch import Tensor

from kedge.estimators.devices import Loaded
from kedge.geometry import Spectrum
from kedge.many.numerics.common_factors import CommonFactors, fit_factors, rotation_factors
from kedge.many.numerics.grouping import Groups
from kedge.many.numerics.pair_graph import Pair
from kedge.many.numerics.synchronisation import synchronise
from kedge.many.pairwise import PairOutcome, problem_of
from kedge.models.pair_fitting import moments_of_halves
from kedge.models.pair_model import choose_ridge

# By this power of its variances a space is whitened before it is rotated, as by a whiten-rotate-recolor map.
_POWER, _RIDGE = -0.25, 0.01
# Of so many of the surest pairs the middle ridge is taken.
_RIDGES_OF = 3


def fit_common(
    spaces: Sequence[Loaded], outcomes: Mapping[Pair, PairOutcome]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], CommonFactors]:
    """Maps into the common space and back, and the factors, of spaces that the outcomes connect."""
    into, back = _fit_rotations(spaces, {pair: found.cross for pair, found in outcomes.items()})
    hard = {pair: found.pairs for pair, found in outcomes.items() if not found.soft}
    if {space for pair in hard for space in pair} != set(range(len(spaces))):
        return into, back, rotation_factors([space.spectrum for space in spaces], into)
    return into, back, _fit_hard(spaces, hard)


def fit_to_groups(
    spaces: Sequence[Loaded], groups: Groups, outcomes: Mapping[Pair, PairOutcome]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], CommonFactors]:
    """The same, of the pairs that the groups hold, also between spaces that were not run; and of soft ones."""
    count = len(spaces)
    hard = {(s, t): groups.pairs(s, t) for s in range(count) for t in range(s + 1, count)}
    crosses = {pair: found.cross for pair, found in outcomes.items() if found.soft}
    for (s, t), pairs in hard.items():
        if len(pairs) and (s, t) not in crosses:
            crosses[s, t] = _cross(spaces[s], spaces[t], pairs)
    into, back = _fit_rotations(spaces, crosses)
    enough = {
        (s, t): pairs
        for (s, t), pairs in hard.items()
        if len(pairs) >= 2 * min(spaces[s].rows.shape[1], spaces[t].rows.shape[1])
    }
    if {space for pair in enough for space in pair} != set(range(count)):
        return into, back, rotation_factors([space.spectrum for space in spaces], into)
    return into, back, _fit_hard(spaces, enough)


def _fit_rotations(
    spaces: Sequence[Loaded], crosses: Mapping[Pair, Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Whiten by half, rotate into the common space; rotate out of it, recolor by half."""
    spectra = [space.spectrum for space in spaces]
    half_white = {(s, t): half_whitened(spectra[s], spectra[t], cross) for (s, t), cross in crosses.items()}
    rotations = synchronise(half_white, [len(spectrum.variances) for spectrum in spectra])
    return maps_of(spectra, rotations)


def half_whitened(first: Spectrum, second: Spectrum, cross: Tensor) -> Tensor:
    """A cross moment (ds, dt) of rows as they are before they are rotated."""
    return first.times_power(second.times_power(cross.T, _POWER, _RIDGE).T, _POWER, _RIDGE)


def half_whitened_side(spectrum: Spectrum, cross: Tensor) -> Tensor:
    """The same where only the first side is as it was."""
    return spectrum.times_power(cross, _POWER, _RIDGE)


def maps_of(spectra: Sequence[Spectrum], rotations: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Maps into the common space (ds, d), and back (d, ds), by rotations (ds, d)."""
    sides = list(zip(spectra, rotations, strict=True))
    into = tuple(spectrum.times_power(rotation, _POWER, _RIDGE) for spectrum, rotation in sides)
    return into, tuple(spectrum.times_power(rotation, -_POWER, _RIDGE).T for spectrum, rotation in sides)


def _fit_hard(spaces: Sequence[Loaded], pairs: Mapping[Pair, Tensor]) -> CommonFactors:
    """The factors of pairs (p, 2) of rows between some of the spaces."""
    nothing = torch.empty(0, 2, dtype=torch.int64)
    halves = {
        (s, t): moments_of_halves(problem_of(spaces[s], spaces[t], nothing), *found.T)
        for (s, t), found in pairs.items()
    }
    surest = sorted(pairs, key=lambda pair: -len(pairs[pair]))[:_RIDGES_OF]
    ridge = median_low([choose_ridge(spaces[s].spectrum, spaces[t].spectrum, halves[s, t]) for s, t in surest])
    return fit_factors([space.spectrum for space in spaces], halves, ridge)


def _cross(first: Loaded, second: Loaded, pairs: Tensor) -> Tensor:
    return (first.rows[pairs[:, 0]].float().T @ second.rows[pairs[:, 1]].float()).double()

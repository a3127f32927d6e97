"""Which reflections of a space onto itself the data do not contradict: mirror images, signs of axes, swaps.

A reflection that takes the rows of a space to where other rows of it lie leaves the covariance unchanged. Where the
variances differ, it therefore flips some principal axes and keeps the others: a vector of signs. This covers the full
mirror image, sign flips of single axes or groups of them, and swaps, which flip differences. Under such signs s the
third and fourth moments of the coordinates stay the same, so that wherever a moment is not zero, the product of its
signs is 1:

    E[z_i z_j z_k] != 0   =>   s_i s_j s_k = 1,     E[z_i z_j z_k z_l] != 0   =>   s_i s_j s_k s_l = 1.

With signs as bits, these are linear equations modulo 2 whose solutions are the candidates; real data are skewed along
most axes and have none. Where variances are equal, as in binary noise, principal axes are arbitrary, and independent
components are tested as well (FastICA by fourth moments, Hyvarinen 1999). Symmetries of a higher order are not looked
for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import xor

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, principal_axes

# Only the leading axes are tested; annealing finds what follows along the others.
_AXES = 24
# A moment counts as nonzero if it is this many standard errors away; some thousands are tested.
_STANDARD_ERRORS = 5.0
# A reflection that flips a smaller share of the variance leaves nearly every row where it was.
_MIN_VARIANCE = 0.1
# At most this many reflections of a group are tried.
_MAX_TRIED = 4
# Deviations that differ by less than this factor leave principal axes arbitrary.
_EQUAL = 1.5
_ICA_ROUNDS = 50


def reflections(rows: Tensor) -> list[Tensor]:
    """Matrices (d, d) that flip principal axes of rows (n, d), as far as moments do not contradict it.

    Of a group, these are generators, and the products of all of them and of two halves; most real spaces have none.
    """
    axes = principal_axes(rows, min(_AXES, rows.shape[1])).to(rows.dtype)
    deviations = (rows @ axes).square().mean(dim=0).sqrt()
    found = _along(rows, axes)
    if float(deviations.amax()) < _EQUAL * float(deviations.amin()):
        found += _along(rows, axes @ _independent_axes(rows @ axes / deviations))
    return found


def _along(rows: Tensor, axes: Tensor) -> list[Tensor]:
    """The same along given axes (d, k)."""
    coordinates = rows @ axes
    variances = coordinates.square().mean(dim=0)
    solutions = _solutions(_equations(coordinates / variances.sqrt().clamp_min(1e-12)), axes.shape[1])
    if len(solutions) > 1:  # products of all and of halves come first: a single one may flip next to nothing
        together = [reduce(xor, some) for some in (solutions, solutions[::2], solutions[1::2])]
        solutions = list(dict.fromkeys([*together, *solutions]))
    identity = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    found = []
    for bits in solutions:
        turned = [axis for axis in range(axes.shape[1]) if bits >> axis & 1]
        if float(variances[turned].sum()) >= _MIN_VARIANCE * float(variances.sum()):
            found.append(identity - 2 * axes[:, turned] @ axes[:, turned].T)
    return found[:_MAX_TRIED]


def _independent_axes(coordinates: Tensor) -> Tensor:
    """Orthonormal directions (k, k) whose fourth moments are extreme, of coordinates (n, k) of unit variance."""
    count = coordinates.shape[1]
    directions = torch.eye(count, dtype=coordinates.dtype, device=coordinates.device)
    for _ in range(_ICA_ROUNDS):
        cubes = (coordinates @ directions) ** 3
        directions = nearest_rotation(coordinates.T @ cubes / len(coordinates) - 3 * directions).to(coordinates.dtype)
    return directions


def _equations(coordinates: Tensor) -> set[int]:
    """Sets of axes, as bits, whose signs multiply to 1, from coordinates (n, k) of unit variance."""
    rows, count = coordinates.shape
    first, second = torch.triu_indices(count, count, device=coordinates.device)
    products = coordinates[:, first] * coordinates[:, second]
    equations: set[int] = set()
    bits = [1 << axis for axis in range(count)]
    pairs = [bits[i] ^ bits[j] for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    for others, masks in ((coordinates, bits), (products, pairs)):
        mean = products.T @ others / rows
        error = (products.square().T @ others.square() / rows - mean.square()).clamp_min(1e-12).sqrt() / rows**0.5
        for i, j in (mean.abs() > _STANDARD_ERRORS * error).nonzero().tolist():
            equations.add(pairs[i] ^ masks[j])
    return equations - {0}


def _solutions(equations: Iterable[int], count: int) -> list[int]:
    """A basis of the vectors of `count` bits that have an even number of bits in common with every equation."""
    pivots: dict[int, int] = {}  # reduced equations by their leading bit
    for equation in equations:
        rest = equation
        while rest and (lead := rest.bit_length() - 1) in pivots:
            rest ^= pivots[lead]
        if rest:
            pivots[rest.bit_length() - 1] = rest
        if len(pivots) == count:
            return []
    basis = []
    for free in (axis for axis in range(count) if axis not in pivots):
        vector = 1 << free
        for lead in sorted(pivots):  # a pivot's lower bits are settled before it
            if (pivots[lead] & vector).bit_count() % 2:
                vector |= 1 << lead
        basis.append(vector)
    return basis

"""The pair model: how likely it is that two vectors are one item seen twice.

Rows of both spaces are taken for Gaussian, with the covariance of *all* rows of their space, and the two rows of a pair
for correlated. In *canonical coordinates* u and v, which have variance 1 and of which only u_i and v_i of the same
number are correlated (r_i), the log of how much likelier a vector of X and one of Y are as a pair than as strangers is

    sum_i  r_i / (1 - r_i^2) u_i v_i  -  r_i^2 / (2 (1 - r_i^2)) (u_i^2 + v_i^2)  -  log(1 - r_i^2) / 2 .

That is one inner product, of rows with two numbers more: their *shared coordinates*. How many directions count, and how
much, is what the pairs themselves say: correlations are measured on pairs that the directions were not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from scipy.optimize import isotonic_regression
from torch import Tensor

from kedge.geometry.eigen import eigh
from kedge.geometry.moments import Moments
from kedge.geometry.procrustes import nearest_rotation

Halves = tuple[Moments, Moments]
"""Moments of two disjoint parts of the pairs."""

RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Multiples of a space's mean variance that may be added to every variance before whitening."""

# The least ridge that keeps this share of the most information is taken, not the very best on the pairs at hand: they
# are those that the last model found, and half of them; either asks for more ridge than all rows together want.
_KEPT_INFORMATION = 0.95
_GREATEST, _LEAST = 0.98, 0.03  # correlations above are not believed, directions below left out
# Beyond so many dimensions only the leading axes are looked at: more would cost minutes and tell little.
_MOST_AXES = 1536
_FIRST_TRIED = RIDGES.index(1.0)


@dataclass(frozen=True)
class Spectrum:
    """Variances (d,) of a space along its principal axes (d, d), greatest first, in float64."""

    variances: Tensor
    axes: Tensor

    @classmethod
    def of(cls, moment: Tensor) -> Spectrum:
        """Of a mean second moment (d, d)."""
        variances, axes = eigh(moment.double())
        return cls(variances.flip(0).clamp_min(0), axes.flip(1))

    @property
    def _floor(self) -> Tensor:
        """The least variance that is more than rounding."""
        limits = torch.finfo(torch.float32)
        return limits.eps * self.variances[0].clamp_min(limits.tiny)

    def whitening(self, ridge: float) -> Tensor:
        """What rows (n, d) are multiplied by to have (nearly) variance 1 along every axis (d, d)."""
        return self.axes * (self.variances + ridge * self.variances.mean()).clamp_min(self._floor).rsqrt()

    def powered(self, exponent: float, ridge: float = 0.0) -> Tensor:
        """The covariance, with a ridge as in `whitening`, to a power (d, d), for instance -1/4 to whiten by half."""
        variances = (self.variances + ridge * self.variances.mean()).clamp_min(self._floor)
        return (self.axes * variances.pow(exponent)) @ self.axes.T

    def ridged(self, ridge: float) -> Tensor:
        """The covariance (d, d) with the ridge added, as `whitening` has it."""
        return (self.axes * (self.variances + ridge * self.variances.mean()).clamp_min(self._floor)) @ self.axes.T

    def variance_along(self, directions: Tensor) -> Tensor:
        """Variances (c,) of the space along directions (d, c)."""
        return (self.variances[:, None] * (self.axes.T @ directions).square()).sum(dim=0)


@dataclass(frozen=True)
class PairModel:
    """Canonical directions of X (dx, c) and of Y (dy, c), scaled to variance 1, and their correlations (c,).

    `ridge` is the one it was fitted with, 0 where pairs were too few for a model.
    """

    directions_x: Tensor
    directions_y: Tensor
    correlations: Tensor
    ridge: float

    @property
    def biases(self) -> int:
        """How many of the shared coordinates are what a row loses, or gains, whatever its partner is."""
        return 2

    @property
    def information(self) -> float:
        """-sum log(1 - r^2) / 2: the mean log likelihood ratio of true pairs, if the model is right."""
        return float(_information(self.correlations))

    def on(self, device: torch.device, dtype: torch.dtype) -> PairModel:
        """The same model elsewhere, or in another precision."""
        left, right = self.directions_x.to(device, dtype), self.directions_y.to(device, dtype)
        return PairModel(left, right, self.correlations.to(device, dtype), self.ridge)

    def shared_x(self, rows: Tensor) -> Tensor:
        """Shared coordinates (n, c + 2) of normalised rows (n, dx); see the module's text."""
        weighted, lost = self._weighted(rows, self.directions_x)
        return torch.cat([weighted, self.information - lost, torch.ones_like(lost)], dim=-1)

    def shared_y(self, rows: Tensor) -> Tensor:
        """Shared coordinates (m, c + 2) of normalised rows (m, dy): <x, y> is the log likelihood ratio of a pair."""
        weighted, lost = self._weighted(rows, self.directions_y)
        return torch.cat([weighted, torch.ones_like(lost), -lost], dim=-1)

    def refitted(self, x: Spectrum, y: Spectrum, cross: Tensor) -> PairModel:
        """The same model, but for its directions: those of other pairs, of which this is the cross moment (dx, dy)."""
        directions_x, directions_y = canonical_directions(x, y, cross, self.ridge)
        count = len(self.correlations)
        return replace(
            self,
            directions_x=_to_variance_1(x, directions_x[:, :count]),
            directions_y=_to_variance_1(y, directions_y[:, :count]),
        )

    def products_x(self, y: Spectrum) -> Tensor:
        """What rows of X are multiplied by (dx, dy) for products with rows of Y whitened by the model's ridge.

        <x of these, y whitened> is the sum of r / (1 - r^2) u v. Models with one ridge can so be compared over one form
        of Y, whatever directions each of them has.
        """
        turned = y.whitening(self.ridge).T @ y.ridged(self.ridge) @ self.directions_y  # the directions once Y is white
        return (self.directions_x * self._weights()[0]) @ turned.T

    def losses_x(self, rows: Tensor) -> Tensor:
        """What rows (n, dx) lose whatever their partners are (n, 1)."""
        return self._weighted(rows, self.directions_x)[1]

    def losses_y(self, rows: Tensor) -> Tensor:
        """What rows (m, dy) lose whatever their partners are (m, 1)."""
        return self._weighted(rows, self.directions_y)[1]

    def _weighted(self, rows: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Canonical coordinates, weighted (n, c), and what a row loses whatever its partner is (n, 1)."""
        canonical = rows @ directions.to(rows.dtype)
        weights, losses = self._weights()
        lost = canonical.square() @ losses.to(rows.dtype)[:, None]
        return canonical * weights.sqrt().to(rows.dtype), lost

    def _weights(self) -> tuple[Tensor, Tensor]:
        """What products u v and squares u^2, v^2 count (c,)."""
        left_over = 1 - self.correlations.square()
        return self.correlations / left_over, self.correlations.square() / (2 * left_over)


def fit_pair_model(x: Spectrum, y: Spectrum, halves: Halves, ridge: float | None = None) -> PairModel:
    """The model that pairs imply, given by the moments of two halves of them; the best ridge unless one is given."""
    if ridge is None:
        ridge = choose_ridge(x, y, halves)
    correlations = held_out_correlations(x, y, halves, ridge)
    directions_x, directions_y = canonical_directions(x, y, halves[0].cross + halves[1].cross, ridge)
    kept = correlations > _LEAST
    kept[0] = True  # a model of nothing would have no coordinates
    return PairModel(
        _to_variance_1(x, directions_x[:, kept]),
        _to_variance_1(y, directions_y[:, kept]),
        correlations[kept].clamp_min(_LEAST),
        ridge,
    )


def canonical_directions(x: Spectrum, y: Spectrum, cross: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Directions (dx, c) and (dy, c) along which rows paired with this cross moment (dx, dy) vary together, by rank."""
    white_x, white_y = x.whitening(ridge)[:, :_MOST_AXES], y.whitening(ridge)[:, :_MOST_AXES]
    turned_x, turned_y = _singular_vectors(white_x.T @ cross @ white_y)
    return white_x @ turned_x, white_y @ turned_y


def canonical_map(x: Spectrum, y: Spectrum, cross: Tensor, ridge: float, factors: Tensor) -> Tensor:
    """The map (dx, dy) that sends each canonical coordinate of X to its counterpart, times a factor (c,).

    With the correlations as factors it is the best linear prediction of the model.
    """
    left, right = canonical_directions(x, y, cross, ridge)
    left, right = _to_variance_1(x, left), _to_variance_1(y, right)
    loadings = (right.T @ y.axes * y.variances) @ y.axes.T  # how much of each coordinate is in each dimension of Y
    return (left * factors) @ loadings


def coloured_rotation(x: Spectrum, y: Spectrum, cross: Tensor, strength: float = 0.5, ridge: float = 0.01) -> Tensor:
    """The map (dx, dy) that whitens X by `strength`, turns it as a cross moment (dx, dy) says, and gives it Y's colour.

    Strength 0 is the plain rotation; 1 gives what it carries the covariance of Y. In between, axes on which the two
    spaces vary to different degrees come to terms, and still it is a rotation that is all there is to learn.
    """
    white_x, white_y = (space.powered(-strength / 2, ridge) for space in (x, y))
    return white_x @ nearest_rotation(white_x @ cross @ white_y) @ y.powered(strength / 2, ridge)


def held_out_correlations(x: Spectrum, y: Spectrum, halves: Halves, ridge: float) -> Tensor:
    """Correlations (c,) of pairs along directions fitted to the other half of them, never rising, in [0, 0.98]."""
    total = torch.zeros((), dtype=torch.float64, device=x.axes.device)
    for fitted, held_out in (halves, halves[::-1]):
        left, right = canonical_directions(x, y, fitted.cross, ridge)
        covariance = (left * (held_out.cross @ right)).sum(dim=0)
        variances = (left * (held_out.source @ left)).sum(dim=0) * (right * (held_out.target @ right)).sum(dim=0)
        total = total + covariance / variances.clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    # Directions come by rank; where a later one seems stronger, that is noise.
    smooth = isotonic_regression((total / 2).nan_to_num().cpu().numpy(), increasing=False).x
    return torch.from_numpy(smooth.copy()).to(x.axes.device).clamp(0, _GREATEST)


def choose_ridge(x: Spectrum, y: Spectrum, halves: Halves) -> float:
    """The ridge under which pairs tell most of each other on pairs the directions were not fitted to, or a little less.

    Information rises with the ridge and falls again, so that only a few are tried.
    """
    known: dict[int, float] = {}

    def information(position: int) -> float:
        if position not in known:
            known[position] = float(_information(held_out_correlations(x, y, halves, RIDGES[position])))
        return known[position]

    best = _climb(information, _FIRST_TRIED, len(RIDGES))
    least = best
    while least > 0 and information(least - 1) >= _KEPT_INFORMATION * information(best):
        least -= 1
    return RIDGES[least]


def _climb(height: Callable[[int], float], start: int, count: int) -> int:
    """The position, of so many, from which both neighbours go down."""
    at = start
    for step in (1, -1):
        while 0 <= at + step < count and height(at + step) > height(at):
            at += step
    return at


def _information(correlations: Tensor) -> Tensor:
    return -torch.log1p(-correlations.square()).sum() / 2


def _to_variance_1(space: Spectrum, directions: Tensor) -> Tensor:
    tiny = torch.finfo(torch.float32).tiny
    return directions / space.variance_along(directions).clamp_min(tiny).sqrt()


def _singular_vectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Left (a, c) and right (b, c) singular vectors of (a, b), greatest first.

    By the smaller Gram matrix, in a quarter of the time of a singular value decomposition; the vectors of the very
    least values are inexact, and such directions tell nothing.
    """
    if matrix.shape[0] > matrix.shape[1]:
        right, left = _singular_vectors(matrix.T)
        return left, right
    squares, vectors = eigh(matrix @ matrix.T)
    left = vectors.flip(1)
    values = squares.flip(0).clamp_min(0).sqrt()
    floor = 1e-10 * values[0] + torch.finfo(torch.float32).tiny
    return left, (matrix.T @ left) / values.clamp_min(floor)

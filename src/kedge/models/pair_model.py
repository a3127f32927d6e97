"""The pair model: how likely it is that two vectors are one item seen twice.

A Gaussian (probabilistic) CCA, read by its likelihood ratio as in PLDA scoring. Rows of both spaces are modelled as
Gaussian, with the covariance of *all* rows of their space, and the two rows of a pair as correlated. In *canonical
coordinates* u and v, which have variance 1 and in which only u_i and v_i of the same index are correlated (r_i), the
log likelihood ratio of a vector of X and one of Y, as a pair against a non-match, is

    sum_i  r_i / (1 - r_i^2) u_i v_i  -  r_i^2 / (2 (1 - r_i^2)) (u_i^2 + v_i^2)  -  log(1 - r_i^2) / 2 .

This is one inner product, of rows with two more numbers: their *shared coordinates*. The pairs themselves show how many
directions count, and how much: correlations are measured on pairs that the directions were not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kedge.geometry import Spectrum, canonical_directions, held_out_correlations
from kedge.geometry.canonical import Halves, Turns

RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Multiples of a space's mean variance that may be added to every variance before whitening."""

# The smallest ridge that keeps this share of the maximum information is taken, not the best on the pairs at hand: these
# are only half of the pairs, and only ones that the last model found. Both favour more ridge than suits all rows.
_KEPT_INFORMATION = 0.95
_MIN_CORRELATION = 0.03  # weaker directions are left out
_FIRST_TRIED = RIDGES.index(1.0)
# With this many pairs in each half, one way round is enough to compare ridges by.
_FEW_PAIRS = 1000


@dataclass(frozen=True)
class PairModel:
    """Canonical directions of X (dx, c) and of Y (dy, c), scaled to variance 1, and their correlations (c,).

    `ridge` is the one it was fitted with, 0 if there were too few pairs for a model.
    """

    directions_x: Tensor
    directions_y: Tensor
    correlations: Tensor
    ridge: float

    @property
    def biases(self) -> int:
        """How many of the shared coordinates are what a row loses or gains whatever its partner is."""
        return 2

    @property
    def information(self) -> float:
        """-sum log(1 - r^2) / 2: the mean log likelihood ratio of true pairs, if the model is right."""
        return float(_information(self.correlations))

    def on(self, device: torch.device, dtype: torch.dtype) -> PairModel:
        """The same model on another device, or in another precision."""
        left, right = self.directions_x.to(device, dtype), self.directions_y.to(device, dtype)
        return PairModel(left, right, self.correlations.to(device, dtype), self.ridge)

    def shared_x(self, rows: Tensor) -> Tensor:
        """Shared coordinates (n, c + 2) of normalised rows (n, dx); see the module's docstring."""
        weighted, lost = self._weighted(rows, self.directions_x)
        return torch.cat([weighted, self.information - lost, torch.ones_like(lost)], dim=-1)

    def shared_y(self, rows: Tensor) -> Tensor:
        """Shared coordinates (m, c + 2) of normalised rows (m, dy): <x, y> is the log likelihood ratio of a pair."""
        weighted, lost = self._weighted(rows, self.directions_y)
        return torch.cat([weighted, torch.ones_like(lost), -lost], dim=-1)

    def refitted(self, x: Spectrum, y: Spectrum, cross: Tensor) -> PairModel:
        """The same model, but with the directions of other pairs, given by their cross moment (dx, dy)."""
        directions_x, directions_y = canonical_directions(x, y, cross, self.ridge)
        count = len(self.correlations)
        return replace(
            self,
            directions_x=x.scaled_to_unit(directions_x[:, :count]),
            directions_y=y.scaled_to_unit(directions_y[:, :count]),
        )

    def products_x(self) -> Tensor:
        """The matrix M (dx, dy) for which x^T M y is the sum of r / (1 - r^2) u v.

        It lets several models share one form of Y, although each has directions of its own.
        """
        return (self.directions_x * self._weights()[0].to(self.directions_x.dtype)) @ self.directions_y.T

    def in_coordinates(self, axes_x: Tensor, axes_y: Tensor) -> PairModel:
        """The same model for rows in other coordinates: after a product with axes_x (dx, kx) or axes_y (dy, ky)."""
        left = axes_x.to(self.directions_x.dtype) @ self.directions_x
        right = axes_y.to(self.directions_y.dtype) @ self.directions_y
        return replace(self, directions_x=left, directions_y=right)

    def losses_x(self, rows: Tensor) -> Tensor:
        """What rows (n, dx) lose (n, 1) whatever their partners are."""
        return self._weighted(rows, self.directions_x)[1]

    def losses_y(self, rows: Tensor) -> Tensor:
        """What rows (m, dy) lose (m, 1) whatever their partners are."""
        return self._weighted(rows, self.directions_y)[1]

    def _weighted(self, rows: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted canonical coordinates (n, c), and what each row loses (n, 1) whatever its partner is."""
        canonical = rows @ directions.to(rows.dtype)
        weights, losses = self._weights()
        lost = canonical.square() @ losses.to(rows.dtype)[:, None]
        return canonical * weights.sqrt().to(rows.dtype), lost

    def _weights(self) -> tuple[Tensor, Tensor]:
        """The weights (c,) of products u v, and (c,) of squares u^2 and v^2."""
        left_over = 1 - self.correlations.square()
        return self.correlations / left_over, self.correlations.square() / (2 * left_over)


def fit_pair_model(
    x: Spectrum, y: Spectrum, halves: Halves, ridge: float | None = None, near: float | None = None
) -> PairModel:
    """Fit the model to pairs, given by the moments of two halves of them.

    The best ridge is chosen unless one is given; if it is known to be `near` one, only that and its neighbours are
    tried.
    """
    known: Turns = {}
    if ridge is None:
        ridge = choose_ridge(x, y, halves, near, known)
    correlations = held_out_correlations(x, y, halves, ridge, known=known)
    directions_x, directions_y = canonical_directions(x, y, halves[0].cross + halves[1].cross, ridge)
    kept = correlations > _MIN_CORRELATION
    kept[0] = True  # a model of nothing would have no coordinates
    return PairModel(
        x.scaled_to_unit(directions_x[:, kept]),
        y.scaled_to_unit(directions_y[:, kept]),
        correlations[kept].clamp_min(_MIN_CORRELATION),
        ridge,
    )


def choose_ridge(
    x: Spectrum, y: Spectrum, halves: Halves, near: float | None = None, known: Turns | None = None
) -> float:
    """The ridge with the most information on held-out pairs, or a smaller one with nearly as much.

    Information rises with the ridge and then falls, so that only a few are tried; if the ridge is known to be `near`
    one, only that and its neighbours. `known` is a cache of correlations measured for these halves.
    """
    heights: dict[int, float] = {}
    few = float(halves[0].source.trace()) < _FEW_PAIRS  # about the number of pairs, since rows have unit norm

    def information(position: int) -> float:
        if position not in heights:
            correlations = held_out_correlations(x, y, halves, RIDGES[position], both=few, known=known)
            heights[position] = float(_information(correlations))
        return heights[position]

    if near in RIDGES:
        at = RIDGES.index(near)
        best = max(range(max(at - 1, 0), min(at + 2, len(RIDGES))), key=information)
        lowest = max(at - 1, 0)
    else:
        best = _climb(information, _FIRST_TRIED, len(RIDGES))
        lowest = 0
    smallest = best
    while smallest > lowest and information(smallest - 1) >= _KEPT_INFORMATION * information(best):
        smallest -= 1
    return RIDGES[smallest]


def _climb(height: Callable[[int], float], start: int, count: int) -> int:
    """The position, out of `count`, of a local maximum of `height`, by hill climbing from `start`."""
    at = start
    for step in (1, -1):
        while 0 <= at + step < count and height(at + step) > height(at):
            at += step
    return at


def _information(correlations: Tensor) -> Tensor:
    return -torch.log1p(-correlations.square()).sum() / 2

"""What chance alone reaches on the same spaces: random starts, and the ground on which maps compete with them.

A wrong map is one local optimum among many, and no better than the others; the right one stands out in two ways. It
brings the rows of X *closer* to those of Y, but so does a map that is right about topics and wrong about everything
else. And when annealing continues separately on two halves of the rows, the two resulting maps still take rows to the
same places: they *agree*, since the details can be found in either half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, orthogonal_map, unit
from kedge.judging.symmetries import reflections
from kedge.matching import CosineReading, Match, Problem, transport_value
from kedge.models.pair_fitting import pair_cross
from kedge.solving.alignment import Judge
from kedge.solving.annealing import anneal, leading_axes
from kedge.solving.finishing import finish
from kedge.solving.schedule import Schedule
from kedge.solving.steps import Log

SAMPLE = 4000
"""Rows of each space on which maps compete."""

_ROUNDS = Schedule(sample_size=SAMPLE, anneal_rounds=20, epsilon_end=0.04, finish_rounds=4, parts=1)
# Longer and sharper, as in a discovery that makes several attempts: what chance reaches this way is the fair rival of a
# match that is not clearly better than what fewer rounds reach.
_SHARP_ROUNDS = replace(_ROUNDS, anneal_rounds=60, epsilon_end=0.02)
_ROUNDS_PER_HALF = Schedule(anneal_rounds=10, epsilon_start=0.06, epsilon_end=0.04, parts=1)
# Sinkhorn rounds under a fixed rotation, for the plan to settle before it is valued.
_ROUNDS_TO_VALUE = 3
# A rival that takes this share of rows to where the map takes them is the map; about so many rows are compared.
_SAME_MAP = 0.2
_COMPARED = 1000
# A mirror image is worth annealing if it has at least this share of the map's gain as it is.
_WORTH_ANNEALING = 0.5


@dataclass(frozen=True)
class Rival:
    """A rotation (kx, ky), how close it brings the spaces, and how far two halves of the rows agree about it."""

    rotation: Tensor
    value: float
    agreement: float


@dataclass(frozen=True)
class Ground:
    """Where maps compete: unit rows x (n, kx) and y (m, ky) of a sample, in the leading axes (dx, kx) and (dy, ky)."""

    sample: Problem
    axes_x: Tensor
    axes_y: Tensor
    x: Tensor
    y: Tensor
    random_state: int

    @classmethod
    def from_sample(cls, sample: Problem, random_state: int) -> Ground:
        """The ground of a sample."""
        axes_x, axes_y = (leading_axes(rows, _ROUNDS.rank) for rows in (sample.x, sample.y))
        return cls(sample, axes_x, axes_y, unit(sample.x @ axes_x), unit(sample.y @ axes_y), random_state)

    @cached_property
    def value_of_nothing(self) -> float:
        """The value of a random rotation as it is."""
        return self._value(self.random_rotation(0))

    def random_rotation(self, number: int) -> Tensor:
        """A random rotation (kx, ky), a different one for every number."""
        generator = torch.Generator().manual_seed((self.random_state + number) % 2**63)
        rows = max(self.x.shape[1], self.y.shape[1])
        left, right = (torch.randn(rows, s.shape[1], generator=generator).to(s) for s in (self.x, self.y))
        return orthogonal_map(left, right)

    def rotation(self, problem: Problem, match: Match) -> Tensor:
        """The rotation (kx, ky) that the mutual pairs of a match imply."""
        return self.within_axes(pair_cross(problem, *match.pairs()))

    def within_axes(self, matrix: Tensor) -> Tensor:
        """The rotation (kx, ky) nearest to a map or a cross moment (dx, dy)."""
        matrix = matrix.to(self.axes_x.dtype)
        return nearest_rotation((self.axes_x.T @ matrix @ self.axes_y).double()).to(self.x.dtype)

    def annealed(self, rotation: Tensor, *, sharply: bool = False) -> Tensor:
        """A rotation (kx, ky) after some rounds of annealing."""
        return anneal(self.sample, self.x, self.y, rotation, _SHARP_ROUNDS if sharply else _ROUNDS, Log()).rotation

    def match_by_chance(self, judge: Judge, *, sharply: bool = False) -> Match:
        """The match of the sample that the method reaches from a random rotation."""
        reading = CosineReading(self.axes_x @ self.annealed(self.random_rotation(0), sharply=sharply), self.axes_y)
        return finish(self.sample, reading, _ROUNDS.finish_rounds, judge, Log()).match

    def same_or_image(self, one: Tensor, other: Tensor) -> bool:
        """Whether two rotations are roughly the same map, or one is a mirror image of the other."""
        images = [one, -one, *(one @ reflection for reflection in self._reflections)]
        return any(self.same(image, other) for image in images)

    def grown_from_chance(self, number: int) -> Rival:
        """A random rotation after as much annealing as a discovery gets, with its value and agreement."""
        return self.improved(self.annealed(self.random_rotation(number), sharply=True))

    def images(self, found: Rival) -> list[Tensor]:
        """Variants (kx, ky) of a map's rotation, with axes flipped, that bring the spaces about as close."""
        gained = found.value - self.value_of_nothing
        images = [found.rotation @ reflection for reflection in self._reflections]
        return [image for image in images if self._value(image) - self.value_of_nothing >= _WORTH_ANNEALING * gained]

    @cached_property
    def _reflections(self) -> list[Tensor]:
        return reflections(self.y)

    @property
    def may_be_symmetric(self) -> bool:
        """Whether the moments allow a reflection of Y onto itself."""
        return bool(self._reflections)

    def improved(self, rotation: Tensor) -> Rival:
        """A rotation (kx, ky) after some rounds of annealing, with its value and agreement."""
        better = self.annealed(rotation)
        per_half = [
            anneal(half, self.x[rows_x], self.y[rows_y], better, _ROUNDS_PER_HALF, Log()).rotation
            for half, rows_x, rows_y in self._halves
        ]
        return Rival(better, self._value(better), self._agreement(*per_half))

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two rotations are roughly the same map."""
        return self._agreement(one, other) >= _SAME_MAP

    @cached_property
    def _halves(self) -> list[tuple[Problem, Tensor, Tensor]]:
        """Two disjoint halves of the sample, and which rows they are."""
        generator = torch.Generator().manual_seed(self.random_state)
        orders = [torch.randperm(len(rows), generator=generator).to(rows.device) for rows in (self.x, self.y)]
        parts = [[order[part::2] for order in orders] for part in (0, 1)]
        return [(replace(self.sample, x=self.x[i], y=self.y[j]), i, j) for i, j in parts]

    def _agreement(self, one: Tensor, other: Tensor) -> float:
        """The share of some rows whose image under one rotation is nearest to their own image under the other."""
        rows = self.x[:: max(1, len(self.x) // _COMPARED)]  # from all over: files are often sorted
        nearest = (unit(rows @ one) @ unit(rows @ other).T).argmax(dim=1)
        return float((nearest == torch.arange(len(rows), device=rows.device)).float().mean())

    def _value(self, rotation: Tensor) -> float:
        """How close a rotation (kx, ky) brings the spaces."""
        mapped = unit(self.x @ rotation)
        return transport_value(mapped, self.y, _ROUNDS.epsilon_end, _ROUNDS_TO_VALUE, budget=self.sample.budget)

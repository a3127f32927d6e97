"""Starts from independent components, which two spaces share however they were rotated or stretched.

Encoders of the same kind of items have much the same components (a topic, a style of wording), in a different order,
even where they disagree about similarities and no item is in both files. Which components correspond is inferred from
how their values are distributed, from which others they are large together with, and from a hint: the rough cross
moment of a start from seeds or fingerprints. Some of the matches are right, and annealing needs no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from kedge.geometry import Components, nearest_rotation, standardise, unit
from kedge.matching import CosineReading, Problem, epsilon_schedule
from kedge.solving.annealing import anneal, leading_axes
from kedge.solving.closeness import Closeness, implied_cross
from kedge.solving.schedule import Schedule
from kedge.solving.starts import SharedCoordinates, cross_at_start
from kedge.solving.steps import Log

# At most this many components, fitted on at most this many rows, with at least this many rows for each component.
_COMPONENTS, _ROWS, _ROWS_EACH = 128, 40_000, 30
# The company of fewer components says nothing.
_MIN_COMPONENTS = 8
# What is tried: how many of the most peaked components are matched, and how much the hint is trusted.
_SIZES, _TRUST = (40, 60, 80, 100), (1.0, 3.0, 6.0, 12.0)
# Rounds of matching and the temperatures they go through; balancing steps in each; the weight of shapes and hint.
_ROUNDS, _WARM, _COLD = 60, 1.0, 0.05
_BALANCING = 10
_BESIDE_COMPANY = 0.05
# Weights of the five kinds of company.
_COMPANY_WEIGHTS = (1.0, 1.5, 1.0, 1.5, 1.0)
# A shape is this many quantiles of a component's values, and some of its tail; shapes are compared in the leading axes.
_QUANTILES, _TAIL, _SHAPE_AXES = 32, (0.99, 0.995, 0.998, 0.999), 4
# The weight of the hint in a start, beside the matched components.
_HINT_IN_START = 0.3
# Starts are compared on this many rows of either space.
_ROWS_AT_START = 2000
# The three closest starts are annealed twice. The closest result is annealed further, up to ten times in all, as long
# as that brings the spaces closer by at least this much.
_STARTS, _TURNS, _CLOSER = 3, 10, 5e-4
_WHITENINGS = (0.0, 0.5)
_TINY = torch.finfo(torch.float32).tiny


def read_by_components(
    problem: Problem, sample: Problem, shared: SharedCoordinates, schedule: Schedule, log: Log
) -> CosineReading:
    """The closest reading that annealing on a sample reaches from matches of the problem's components.

    `shared` are coordinates of the sample's rows, which give the hint. Annealing alternates between the spaces as they
    are and half-whitened: each leads out of optima in which the other gets stuck.
    """
    closeness = Closeness(sample)
    hint = cross_at_start(shared, sample.x, sample.y, sample).float()
    roughly = Closeness(sample, _ROWS_AT_START).of
    starts = sorted(starts_from_components(problem, hint), key=roughly, reverse=True)[:_STARTS]
    grounds = {strength: _Ground(sample, replace(schedule, whitening=strength)) for strength in _WHITENINGS}

    ways = 0

    def way(cross: Tensor, turn: int) -> _Way:
        nonlocal ways
        reading = grounds[_WHITENINGS[turn % len(_WHITENINGS)]].anneal(cross)
        cross = implied_cross(sample, reading)
        found = _Way(reading, cross, closeness.of(cross))
        ways += 1
        log.report("components", ways, 2 * len(starts) + _TURNS - 2, closeness=found.closeness)
        return found

    # Paths are compared after the same whitening: on whitened spaces all of them come a little closer.
    paths = []
    for start in starts:
        path = [way(start, 0)]
        paths.append([*path, way(path[-1].cross, 1)])
    path = max(paths, key=lambda path: path[-1].closeness)
    for turn in range(2, _TURNS):
        path.append(way(path[-1].cross, turn))
        gains = (now.closeness - before.closeness for now, before in zip(path[-2:], path[-4:-2], strict=False))
        if turn % 2 and max(gains) < _CLOSER:
            break
    return max(path[-2:], key=lambda way: way.closeness).reading


@dataclass(frozen=True)
class _Way:
    """A result of annealing: a reading, the cross moment (dx, dy) that it implies, and how close that is."""

    reading: CosineReading
    cross: Tensor
    closeness: float


@dataclass(frozen=True)
class _Ground:
    """A sample in its leading axes, whitened as the schedule says."""

    sample: Problem
    schedule: Schedule

    @cached_property
    def _whitened(self) -> Problem:
        return self.sample.whitened(self.schedule.whitening)

    @cached_property
    def _axes(self) -> tuple[Tensor, Tensor]:
        """Matrices (dx, kx) and (dy, ky) that whiten the sample's rows and project them onto their leading axes."""
        whitenings = self.sample.whitenings(self.schedule.whitening)
        left, right = (
            whitening @ leading_axes(rows, self.schedule.rank)
            for whitening, rows in zip(whitenings, (self._whitened.x, self._whitened.y), strict=True)
        )
        return left, right

    def anneal(self, cross: Tensor) -> CosineReading:
        """The reading that annealing reaches from a cross moment (dx, dy)."""
        left, right = self._axes
        start = nearest_rotation((left.T @ cross @ right).double()).float()
        x, y = unit(self.sample.x @ left), unit(self.sample.y @ right)
        found = anneal(self._whitened, x, y, start, self.schedule, Log(), until_still=True)
        return CosineReading(*found.places(left, right))


def starts_from_components(problem: Problem, hint: Tensor) -> list[Tensor]:
    """Cross moments (dx, dy) to start from: the hint, and those that matches of components imply.

    The matches are of several numbers of components, and trust the hint to several degrees.
    """
    count = min(_COMPONENTS, *problem.dims, min(len(problem.x), len(problem.y), _ROWS) // _ROWS_EACH)
    if count < _MIN_COMPONENTS:
        return [hint]
    sides = [_Side.of(rows, count) for rows in (problem.x, problem.y)]
    count = min(side.count for side in sides)
    expected = sides[0].components.directions.T @ hint @ sides[1].components.directions
    found = [hint]
    for size, trust in product(sorted({min(size, count) for size in _SIZES}), _TRUST):
        left, right = (side.leading(size) for side in sides)
        few = expected[:size, :size]
        matched = match_components(left, right, trust * few / few.std().clamp_min(_TINY))
        whole = _HINT_IN_START * matched.norm() / expected.norm().clamp_min(_TINY) * expected
        whole[:size, :size] += matched
        found.append(sides[0].components.loadings @ whole @ sides[1].components.loadings.T)
    return [cross for cross in found if bool(cross.isfinite().all())]


def match_components(left: _Side, right: _Side, hint: Tensor) -> Tensor:
    """A soft match (k, k) of k components of either side, whose rows and columns all sum to about 1.

    Pairs of components are rewarded for similar company: their partners should be large together as often as they are.
    This is a quadratic assignment, which is relaxed and hardens while the temperature falls. The hint (k, k), and how
    similar the shapes of two components are, count as well.
    """
    shapes = standardise(torch.cat([left.shapes, right.shapes]))
    axes, scales, _ = torch.linalg.svd(shapes, full_matrices=False)
    placed = axes[:, :_SHAPE_AXES] * scales[:_SHAPE_AXES].sqrt()
    alike = -torch.cdist(placed[: left.count], placed[left.count :]).square()
    alike = alike / alike.std().clamp_min(_TINY)
    beside = _BESIDE_COMPANY * (alike + hint)
    company = [
        (weight * _comparable(own), _comparable(others))
        for weight, own, others in zip(_COMPANY_WEIGHTS, left.company, right.company, strict=True)
    ]
    matched = _balanced(alike + hint)
    for temperature in epsilon_schedule(_WARM, _COLD, _ROUNDS):
        reward = beside.clone()
        for own, others in company:
            reward += (own @ matched @ others.T + own.T @ matched @ others) / (2 * left.count)
        matched = _balanced(reward / temperature)
    return matched


def _balanced(logits: Tensor) -> Tensor:
    """The exponentials (k, k), scaled until all rows and columns sum to about 1."""
    for _ in range(_BALANCING):
        logits = logits - logits.logsumexp(dim=1, keepdim=True)
        logits = logits - logits.logsumexp(dim=0, keepdim=True)
    return logits.exp()


@dataclass(frozen=True)
class _Side:
    """The components of a space, the most peaked first, and what they are matched by.

    `shapes` (k, q) are quantiles of their values; the matrices (k, k) of `company` say how large two are together.
    """

    components: Components
    shapes: Tensor
    company: tuple[Tensor, ...]

    @classmethod
    def of(cls, rows: Tensor, count: int) -> _Side:
        """At most `count` components of rows (n, d), or of evenly spaced ones where there are many."""
        some = rows[:: -(-len(rows) // _ROWS)].float()
        components = Components.of(some, count)
        values = some @ components.directions
        levels = torch.cat([(torch.arange(_QUANTILES) + 0.5) / _QUANTILES, torch.tensor(_TAIL)])
        positions = (levels * (len(values) - 1)).long().to(values.device)
        shapes = values.sort(dim=0).values[positions].T
        return cls(components, shapes, _company(values))

    @property
    def count(self) -> int:
        """How many components there are."""
        return len(self.shapes)

    def leading(self, count: int) -> _Side:
        """The `count` most peaked components."""
        kept = slice(count)
        parts = Components(self.components.directions[:, kept], self.components.loadings[:, kept])
        return _Side(parts, self.shapes[kept], tuple(matrix[kept, kept] for matrix in self.company))


def _company(values: Tensor) -> tuple[Tensor, ...]:
    """How large components with values (n, k) are together: five matrices (k, k).

    How large one is where another is far from zero; how often both are far from zero, by squares; how often both exceed
    two deviations, relative to independent components; the correlation of their positive parts; and that of the
    positive part of one with the negative part of the other.
    """
    squares = values.clamp(-5, 5).square()
    squares = squares - squares.mean(dim=0)
    large = (values > 2).to(values.dtype)
    often = large.sum(dim=0)
    positive, negative = standardise((values - 1).clamp(0, 4)), standardise((-values - 0.5).clamp(0, 3))
    rows = len(values)
    return (
        squares.T @ values / rows,
        squares.T @ squares / rows,
        torch.log((large.T @ large + 2) / (often[:, None] * often / rows + 2)),
        positive.T @ positive / rows,
        positive.T @ negative / rows,
    )


def _comparable(company: Tensor) -> Tensor:
    """Company (k, k) with a zero diagonal, by signed square roots, with mean 0 and deviation 1 elsewhere."""
    others = ~torch.eye(len(company), dtype=torch.bool, device=company.device)
    company = (company - company[others].mean()) * others
    company = company.sign() * company.abs().sqrt()
    company = (company - company[others].mean()) * others
    return company / company[others].std().clamp_min(_TINY)

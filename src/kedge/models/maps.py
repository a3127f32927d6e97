"""The map from one space to the other, chosen by what searching with it needs.

A map is for an index that compares by plain cosine, so it is judged as a search: how high a row's own partner ranks,
and how many of the ten nearest are those that the partner itself would find. Both are measured on pairs that the map
was not fitted to. Which kind of map wins differs between spaces: a rotation where they are alike, least squares where
pairs are many, and in between *canonical* maps, which carry every canonical coordinate across and shrink it by a power
of its correlation (the first power is the best linear prediction; less keeps more of what tells neighbours apart).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from kedge.geometry import (
    Moments,
    Spectrum,
    canonical_map,
    choose_ridge,
    coloured_rotation,
    denormalise,
    held_out_correlations,
    nearest_rotation,
    ridge,
    unit,
)
from kedge.matching import processes, row_blocks
from kedge.matching.problem import Problem
from kedge.solving.alignment import halves_of, map_from, pair_moments

ENOUGH_KNOWN = 50
"""From so many known pairs on, they and not the found ones are what choices are judged by."""

NEIGHBOURS = 10
"""How many of the nearest rows count as a search's answer."""

_FOLDS = 5
# Folds are gone through until so many pairs were tested; against at most so many rows.
_TESTED, _INDEX = 1000, 5000
_FEWEST_TESTED = 10
_RIDGES = (0.0, 0.01, 0.1, 1.0)
_POWERS = (0.25, 0.5, 1.0)
_COLOURED = "coloured rotation"
# How much soft pairs may count, in multiples of what they do where nothing can be held out.
_SOFT_WEIGHTS = (0.2, 1, 5)


@dataclass(frozen=True)
class Centers:
    """What was taken off the rows of X (dx,) and Y (dy,), if anything."""

    x: Tensor | None
    y: Tensor | None


@dataclass(frozen=True)
class ChosenMap:
    """A map (ds, dt), what kind it is, and how a search with it does on pairs it was not fitted to.

    `own_rank` is the mean reciprocal rank of a row's partner, `overlap` the share of its ten nearest that the partner
    has too; both are None where there were too few pairs to tell.
    """

    matrix: Tensor
    kind: str
    own_rank: float | None = None
    overlap: float | None = None

    @property
    def described(self) -> dict[str, str | float | None]:
        """All but the matrix."""
        return {"kind": self.kind, "own_rank": self.own_rank, "overlap": self.overlap}


def choose_map(
    problem: Problem,
    rows_x: Tensor,
    rows_y: Tensor,
    known: int,
    center: Tensor | None,
    soft: Tensor | None = None,
) -> ChosenMap:
    """The best map from X to Y that pairs (p,) of rows give, of which the first `known` are certain.

    Where enough are, they alone are tested, and maps fitted to them alone are among the candidates. `center` (dy,) is
    what was taken off Y, whose rows are searched as they were before. `soft` (dx, dy) is the cross moment of soft pairs
    where the found ones are few or in doubt: then maps of it and of the known pairs are candidates too, and with too
    few known ones to tell, it is such a map that is taken.
    """
    generator = torch.Generator().manual_seed(0)
    certain = known >= ENOUGH_KNOWN
    if soft is not None and not certain:
        cross = pair_moments(problem, rows_x[:known], rows_y[:known]).cross + soft
        return ChosenMap(
            _same_everywhere(coloured_rotation(problem.spectrum_x, problem.spectrum_y, cross)), f"soft {_COLOURED}"
        )
    testable = known if certain else len(rows_x)
    fold = torch.full((len(rows_x),), _FOLDS)  # the last one is never left out
    fold[:testable] = torch.randperm(testable, generator=generator) % _FOLDS
    fold = fold.to(rows_x.device)
    groups = {"all": [pair_moments(problem, rows_x[fold == i], rows_y[fold == i]) for i in range(_FOLDS + 1)]}
    if certain and known < len(rows_x):
        groups = {"known": groups["all"][:_FOLDS]} | groups  # the found pairs are what is never left out
    makers: dict[str, _Maker | _SoftMaker]
    makers = {name: _Maker.of(problem, rows_x[: known if name == "known" else None], rows_y) for name in groups}
    if soft is not None:
        for weight in _SOFT_WEIGHTS:
            nothing = torch.zeros_like(groups["all"][0].source), torch.zeros_like(groups["all"][0].target)
            name = f"soft x{weight}"
            groups[name] = [*groups["all"][:_FOLDS], Moments(nothing[0], weight * soft, nothing[1])]
            makers[name] = _SoftMaker(problem.spectrum_x, problem.spectrum_y)
    totals = {name: reduce(Moments.__add__, parts) for name, parts in groups.items()}

    scores: dict[tuple[str, str], list[Tensor]] = {}
    tested = 0
    for index in range(_FOLDS):
        inside = (fold == index).nonzero(as_tuple=True)[0][: _TESTED - tested]
        if not len(inside):
            break
        trial = _Trial.of(problem, rows_x[inside], rows_y[inside], center, generator)
        for name, parts in groups.items():
            for kind, matrix in makers[name].maps(totals[name] - parts[index]):
                scores.setdefault((name, kind), []).append(trial.scores(matrix))
        tested += len(inside)
    if tested < _FEWEST_TESTED:
        return ChosenMap(_same_everywhere(map_from(totals["all"])), "refined rotation")
    means = {which: torch.cat(found, dim=1).mean(dim=1) for which, found in scores.items()}
    name, kind = max(means, key=lambda which: float(means[which].sum()))
    matrix = dict(makers[name].maps(totals[name]))[kind]
    own_rank, overlap = means[name, kind].tolist()
    said = {"known": f"{kind} of the known pairs alone", "all": kind}.get(name, f"soft {kind}")
    return ChosenMap(_same_everywhere(matrix), said, own_rank, overlap)


@dataclass(frozen=True)
class _Maker:
    """What the candidates need besides the moments of the pairs they are fitted to."""

    x: Spectrum
    y: Spectrum
    ridge: float
    correlations: Tensor

    @classmethod
    def of(cls, problem: Problem, rows_x: Tensor, rows_y: Tensor) -> _Maker:
        halves = halves_of(problem, rows_x, rows_y[: len(rows_x)])
        x, y = problem.spectrum_x, problem.spectrum_y
        best = choose_ridge(x, y, halves)
        return cls(x, y, best, held_out_correlations(x, y, halves, best))

    def maps(self, moments: Moments) -> Iterator[tuple[str, Tensor]]:
        """The candidates, by name, that pairs with these moments give."""
        yield "rotation", nearest_rotation(moments.cross)
        yield _COLOURED, coloured_rotation(self.x, self.y, moments.cross)
        yield "refined rotation", map_from(moments)
        for penalty in _RIDGES:
            name = f"least squares, ridge {penalty:g}" if penalty else "least squares"
            yield name, ridge(moments.source, moments.cross, penalty)
        for power in _POWERS:
            shrunk = self.correlations.pow(power)
            yield f"canonical, power {power:g}", canonical_map(self.x, self.y, moments.cross, self.ridge, shrunk)


@dataclass(frozen=True)
class _SoftMaker:
    """The one candidate for soft pairs: they say nothing of lengths, and a flexible map would learn them by heart."""

    x: Spectrum
    y: Spectrum

    def maps(self, moments: Moments) -> Iterator[tuple[str, Tensor]]:
        """The candidate, by name."""
        yield _COLOURED, coloured_rotation(self.x, self.y, moments.cross)


@dataclass(frozen=True)
class _Trial:
    """Searches whose answers are known: rows (t, dx) of X, an index (i, dy) of Y, and where the partners are in it."""

    queries: Tensor
    index: Tensor
    partners: Tensor
    center: Tensor | None
    partners_nearest: Tensor
    budget: int

    @classmethod
    def of(
        cls, problem: Problem, rows_x: Tensor, rows_y: Tensor, center: Tensor | None, generator: torch.Generator
    ) -> _Trial:
        others = torch.randperm(len(problem.y), generator=generator)[:_INDEX].to(rows_y.device)
        drawn = torch.unique(torch.cat([rows_y, others]))
        index = denormalise(problem.y.take(drawn), center)
        partners = torch.searchsorted(drawn, rows_y)
        nearest = _nearest(index[partners], index, problem.budget)
        return cls(problem.x.take(rows_x), index, partners, center, nearest, problem.budget)

    def scores(self, matrix: Tensor) -> Tensor:
        """Reciprocal ranks of the partners, and overlaps with what they would find (2, t)."""
        queries = denormalise(unit(self.queries @ matrix.to(self.queries.dtype)), self.center)
        parts = []
        for rows, similarity in row_blocks(queries, self.index, self.budget):
            theirs = self.partners_nearest[rows]
            nearest = similarity.topk(theirs.shape[1], dim=1).indices
            shared = (nearest[:, :, None] == theirs[:, None, :]).any(dim=2).double().mean(dim=1)
            # Counted in place: the sum of a mask would hold it once more as integers, twice as large as the block.
            own = similarity.gather(1, self.partners[rows, None])
            rank = similarity.gt_(own).sum(dim=1) + 1
            parts.append(torch.stack([1 / rank.double(), shared]))
        return torch.cat(parts, dim=1)


def _nearest(queries: Tensor, index: Tensor, budget: int) -> Tensor:
    """The ten rows of an index (i, d) nearest to each query (t, d): (t, 10)."""
    count = min(NEIGHBOURS, len(index))
    return torch.cat([block.topk(count, dim=1).indices for _, block in row_blocks(queries, index, budget)])


def _same_everywhere(matrix: Tensor) -> Tensor:
    return processes().from_first(matrix.float())

"""The map from one space to the other, chosen by how well searches with it do.

A map is for an index that compares by plain cosine, so it is judged by searches: how high a row's own partner ranks,
and how many of the ten nearest are those that the partner itself would find. Both are measured on pairs that the map
was not fitted to. Which family wins differs between spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kedge.geometry import Moments, denormalise, held_out_correlations, nearest_rotation, unit
from kedge.geometry.canonical import Turns
from kedge.matching import Problem, largest, row_blocks
from kedge.models.maps import recolored, refined
from kedge.models.maps.families import FAMILIES, candidates
from kedge.models.maps.lesson import Lesson
from kedge.models.maps.linear import LinearMap
from kedge.models.maps.protocol import Map
from kedge.models.pair_fitting import moments_of_halves, pair_moments
from kedge.models.pair_model import choose_ridge

ENOUGH_KNOWN = 50
"""With at least this many known pairs, choices are judged by them instead of the found ones."""

NEIGHBOURS = 10
"""How many of the nearest rows count as a search's answer."""

# If known pairs are many, this share of them, within these limits, is kept from the search for testing.
_UNUSED_SHARE, _MIN_UNUSED, _MAX_UNUSED = 0.25, 20, 500
_FOLDS = 5
# Folds are tested until about this many pairs were, within a tenth; against about this many rows at most.
_TESTED, _INDEX = 1000, 5000
# Of this many searches or more, every fourth comes first; maps that trail the best there by more than this, out of 2,
# are not tried on the others.
_MANY, _HOPELESS = 400, 0.05
_MIN_TESTED = 10
# Weights to try for soft pairs, as multiples of what they count if nothing can be held out.
_SOFT_WEIGHTS = (0.2, 1, 5)

_Which = tuple[int, str, str]  # the index of a course, a family, and the label of a map


@dataclass(frozen=True)
class Centers:
    """What was subtracted from the rows of X (dx + 1,) and Y (dy + 1,), or None.

    The last number is the length of what lies outside the coordinates of the rows.
    """

    x: Tensor | None
    y: Tensor | None


class HeldOutMargins(NamedTuple):
    """Rows (t,) of the source, each translated by a map that had not seen its pair, and their margins (t,).

    A margin is by how much the similarity of the row's own partner exceeds what it takes to be among the ten nearest of
    all rows.
    """

    rows: Tensor
    margins: Tensor


@dataclass(frozen=True)
class ChosenMap:
    """A map, its family, a more specific label, and how well searches with it do on pairs it was not fitted to.

    `mrr` is the mean reciprocal rank of a row's partner, `overlap` the share of its ten nearest that the partner has,
    too; both are None if there were too few pairs to measure them. `tested` pairs were held out in turn: known ones
    (`by_known`), or both known and found ones, which are easier.
    """

    map: Map
    family: str
    label: str
    mrr: float | None = None
    overlap: float | None = None
    tested: int = 0
    by_known: bool = False
    margins: HeldOutMargins | None = None

    @property
    def description(self) -> dict[str, Any]:
        """Everything but the map and its margins."""
        scores = {"mrr": self.mrr, "overlap": self.overlap, "tested": self.tested, "by_known": self.by_known}
        return {"family": self.family, "kind": self.label, **scores}


def kept_from_search(known: int) -> Tensor:
    """Mask (s,) of the known pairs that are kept from the search; none if there are too few.

    What a search finds is biased towards the pairs that it began with, even where it is wrong. Only pairs that it has
    never seen show how it does on others.
    """
    mask = torch.zeros(known, dtype=torch.bool)
    if known >= ENOUGH_KNOWN:
        unused = min(max(int(_UNUSED_SHARE * known), _MIN_UNUSED), _MAX_UNUSED)
        mask[torch.randperm(known, generator=torch.Generator().manual_seed(0))[:unused]] = True
    return mask


def choose_map(
    problem: Problem,
    rows_x: Tensor,
    rows_y: Tensor,
    known: int,
    center: Tensor | None,
    soft: Tensor | None = None,
    families: dict[str, str] | None = None,
    tested: Tensor | None = None,
) -> ChosenMap:
    """Choose the best map from X to Y for pairs (p,) of rows, of which the first `known` are certain.

    If enough are, only they are tested, all of them or those in the mask `tested` (known,), and maps fitted to them
    alone are among the candidates. `center` (dy + 1,) is what was subtracted from Y, whose rows are searched as they
    were before. `soft` (dx, dy) is the cross moment of soft pairs, given if found pairs are few or in doubt: then maps
    fitted to it and the known pairs are candidates, too, and if there are too few known pairs to choose by, such a map
    is taken.
    """
    certain = known >= ENOUGH_KNOWN
    if soft is not None and not certain:
        moments = pair_moments(problem, rows_x[:known], rows_y[:known])
        return _soft_map(problem, moments.cross + soft)
    generator = torch.Generator().manual_seed(0)
    testable = torch.arange(known if certain else len(rows_x))
    if certain and tested is not None and int(tested.sum()) >= _MIN_TESTED:
        testable = testable[tested.cpu()]
    fold = torch.full((len(rows_x),), _FOLDS)  # the last fold is never left out
    fold[testable] = torch.randperm(len(testable), generator=generator) % _FOLDS
    fold = fold.to(rows_x.device)
    parts = _moments_by_fold(problem, rows_x, rows_y, fold)
    of_known = parts
    courses = []
    if certain and known < len(rows_x):
        alone = rows_x[:known], rows_y[:known], fold[:known]
        of_known = _moments_by_fold(problem, *alone)
        courses.append(_Course.from_pairs(problem, *alone, of_known, True))
    courses.append(_Course.from_pairs(problem, rows_x, rows_y, fold, parts, False))
    courses_soft = [] if soft is None else [_SoftCourse(problem, of_known, w * soft) for w in _SOFT_WEIGHTS]

    scores: dict[_Which, list[Tensor]] = {}
    tested_rows: list[Tensor] = []
    trials = 0
    everything: list[_Course | _SoftCourse] = [*courses, *courses_soft]
    for index in range(_FOLDS):
        inside = (fold == index).nonzero(as_tuple=True)[0][: _TESTED - trials]
        if not len(inside) or trials > 0.9 * _TESTED:
            break
        trial = _Trial.from_pairs(problem, rows_x[inside], rows_y[inside], center, generator)
        fitted = {
            (number, found.family, found.label): found.map
            for number, course in enumerate(everything)
            for found in course.maps(index, families)
        }
        in_fold = trial.scores_of({which: fitted[which] for which in fitted if not scores or which in scores})
        scores = {which: [*scores.get(which, ()), found] for which, found in in_fold.items()}
        tested_rows.append(rows_x[inside])
        trials += len(inside)
    if trials < _MIN_TESTED:
        moments = courses[-1].moments(None)
        safest = refined.refined_map(moments, nearest_rotation(moments.cross))
        return ChosenMap(safest, refined.FAMILY, refined.FAMILY)
    means = {which: torch.cat(found, dim=1)[:2].mean(dim=1) for which, found in scores.items()}
    which = max(means, key=lambda which: float(means[which].sum()))
    (number, family, label), (mrr, overlap) = which, means[which].tolist()
    all_homes = FAMILIES if families is None else families
    its_home = {name: home for name, home in all_homes.items() if name == family}
    best = next(found for found in everything[number].maps(None, its_home) if found.label == label)
    held_out = HeldOutMargins(torch.cat(tested_rows), torch.cat(scores[which], dim=1)[2].float())
    return ChosenMap(best.map, best.family, best.label, mrr, overlap, trials, certain, held_out)


def _moments_by_fold(problem: Problem, rows_x: Tensor, rows_y: Tensor, fold: Tensor) -> list[Moments]:
    """Moments of the pairs (p,) of each fold (p,), and last of the pairs that are never left out."""
    return [pair_moments(problem, rows_x[fold == i], rows_y[fold == i]) for i in range(_FOLDS + 1)]


@dataclass(frozen=True)
class _Course:
    """Pairs in folds, and what it takes to fit maps to all but one fold."""

    problem: Problem
    parts: list[Moments]
    ridge: float
    correlations: Tensor
    rows: Callable[[int | None], tuple[Tensor, Tensor]]
    known_alone: bool

    @classmethod
    def from_pairs(
        cls, problem: Problem, rows_x: Tensor, rows_y: Tensor, fold: Tensor, parts: list[Moments], known_alone: bool
    ) -> _Course:
        halves = moments_of_halves(problem, rows_x, rows_y)
        x, y = problem.spectrum_x, problem.spectrum_y
        measured: Turns = {}
        best = choose_ridge(x, y, halves, known=measured)

        def rows(left_out: int | None) -> tuple[Tensor, Tensor]:
            kept = fold != (-1 if left_out is None else left_out)
            return problem.take_x(rows_x[kept]), problem.take_y(rows_y[kept])

        correlations = held_out_correlations(x, y, halves, best, known=measured)
        return cls(problem, parts, best, correlations, rows, known_alone)

    def moments(self, left_out: int | None) -> Moments:
        """Moments of all pairs but those of one fold."""
        total = reduce(Moments.__add__, self.parts)
        return total if left_out is None else total - self.parts[left_out]

    def maps(self, left_out: int | None, families: dict[str, str] | None) -> Iterator[ChosenMap]:
        """The candidates, fitted to all pairs but those of one fold, one by one."""
        lesson = Lesson(
            self.moments(left_out),
            self.problem.spectrum_x,
            self.problem.spectrum_y,
            self.ridge,
            self.correlations,
            partial(self.rows, left_out),
        )
        suffix = " of the known pairs alone" if self.known_alone else ""
        return (ChosenMap(found, family, label + suffix) for family, label, found in candidates(lesson, families))


@dataclass(frozen=True)
class _SoftCourse:
    """Known pairs in folds, together with soft pairs, given by their cross moment (dx, dy).

    There is one candidate only: soft pairs say nothing about lengths, and a flexible map would overfit them.
    """

    problem: Problem
    parts: list[Moments]
    soft: Tensor

    def maps(self, left_out: int | None, _families: dict[str, str] | None) -> Iterator[ChosenMap]:
        """The candidate, fitted to all pairs but those of one fold."""
        kept = [part.cross for index, part in enumerate(self.parts) if index != left_out]
        yield _soft_map(self.problem, reduce(torch.add, kept, self.soft))


def _soft_map(problem: Problem, cross: Tensor) -> ChosenMap:
    moments = Moments(cross[:, :0], cross, cross[:0])
    lesson = Lesson(moments, problem.spectrum_x, problem.spectrum_y, 0.0, cross[0, :0], _no_rows)
    ((label, found),) = recolored.candidates(lesson)
    return ChosenMap(found, recolored.FAMILY, f"soft {label}")


def _no_rows() -> tuple[Tensor, Tensor]:
    raise RuntimeError("soft pairs have no rows of their own")


@dataclass(frozen=True)
class _Trial:
    """Searches whose answers are known: rows (t, dx) of X, an index (i, dy) of Y, and where the partners are in it."""

    queries: Tensor
    index: Tensor
    partners: Tensor
    center: Tensor | None
    partners_nearest: Tensor
    budget: int
    share: float

    @classmethod
    def from_pairs(
        cls, problem: Problem, rows_x: Tensor, rows_y: Tensor, center: Tensor | None, generator: torch.Generator
    ) -> _Trial:
        others = torch.randperm(len(problem.y), generator=generator)[:_INDEX].to(rows_y.device)
        drawn = torch.unique(torch.cat([rows_y, others]))
        index = _raw(problem.take_y(drawn), center)
        partners = torch.searchsorted(drawn, rows_y)
        nearest = _nearest(index[partners], index, problem.budget)
        return cls(
            problem.take_x(rows_x), index, partners, center, nearest, problem.budget, len(drawn) / len(problem.y)
        )

    def scores_of(self, maps: dict[_Which, Map]) -> dict[_Which, Tensor]:
        """The scores (3, t) of those maps that are not hopeless."""
        if len(self.queries) < _MANY or len(maps) == 1:
            return {which: self.scores(candidate) for which, candidate in maps.items()}
        is_first = torch.arange(len(self.queries), device=self.queries.device) % 4 == 0
        first, others = self._some(is_first), self._some(~is_first)
        found = {which: first.scores(candidate) for which, candidate in maps.items()}
        sums = {which: float(scores[:2].mean(dim=1).sum()) for which, scores in found.items()}
        hopeful = [which for which, total in sums.items() if total >= max(sums.values()) - _HOPELESS]
        order = torch.argsort(~is_first, stable=True).argsort()  # undoes that the first ones were put first
        return {which: torch.cat([found[which], others.scores(maps[which])], dim=1)[:, order] for which in hopeful}

    def _some(self, which: Tensor) -> _Trial:
        """The searches in a mask (t,)."""
        nearest = self.partners_nearest[which]
        return replace(self, queries=self.queries[which], partners=self.partners[which], partners_nearest=nearest)

    def scores(self, candidate: Map) -> Tensor:
        """Reciprocal ranks of the partners, overlaps with what they would find, and margins of the partners (3, t).

        A margin is by how much the similarity of the partner exceeds that of the tenth best of all other rows of Y; if
        the index is a sample of them, that of the row at the corresponding rank.
        """
        place = min(max(1, round(NEIGHBOURS * self.share)), len(self.index) - 1)
        queries = _raw(on_tensors(candidate, self.queries), self.center)
        vanished = (queries == 0).all(dim=1)  # equally far from all rows: such a map knows none of them
        parts = []
        for rows, similarity in row_blocks(queries, self.index, self.budget):
            theirs = self.partners_nearest[rows]
            values, columns = largest(similarity, min(NEIGHBOURS + 1, len(self.index)))
            nearest = columns[:, : theirs.shape[1]]
            shared = (nearest[:, :, None] == theirs[:, None, :]).any(dim=2).double().mean(dim=1)
            # Counted in place: summing a mask would copy it to integers, twice as large as the block.
            own = similarity.gather(1, self.partners[rows, None])
            # If the partner is itself among the best, all others move up by one.
            above = own >= values[:, place - 1 : place]
            margin = own - torch.where(above, values[:, place : place + 1], values[:, place - 1 : place])
            rank = torch.where(vanished[rows], len(self.index), similarity.gt_(own).sum(dim=1) + 1)
            parts.append(torch.stack([1 / rank.double(), shared, margin.squeeze(1).double()]))
        return torch.cat(parts, dim=1)


def _raw(directions: Tensor, center: Tensor | None) -> Tensor:
    """Rows (k, d) as they were before a center (d + 1,) was subtracted: unit vectors (k, d + 1)."""
    if center is None:
        return unit(directions)
    return denormalise(torch.nn.functional.pad(unit(directions), (0, 1)), center)


def on_tensors(mapping: Map, rows: Tensor) -> Tensor:
    """Apply a map to unit rows (k, ds), whether it computes with tensors or with NumPy."""
    if isinstance(mapping, LinearMap) and isinstance(mapping.matrix, Tensor):
        return mapping(rows)
    return torch.from_numpy(mapping(rows.cpu().numpy())).to(rows)


def _nearest(queries: Tensor, index: Tensor, budget: int) -> Tensor:
    """The ten rows of an index (i, d) nearest to each query (t, d): (t, 10)."""
    count = min(NEIGHBOURS, len(index))
    return torch.cat([largest(block, count)[1] for _, block in row_blocks(queries, index, budget)])

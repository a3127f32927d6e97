"""A translation of its own for queries, where it finds what the source's own model would find more often.

Queries are not passages: many encoders mark them, so that they lie around another mean, and they vary along other axes
than those a map was fitted to. What may help is known beforehand: subtract the mean of the queries instead; rotate,
which amplifies no axis, instead of recoloring; add less of the target's center, which draws all queries to the same
rows. Whether any of it does is measured without judgements: a query, in the source's own space, ranks the rows that
have a partner; a good translation ranks the partners in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kedge.geometry import unit
from kedge.models.maps.linear import LinearMap
from kedge.models.maps.protocol import Map
from kedge.models.translator import Normaliser, TranslationStep

MIN_QUERIES = 20
"""With fewer queries nothing can be said of them as a kind."""

MIN_PAIRS = 40
"""With fewer pairs there is nothing to rank."""

ONE_MAP = "one map for all"

# More change nothing but the time it takes.
_MAX_QUERIES, _MAX_PAIRS = 1000, 3000
# Of the pairs, one in so many counts as found; at most ten.
_PAIRS_PER_ANSWER, _ANSWERS = 20, 10
_CENTERS = {0.0: "", 0.5: "half their own center", 1.0: "their own center"}
_TARGET_WEIGHTS = (1.0, 0.5, 0.25, 0.0)
# Another translation is taken where it is better by so many standard errors.
_ERRORS = 2.0


@dataclass(frozen=True)
class QueryTranslation:
    """What translates queries, and why: `agreement` is the share of the rows that a query ranks first in the source's
    own space whose partners the translated query ranks first, `agreement_of_one_map` the same for the translation of
    all other rows. Both are None where there was too little to try it on.
    """

    step: TranslationStep
    kind: str
    agreement: float | None = None
    agreement_of_one_map: float | None = None


class _Candidate(NamedTuple):
    """How queries could be translated: a share of their own center, a map, and a share of the target's center."""

    own_center: float
    map: Map
    target_weight: float
    label: str

    def step(self, docs: TranslationStep, center: Tensor) -> TranslationStep:
        """The translation, if this (ds,) is the center of the queries."""
        mixed = (1 - self.own_center) * docs.source.center + self.own_center * center.cpu().numpy()
        target = Normaliser((self.target_weight * docs.target.center).astype(np.float32))
        return TranslationStep(Normaliser(mixed.astype(np.float32)), self.map, target)


def choose_query_translation(
    docs: TranslationStep, queries: Tensor, x: Tensor, y: Tensor, *, centered: bool = True
) -> QueryTranslation:
    """How queries (q, ds) of the source are best translated, beside other rows, which `docs` translates.

    `x` (p, ds) and `y` (p, dt) are pairs of rows. The queries' center is always one of queries that are not tested, and
    another translation is taken only where it is clearly better. Spaces that were not `centered` have one map.
    """
    if not centered or len(queries) < MIN_QUERIES or len(x) < MIN_PAIRS:
        return QueryTranslation(docs, ONE_MAP)
    generator = torch.Generator().manual_seed(0)
    queries, (x, y) = _drawn(generator, _MAX_QUERIES, queries)[0], _drawn(generator, _MAX_PAIRS, x, y)
    queries, x, y = unit(queries), unit(x), unit(y)
    halves = queries[::2], queries[1::2]
    count = max(1, min(_ANSWERS, len(x) // _PAIRS_PER_ANSWER))
    folds = [
        _Fold.from_rows(tested, others.mean(dim=0), x, y, docs, count) for tested, others in (halves, halves[::-1])
    ]
    best, reached, before = None, torch.zeros(0), torch.zeros(0)
    for candidate in _candidates(docs.map):
        scores = torch.cat([fold.scores(candidate, docs) for fold in folds])
        if best is None:  # the translation of all other rows
            before = scores
        if best is None or scores.mean() > reached.mean():
            best, reached = candidate, scores
    gain = reached - before
    assert best is not None, "the translation of all other rows is always a candidate"
    agreements = float(reached.mean()), float(before.mean())
    if float(gain.mean()) <= _ERRORS * float(gain.std()) / len(gain) ** 0.5:
        return QueryTranslation(docs, ONE_MAP, agreements[1], agreements[1])
    return QueryTranslation(best.step(docs, queries.mean(dim=0)), best.label, *agreements)


def _candidates(fitted: Map) -> Iterator[_Candidate]:
    """All that are tried, the translation of all other rows first."""
    for own_center, centered in _CENTERS.items():
        for mapped, map in _maps(fitted):
            for weight in _TARGET_WEIGHTS:
                target = "" if weight == 1 else f"{weight:g} of the target's center"
                label = ", ".join(part for part in (centered, mapped, target) if part)
                yield _Candidate(own_center, map, weight, label or ONE_MAP)


def _maps(fitted: Map) -> list[tuple[str, Map]]:
    """The map as it was fitted; and of a linear one the nearest rotation, and what lies half way to it."""
    if not isinstance(fitted, LinearMap):
        return [("", fitted)]
    left, values, right = np.linalg.svd(fitted.state()["matrix"].astype(np.float64), full_matrices=False)
    rotation, half = ((left * values**power) @ right for power in (0.0, 0.5))
    return [
        ("", fitted),
        ("rotation", LinearMap(rotation.astype(np.float32))),
        ("half way to a rotation", LinearMap(half.astype(np.float32))),
    ]


@dataclass(frozen=True)
class _Fold:
    """Queries (q, ds), the center (ds,) of others, partners (p, dt), and what the queries find (q, k) of the rows."""

    queries: Tensor
    center: Tensor
    partners: Tensor
    found: Tensor

    @classmethod
    def from_rows(
        cls, queries: Tensor, center: Tensor, x: Tensor, y: Tensor, docs: TranslationStep, count: int
    ) -> _Fold:
        """The reference subtracts from either kind its own mean: so the source's own model searches best too. It is the
        mean of the queries tested, not the center that candidates have: agreeing with that would be no merit.
        """
        rows = unit(x - torch.from_numpy(docs.source.center).to(x))
        found = (unit(queries - queries.mean(dim=0)) @ rows.T).topk(count, dim=1).indices
        return cls(queries, center, y, found)

    def scores(self, candidate: _Candidate, docs: TranslationStep) -> Tensor:
        """The share (q,) of what a query finds that its translation finds too."""
        translated = torch.from_numpy(candidate.step(docs, self.center)(self.queries.cpu().numpy()))
        similarity = translated.to(self.partners) @ self.partners.T
        nearest = similarity.topk(self.found.shape[1], dim=1).indices
        return (nearest[:, :, None] == self.found[:, None, :]).any(dim=2).double().mean(dim=1)


def _drawn(generator: torch.Generator, count: int, *sides: Tensor) -> tuple[Tensor, ...]:
    """At most so many rows of each side, the same of all; shuffled."""
    order = torch.randperm(len(sides[0]), generator=generator)[:count].to(sides[0].device)
    return tuple(side[order] for side in sides)

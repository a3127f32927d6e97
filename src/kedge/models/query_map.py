"""A separate translation for queries, used if it agrees better with what the source's own model would find.

Queries are not passages: many encoders mark them, so that they have a different mean, and they vary along other axes
than those a map was fitted to. A few remedies are tried: subtract the mean of the queries instead; rotate, which
amplifies no axis, instead of recoloring; add less of the target's center, which draws all queries to the same rows.
Whether any of them helps is measured without judgements: a query, in the source's own space, ranks the rows that have a
partner; a good translation ranks the partners in the same way.
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
"""With fewer queries they are not treated as a kind of their own."""

MIN_PAIRS = 40
"""With fewer pairs there is too little to rank."""

ONE_MAP = "one map for all"

# More only take longer.
_MAX_QUERIES, _MAX_PAIRS = 1000, 3000
# One pair in this many counts as found, at most ten.
_PAIRS_PER_ANSWER, _ANSWERS = 20, 10
_CENTERS = {0.0: "", 0.5: "half their own center", 1.0: "their own center"}
_TARGET_WEIGHTS = (1.0, 0.5, 0.25, 0.0)
# Another translation is chosen only if it is better by more than this many standard errors.
_ERRORS = 2.0


@dataclass(frozen=True)
class QueryTranslation:
    """What translates queries, and how well that agrees with the source's own model.

    `agreement` is the share of the rows that a query ranks first in the source's own space whose partners the
    translated query ranks first, `agreement_of_one_map` the same for the translation of all other rows. Both are None
    if there was too little to measure them on.
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
        """The translation, given the center (ds,) of the queries."""
        mixed = (1 - self.own_center) * docs.source.center + self.own_center * center.cpu().numpy()
        target = Normaliser((self.target_weight * docs.target.center).astype(np.float32))
        return TranslationStep(Normaliser(mixed.astype(np.float32)), self.map, target)


def choose_query_translation(
    docs: TranslationStep, queries: Tensor, x: Tensor, y: Tensor, *, centered: bool = True
) -> QueryTranslation:
    """Choose the best translation for queries (q, ds) of the source; `docs` is the translation of all other rows.

    `x` (p, ds) and `y` (p, dt) are pairs of rows. In a test, the queries' center is always that of other queries, and
    another translation is chosen only if it is clearly better. Spaces that were not `centered` have one map.
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
    """All candidates, starting with the translation of all other rows."""
    for own_center, centered in _CENTERS.items():
        for mapped, map in _maps(fitted):
            for weight in _TARGET_WEIGHTS:
                target = "" if weight == 1 else f"{weight:g} of the target's center"
                label = ", ".join(part for part in (centered, mapped, target) if part)
                yield _Candidate(own_center, map, weight, label or ONE_MAP)


def _maps(fitted: Map) -> list[tuple[str, Map]]:
    """The map as it was fitted; and for a linear one, the nearest rotation and the map halfway to it."""
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
    """Queries (q, ds), the center (ds,) of other queries, partners (p, dt), and the rows (q, k) that queries find."""

    queries: Tensor
    center: Tensor
    partners: Tensor
    found: Tensor

    @classmethod
    def from_rows(
        cls, queries: Tensor, center: Tensor, x: Tensor, y: Tensor, docs: TranslationStep, count: int
    ) -> _Fold:
        """Find the reference answers: what each query ranks first in the source's own space.

        Queries and rows are centered by their own means, with which the source's own model searches best, too. The
        queries' is the mean of those tested, not the center that candidates use: agreeing with that would be no merit.
        """
        rows = unit(x - torch.from_numpy(docs.source.center).to(x))
        found = (unit(queries - queries.mean(dim=0)) @ rows.T).topk(count, dim=1).indices
        return cls(queries, center, y, found)

    def scores(self, candidate: _Candidate, docs: TranslationStep) -> Tensor:
        """The share (q,) of what a query finds that its translation finds, too."""
        translated = torch.from_numpy(candidate.step(docs, self.center)(self.queries.cpu().numpy()))
        similarity = translated.to(self.partners) @ self.partners.T
        nearest = similarity.topk(self.found.shape[1], dim=1).indices
        return (nearest[:, :, None] == self.found[:, None, :]).any(dim=2).double().mean(dim=1)


def _drawn(generator: torch.Generator, count: int, *sides: Tensor) -> tuple[Tensor, ...]:
    """At most `count` rows of each side, the same of all, in random order."""
    order = torch.randperm(len(sides[0]), generator=generator)[:count].to(sides[0].device)
    return tuple(side[order] for side in sides)

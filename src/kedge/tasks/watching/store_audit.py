"""Does a set of vectors come from one model or from several? Decided without a second set to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key
from kedge.tasks.watching.likeness import Rows, crossing, likeness, unit_rows, unrelated_below
from kedge.tasks.watching.mixture import GaussianGroup, Split, foreign_splits

AuditVerdict = Literal["one model", "several models", "uncertain"]
Relation = Literal["main", "unrelated", "related"]

MIN_ROWS, MIN_DIM = 200, 64
"""With fewer rows or dimensions nothing can be said: chance alone makes groups that look foreign."""

# Groups are searched for in a sample of this many rows; then all rows are assigned.
_SAMPLE = 10_000
# Number of directions kept of longer vectors: unrelated groups stay unrelated in a random subspace.
_MAX_DIM = 512
# Fewer foreign rows than this in the sample are reported, but not called another model.
_SURE_ROWS = 40
# Maximum share of neighbours outside the group for rows of another model: a small group has few neighbours of its own.
_MAX_CROSSING = 0.15
# What a model of the same family looks like: less like the rest than topics of one model are, apart from the rest, and
# as varied; to be called another model with confidence, it must also be large enough.
_RELATED_BELOW, _MAX_RELATED_CROSSING, _MAX_UNIFORMITY = 0.2, 0.02, 1.5
_RELATED_ROWS, _RELATED_SHARE = 100, 0.05
_CROSSING_ROWS = 3  # in a small group, this many rows may have their neighbours elsewhere


@dataclass(frozen=True)
class ModelGroup:
    """Rows that look like those of one model.

    Parameters
    ----------
    rows : int array, shape (n,)
        Row numbers.
    relation : "main", "unrelated" or "related"
        The largest group; one with nothing in common with it; or one with something in common, such as vectors of a
        sibling or fine-tuned model.
    likeness : float
        Likeness to the main group: 0 for unrelated models; about 0.2 to 1 for parts of one model.
    sure : bool
        Whether the group is large and distinct enough to be called another model.
    """

    rows: NDArray[np.int64]
    relation: Relation
    likeness: float
    sure: bool


@dataclass(frozen=True)
class Audit:
    """What `audit` found.

    Parameters
    ----------
    verdict : "one model", "several models" or "uncertain"
    reason : str
        A sentence for people.
    groups : tuple of ModelGroup
        The main group first, then the foreign ones, largest first.
    scores : array, shape (n,)
        For each row, the log ratio of how probably it belongs to a foreign group to how probably it belongs to the main
        one (foreign if above 0). All -inf if there is only one group.
    keys : sequence, length n
    """

    verdict: AuditVerdict
    reason: str
    groups: tuple[ModelGroup, ...]
    scores: NDArray[np.float64]
    keys: Any
    _model: _RowModel | None = field(default=None, repr=False)

    @cached_property
    def foreign(self) -> NDArray[np.bool_]:
        """Which rows (n,) are not in the main group."""
        return self.scores > 0

    @property
    def foreign_keys(self) -> list[Key]:
        """The keys of the foreign rows, in row order."""
        return [self.keys[row] for row in np.flatnonzero(self.foreign).tolist()]

    def is_foreign(self, vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Whether each of further vectors (m, d), such as new ones, is foreign to the main group."""
        if self._model is None:
            return np.zeros(len(vectors), dtype=bool)
        return self._model.scores(vectors) > 0

    def likeness_to_main(self, vectors: NDArray[np.floating]) -> float:
        """The likeness of vectors (m, d) to the main group: near 0 if they are from an unrelated model."""
        if self._model is None:
            raise InputError("likeness_to_main: there is only one group")
        return likeness(self._model.main_rows, self._model.reduce(vectors))


@dataclass(frozen=True)
class _RowModel:
    """The Gaussians of all groups, the main one first, and the projection applied to rows before."""

    projection: NDArray[np.float32] | None
    gaussians: tuple[GaussianGroup, ...]
    main_rows: Rows

    def reduce(self, vectors: NDArray[np.floating]) -> Rows:
        return _reduced(vectors, self.projection)

    def densities(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """The log densities (n, groups) of rows."""
        rows = self.reduce(vectors)
        return np.stack([gaussian.log_density(rows) for gaussian in self.gaussians], axis=1)

    def scores(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        densities = self.densities(vectors)
        return np.asarray(densities[:, 1:].max(axis=1) - densities[:, 0])


def audit(space: SpaceLike, *, random_state: RandomState = 0) -> Audit:
    """Look for rows of another model among the vectors of a space.

    Rows are divided into groups, and two groups are called two models if their directions have no more in common than
    those of two random rotations. Topics, languages and kinds of rows of one model have more in common, and so has a
    model of the same family (a sibling or a fine-tuned one): its rows are found if they lie apart, but reported with
    less confidence. A model that has hardly moved cannot be found without a second set of vectors; see `drift`.

    Parameters
    ----------
    space : space (n, d)
        In any form that `AnchorDiscovery.fit` takes. With fewer than 200 rows or 64 dimensions the verdict is
        "uncertain".
    """
    number = as_random_state(random_state)
    given = as_space(space, "space")
    count = len(given)
    whole = np.arange(count)
    nothing = np.full(count, -np.inf)
    if count < MIN_ROWS or given.dim < MIN_DIM:
        main = ModelGroup(whole, "main", 1.0, sure=True)
        reason = (
            f"{count} rows of {given.dim} dimensions are too few to tell models apart; "
            f"at least {MIN_ROWS} rows of {MIN_DIM} dimensions are needed."
        )
        return Audit("uncertain", reason, (main,), nothing, given.keys)
    chance = np.random.default_rng(number)
    projection = _projection(given.dim, chance)
    drawn = np.sort(chance.permutation(count)[:_SAMPLE])
    sample = _reduced(given.vectors[drawn], projection)
    labels = _divide(sample, number)
    if not labels.any():
        main = ModelGroup(whole, "main", 1.0, sure=True)
        return Audit("one model", "No group of rows looks like another model's.", (main,), nothing, given.keys)
    model = _RowModel(projection, _gaussians(sample, labels), sample[labels == 0])
    densities = model.densities(given.vectors)
    assigned = densities.argmax(axis=1)
    groups = [ModelGroup(np.flatnonzero(assigned == 0), "main", 1.0, sure=True)]
    for label in range(1, len(model.gaussians)):
        groups.append(_describe(sample, labels, label, np.flatnonzero(assigned == label)))
    scores = densities[:, 1:].max(axis=1) - densities[:, 0]
    verdict: AuditVerdict = "several models" if any(group.sure for group in groups[1:]) else "uncertain"
    return Audit(verdict, _reason(groups, count), tuple(groups), scores, given.keys, model)


def _projection(dim: int, chance: np.random.Generator) -> NDArray[np.float32] | None:
    """Random orthonormal directions (d, 512) for vectors with more than 512 dimensions."""
    if dim <= _MAX_DIM:
        return None
    return np.linalg.qr(chance.standard_normal((dim, _MAX_DIM)))[0].astype(np.float32)


def _reduced(vectors: NDArray[np.floating], projection: NDArray[np.float32] | None) -> Rows:
    # Non-negative vectors, as after a ReLU, have the direction (1, ..., 1) in common whatever their model: remove it.
    rows = np.asarray(vectors, dtype=np.float32)
    rows = unit_rows(unit_rows(rows) - unit_rows(rows).mean(axis=1, keepdims=True))
    return rows if projection is None else unit_rows(rows @ projection)


def _divide(rows: Rows, random_state: int) -> NDArray[np.int64]:
    """The group (n,) of each row, 0 for the largest: parts are split until none contains rows of another model."""
    parts, finished = [np.arange(len(rows))], []
    while parts:
        part = parts.pop()
        here = rows[part]
        split = next((split for split in foreign_splits(here, random_state) if _is_foreign(here, split)), None)
        if split is None:
            finished.append(part)
        else:
            parts += [part[split.minor], part[~split.minor]]
    labels = np.zeros(len(rows), dtype=np.int64)
    for label, part in enumerate(sorted(finished, key=len, reverse=True)):
        labels[part] = label
    return labels


def _is_foreign(rows: Rows, split: Split) -> bool:
    """Whether the smaller group is another model's, judging by its directions and by its rows' nearest neighbours."""
    if split.likeness < unrelated_below(rows.shape[1]):
        return crossing(rows, split.minor) < _MAX_CROSSING
    if split.minor.sum() < _SURE_ROWS or split.likeness >= _RELATED_BELOW or split.uniformity >= _MAX_UNIFORMITY:
        return False
    return crossing(rows, split.minor) < max(_MAX_RELATED_CROSSING, _CROSSING_ROWS / split.minor.sum())


def _gaussians(rows: Rows, labels: NDArray[np.int64]) -> tuple[GaussianGroup, ...]:
    return tuple(
        GaussianGroup.from_rows(rows[labels == label], float((labels == label).mean()))
        for label in range(int(labels.max()) + 1)
    )


def _describe(sample: Rows, labels: NDArray[np.int64], label: int, rows: NDArray[np.int64]) -> ModelGroup:
    few = sample[labels == label]
    alike = likeness(sample[labels == 0], few)
    if alike < unrelated_below(sample.shape[1]):
        return ModelGroup(rows, "unrelated", alike, sure=len(few) >= _SURE_ROWS)
    sure = len(few) >= max(_RELATED_ROWS, _RELATED_SHARE * len(sample))
    return ModelGroup(rows, "related", alike, sure=sure)


def _reason(groups: list[ModelGroup], count: int) -> str:
    parts = []
    for group in groups[1:]:
        what = {
            "unrelated": "have nothing in common with the others: vectors of an unrelated model",
            "related": "lie apart from the others: perhaps a model of the same family, or another kind of input",
        }[group.relation]
        few = "" if group.sure else " (too few, or too little, to be sure)"
        parts.append(f"{len(group.rows)} of {count} rows {what} (likeness {max(group.likeness, 0):.2f}){few}")
    return "; ".join(parts) + "."

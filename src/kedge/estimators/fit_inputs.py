"""Checks of what `AnchorDiscovery` and its `fit` are given, before anything is computed or written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.estimators.inputs import as_anchor_rows
from kedge.estimators.pair_inputs import PairsLike, as_seed_rows
from kedge.matching import require_budget
from kedge.models.anchors import anchor_count
from kedge.models.query_map import MIN_QUERIES
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key

if TYPE_CHECKING:
    from kedge.estimators.anchor_discovery import AnchorDiscovery

_MIN_SEEDS = {("alternate", "seeds"): 0, ("paper", "seeds"): 3, ("paper", "random"): 1}


class FitInputs(NamedTuple):
    """Two spaces, seeds as rows (s, 2), anchors as rows (a,) of X (None if they are to be chosen), and how many.

    `queries` are vectors by X's model, too; nothing but their own translation is learned from them.
    """

    x: Embeddings
    y: Embeddings
    seeds: NDArray[np.int64]
    anchors: NDArray[np.int64] | None
    n_anchors: int
    queries: Embeddings | None = None


def check_parameters(given: AnchorDiscovery) -> None:
    """Raise an `InputError` if the parameters of the constructor are invalid."""
    if (given.method, given.init) not in _MIN_SEEDS:
        allowed = ", ".join(f"method={method!r} with init={init!r}" for method, init in _MIN_SEEDS)
        raise InputError(f"no such method: {given.method!r} with init={given.init!r}; there are {allowed}")
    if given.anchor_choice not in ("random", "farthest"):
        raise InputError(f"anchor_choice must be 'random' or 'farthest', got {given.anchor_choice!r}")
    if given.method == "paper" and given.checkpoint is not None:
        raise InputError("checkpoint: method 'paper' keeps no state; omit it")
    if given.whiten != "auto" and not (isinstance(given.whiten, int | float) and 0 <= given.whiten <= 1):
        raise InputError(f"whiten must be 'auto' or a number from 0 to 1, got {given.whiten!r}")
    if not 0 <= given.min_confidence <= 1:
        raise InputError(f"min_confidence must be between 0 and 1, got {given.min_confidence!r}")
    for name, value in {"n_anchors": given.n_anchors, "memory_budget": given.memory_budget}.items():
        by_default = name == "n_anchors" and value is None
        if not by_default and not (isinstance(value, int | np.integer) and 1 <= value < 2**63):
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if given.random_state is None and given.checkpoint is not None:
        raise InputError("random_state: to go on from a checkpoint takes the same number again; give one")


def gather_inputs(
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    seeds: PairsLike,
    anchors: Iterable[Key] | ArrayLike | None,
    queries: SpaceLike | None = None,
) -> FitInputs:
    """What `fit` was given, as spaces and rows."""
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    for space in (space_x, space_y):
        if space.dim < 2:
            raise InputError(f"{space.source}: at least 2 dimensions are needed, a direction has none to differ in")
    asked = None if queries is None else as_queries(queries, space_x)
    smaller = min(len(space_x), len(space_y))
    require_budget(discovery.memory_budget, max(len(space_x), len(space_y)))
    seed_rows = as_seed_rows(seeds, space_x, space_y, _MIN_SEEDS[discovery.method, discovery.init])
    schedule = discovery.schedule
    if schedule and not len(seed_rows) and not (schedule.fingerprints and schedule.anneal_rounds):
        raise InputError(
            "schedule: there is nothing to start from; give seeds, or a Schedule with fingerprints=True that anneals"
        )
    if anchors is None:
        count = anchor_count(discovery.n_anchors, smaller, "n_anchors")
        return FitInputs(space_x, space_y, seed_rows, None, count, asked)
    anchor_rows = as_anchor_rows(anchors, space_x)
    count = anchor_count(len(anchor_rows), smaller, "anchors")
    return FitInputs(space_x, space_y, seed_rows, anchor_rows, count, asked)


def as_queries(queries: SpaceLike, x: Embeddings) -> Embeddings:
    """Queries (q, dx) by X's model; raises an `InputError` if they are too few to know them as a kind."""
    asked = as_space(queries, "queries")
    if asked.dim == x.prefix_of:
        asked = asked.first_dims(x.dim)
    if asked.dim != x.dim:
        raise InputError(
            f"{asked.source}: has {asked.dim} dimensions, X ({x.source}) has {x.dim}; encode queries by X's model"
        )
    if len(asked) < MIN_QUERIES:
        raise InputError(
            f"{asked.source}: holds {len(asked)} queries, at least {MIN_QUERIES} are needed to know them as a kind; "
            "give more, or none"
        )
    return asked

"""Suggest which texts to encode with both models: those whose pairs would teach the map most.

Two maps, each fitted to one half of what a run has found, send a row to two places; the further apart these are, the
less the run knows about that row. Rows are chosen greedily by this distance, and each choice reduces the doubt about
similar rows, which its pair would settle. Each choice comes from a different cluster of rows, so that together they
cover the space.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.geometry import moments_of, nearest_rotation
from kedge.spaces import rows_from_key_pairs
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key
from kedge.tasks.row_clusters import cluster_rows
from kedge.tasks.row_transforms import transform_rows

Side = Literal["x", "y"]

# If there are more choices than clusters, each cluster is used several times.
_MAX_CLUSTERS = 64


class Suggestion(NamedTuple):
    """A key, how uncertain the run is about where its row maps (a distance, from 0 to 2), and its cluster."""

    key: Key
    doubt: float
    cluster: int


def suggest(
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    k: int,
    *,
    side: Side = "y",
    random_state: RandomState = 0,
) -> list[Suggestion]:
    """The k rows of one side whose counterparts would help the map most, best first.

    `side` is "y" for texts of Y to encode with X's model, or "x" for the reverse. Rows of seeds are not suggested
    again. Spaces are accepted in any form that `AnchorDiscovery.fit` takes.
    """
    if side not in ("x", "y"):
        raise InputError(f"side must be 'x' or 'y', got {side!r}")
    number = as_random_state(random_state)
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    in_texts, *text_spaces = discovery.in_texts(space_x, space_y)
    seeds = rows_from_key_pairs(in_texts.seed_keys_, *text_spaces)
    space, taken = (space_x, seeds[:, 0]) if side == "x" else (space_y, seeds[:, 1])
    free = np.setdiff1d(np.arange(len(space)), taken)
    if not 1 <= k <= len(free):
        raise InputError(f"k must be from 1 to {len(free)}, the rows of {space.source} that are in no seed; got {k}")
    rows_x = transform_rows(discovery.x_.normalise, space_x.vectors)
    rows_y = transform_rows(discovery.y_.normalise, space_y.vectors)
    found = rows_y[torch.from_numpy(discovery.match_)]
    source, target, rows = (rows_x, found, rows_x) if side == "x" else (found, rows_x, rows_y)
    doubt = _disagreement(source, target, number)
    known = rows[torch.from_numpy(taken)]
    candidates = rows[torch.from_numpy(free)]
    cluster, _ = cluster_rows(candidates, min(k, _MAX_CLUSTERS), 1, number)
    return [
        Suggestion(space.keys[free[row]], doubts, int(cluster[row]))
        for row, doubts in _choose(candidates, known, doubt, cluster, k)
    ]


def _disagreement(source: Tensor, target: Tensor, random_state: int) -> Tensor:
    """The difference (d, e) of two rotations, each fitted to a random half of the paired rows (n, d) and (n, e)."""
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(random_state))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    first, second = (
        nearest_rotation(moments_of(source[half].double(), target[half].double()).cross) for half in halves
    )
    return (first - second).float()


def _choose(rows: Tensor, known: Tensor, doubt: Tensor, cluster: NDArray[np.int64], k: int) -> list[tuple[int, float]]:
    """Indices of k of the rows (n, d), and the doubt about each at the time it is chosen.

    The doubt (d, e) shrinks along every row whose counterpart is known (s, d), or will be. A pair counts as one
    observation with unit noise, so the doubt along its row is halved, not removed.
    """
    # For the directions u of known pairs: doubt <- (I + sum u u')^-1 doubt, one row at a time (Sherman-Morrison).
    settled = torch.eye(rows.shape[1])
    for row in known:
        settled = _settle(settled, row)
    labels = torch.from_numpy(cluster)
    chosen: list[tuple[int, float]] = []
    open_clusters = torch.ones(int(labels.max()) + 1, dtype=torch.bool)
    allowed = torch.ones(len(rows), dtype=torch.bool)
    for _ in range(k):
        doubts = (rows @ (settled @ doubt)).norm(dim=1)
        choosable = allowed & open_clusters[labels]
        if not choosable.any():  # every cluster has been used
            open_clusters[:] = True
            choosable = allowed
        best = int(doubts.masked_fill(~choosable, -1).argmax())
        chosen.append((best, float(doubts[best])))
        allowed[best] = False
        open_clusters[labels[best]] = False
        settled = _settle(settled, rows[best])
    return chosen


def _settle(settled: Tensor, row: Tensor) -> Tensor:
    along = settled @ row
    return settled - torch.outer(along, along) / (1 + row @ along)

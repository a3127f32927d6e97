"""Groups of rows by which to colour a picture: by label, or by cluster in shared coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.report.picture.neighbourhoods import shared_directions
from kedge.spaces import Embeddings
from kedge.tasks.row_clusters import cluster_rows

MAX_GROUPS = 10
"""Only this many groups get a colour of their own; more could not be distinguished."""

_KEYS_NAMED = 3
_MAX_LETTERS = 24
# Clusters with a smaller share of the rows are merged into others.
_MIN_SHARE = 0.01


class RowGroups(NamedTuple):
    """Names of groups (g,), and the group of each row of X (n,) and of Y (m,), -1 if it has none."""

    names: list[str]
    of_x: list[int]
    of_y: list[int]


def groups_by_label(labels: Mapping[str, str], keys_x: Sequence[str], keys_y: Sequence[str]) -> RowGroups:
    """One group for each of the most frequent labels, given by key, in order; all rarer labels share a last group."""
    counts = Counter(labels[key] for keys in (keys_x, keys_y) for key in keys if key in labels)
    names = [name for name, _ in counts.most_common(MAX_GROUPS)]
    others = len(counts) - len(names)
    number_of = {label: min(place, MAX_GROUPS) for place, (label, _) in enumerate(counts.most_common())}
    if others:
        names.append("1 other label" if others == 1 else f"{others:,} other labels")
    of_x, of_y = ([number_of.get(labels.get(key, ""), -1) for key in keys] for keys in (keys_x, keys_y))
    return RowGroups(names, of_x, of_y)


def groups_by_cluster(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> RowGroups:
    """Clusters of the rows of both spaces in shared coordinates, largest first, named by their most central keys."""
    rows = shared_directions(discovery, x, y)
    cluster, centers = cluster_rows(rows, MAX_GROUPS, max(1, int(_MIN_SHARE * len(rows))))
    largest_first = np.argsort(-np.bincount(cluster, minlength=len(centers)), kind="stable")
    names = []
    for number in largest_first:
        members = np.flatnonzero(cluster == number)
        central = members[(rows[members] @ centers[number]).argsort(descending=True, stable=True).numpy()]
        names.append(_named_by(central, x, y))
    rank_of: NDArray[np.int64] = np.argsort(largest_first)
    groups = rank_of[cluster].tolist()
    return RowGroups(names, groups[: len(x)], groups[len(x) :])


def _named_by(rows: NDArray[np.int64], x: Embeddings, y: Embeddings) -> str:
    """The first keys among rows of X, or if there are none, of Y, whose rows are numbered after X's."""
    keys = [x.keys[row] for row in rows if row < len(x)] or [y.keys[row - len(x)] for row in rows]
    return ", ".join(key if len(key) <= _MAX_LETTERS else f"{key[: _MAX_LETTERS - 3]}..." for key in keys[:_KEYS_NAMED])

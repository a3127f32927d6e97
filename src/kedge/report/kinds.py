"""Kinds of rows to colour a picture by: what a file of labels says, and what lies together in shared coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.report.neighbourhoods import shared_directions
from kedge.spaces import Embeddings
from kedge.tasks.clusters import cluster_rows

MOST_KINDS = 10
"""So many kinds get a colour of their own: no more can be told apart."""

_KEYS_NAMED = 3
_MOST_LETTERS = 24
# Clusters with a smaller share of the rows are joined to others.
_LEAST_SHARE = 0.01


class Kinds(NamedTuple):
    """Names of kinds (k,), and the kind of each row of X (n,) and of Y (m,), which is -1 where it has none."""

    names: list[str]
    of_x: list[int]
    of_y: list[int]


def kinds_by_label(labels: Mapping[str, str], keys_x: Sequence[str], keys_y: Sequence[str]) -> Kinds:
    """The kinds of rows whose labels are given by key, the most frequent first; rarer ones are one kind together."""
    counts = Counter(labels[key] for keys in (keys_x, keys_y) for key in keys if key in labels)
    names = [name for name, _ in counts.most_common(MOST_KINDS)]
    others = len(counts) - len(names)
    number_of = {label: min(place, MOST_KINDS) for place, (label, _) in enumerate(counts.most_common())}
    if others:
        names.append("1 other label" if others == 1 else f"{others:,} other labels")
    of_x, of_y = ([number_of.get(labels.get(key, ""), -1) for key in keys] for keys in (keys_x, keys_y))
    return Kinds(names, of_x, of_y)


def kinds_by_cluster(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> Kinds:
    """What lies together in shared coordinates, both spaces at once, named by the keys in its middle; largest first."""
    rows = shared_directions(discovery, x, y)
    cluster, centers = cluster_rows(rows, MOST_KINDS, max(1, int(_LEAST_SHARE * len(rows))))
    largest_first = np.argsort(-np.bincount(cluster, minlength=len(centers)), kind="stable")
    names = []
    for number in largest_first:
        members = np.flatnonzero(cluster == number)
        central = members[(rows[members] @ centers[number]).argsort(descending=True, stable=True).numpy()]
        names.append(_named_by(central, x, y))
    kind_of: NDArray[np.int64] = np.argsort(largest_first)
    kinds = kind_of[cluster].tolist()
    return Kinds(names, kinds[: len(x)], kinds[len(x) :])


def _named_by(rows: NDArray[np.int64], x: Embeddings, y: Embeddings) -> str:
    """The first keys among rows of X, or where it has none of Y, which are numbered after X's."""
    keys = [x.keys[row] for row in rows if row < len(x)] or [y.keys[row - len(x)] for row in rows]
    return ", ".join(
        key if len(key) <= _MOST_LETTERS else f"{key[: _MOST_LETTERS - 3]}..." for key in keys[:_KEYS_NAMED]
    )

"""Search metrics with intervals: over all queries, and over each cluster of similar queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.estimators import AnchorDiscovery
from kedge.judging.health import Interval
from kedge.spaces import Embeddings
from kedge.tasks.row_clusters import cluster_rows
from kedge.tasks.row_transforms import transform_rows
from kedge.tasks.search_quality import also_in

METRIC_NAMES = {
    "self_recall_1": "self-recall@1",
    "self_recall_10": "self-recall@10",
    "overlap": "overlap@10",
    "ndcg": "nDCG@10",
}
"""What tables call the fields of `SearchMetrics`."""

_DRAWS = 1000
_LOW, _HIGH = 0.05, 0.95
_MAX_CLUSTERS, _MIN_QUERIES = 8, 25
_KEYS_NAMED = 3


@dataclass(frozen=True)
class SearchMetrics:
    """Means over queries, each of which looks for its ten nearest rows, with 90 % bootstrap intervals over the queries
    (of zero width where all queries have the same value).

    `self_recall_1` and `self_recall_10`: how often the query's own text is the nearest, or among the ten (None where
    the queries have no text in the index). The other two compare with the *reference*: the ten rows that the search
    finds without the change, the query's own text counted like any other. `overlap`: the share of the reference that is
    found; `ndcg`: the same, discounted by 1 / log2(rank + 1), so that a miss near the top counts for more (all ten rows
    of the reference are equally relevant, nothing else is).
    """

    self_recall_1: Interval | None
    self_recall_10: Interval | None
    overlap: Interval
    ndcg: Interval

    def in_order(self) -> tuple[Interval | None, ...]:
        """All of them, in the order of `METRIC_NAMES`."""
        return tuple(getattr(self, name) for name in METRIC_NAMES)


@dataclass(frozen=True)
class QueryCluster:
    """Similar queries: the keys of the most central ones, how many there are, and their metrics."""

    keys: tuple[str, ...]
    queries: int
    metrics: SearchMetrics

    def short_keys(self, max_letters: int) -> list[str]:
        """The keys, each cut to so many letters."""
        return [key if len(key) <= max_letters else f"{key[: max_letters - 3]}..." for key in self.keys]


@dataclass(frozen=True)
class DirectionResult:
    """How searches do in one direction: over all `queries`, in an index of `index` rows, and over each of at most eight
    clusters of the queries, the worst by `ndcg` first (no clusters where the queries are few).
    """

    metrics: SearchMetrics
    queries: int
    index: int
    clusters: tuple[QueryCluster, ...]

    def cluster_table(self) -> list[tuple[str, ...]]:
        """The rows of a table for people: how many queries a cluster has, then its metrics without intervals."""
        return [
            (f"{cluster.queries}", *(as_text(each.estimate if each else None) for each in cluster.metrics.in_order()))
            for cluster in self.clusters
        ]


class QueryGroup(NamedTuple):
    """Similar queries: the most central keys, and the numbers (c,) of all of them."""

    keys: tuple[str, ...]
    members: NDArray[np.int64]


def group_queries(discovery: AnchorDiscovery, queries: Embeddings, random_state: int) -> list[QueryGroup]:
    """Groups of similar queries, where there are enough queries for two."""
    count = min(_MAX_CLUSTERS, len(queries) // _MIN_QUERIES)
    if count < 2:
        return []
    rows = transform_rows(discovery.x_.normalise, queries.vectors)
    cluster, centers = cluster_rows(rows, count, _MIN_QUERIES, random_state)
    if len(centers) < 2:
        return []
    groups = []
    for number, center in enumerate(centers):
        members = np.flatnonzero(cluster == number)
        central = (rows[members] @ center).topk(_KEYS_NAMED).indices.tolist()
        groups.append(QueryGroup(tuple(queries.keys[members[place]] for place in central), members))
    return groups


def summarise(
    values: Mapping[str, NDArray[np.float64]], index: int, groups: Sequence[QueryGroup], chance: np.random.Generator
) -> DirectionResult:
    """The means of what each query scored (q,), by metric: over all queries, and over each group."""
    clusters = [
        QueryCluster(keys, len(members), _means({name: each[members] for name, each in values.items()}, chance))
        for keys, members in groups
    ]
    clusters.sort(key=lambda cluster: cluster.metrics.ndcg.estimate or 0.0)
    return DirectionResult(_means(values, chance), len(values["ndcg"]), index, tuple(clusters))


def _means(values: Mapping[str, NDArray[np.float64]], chance: np.random.Generator) -> SearchMetrics:
    intervals = {name: bootstrap_interval(each, chance) for name, each in values.items()}
    return SearchMetrics(
        self_recall_1=intervals.get("self_recall_1"),
        self_recall_10=intervals.get("self_recall_10"),
        overlap=intervals["overlap"],
        ndcg=intervals["ndcg"],
    )


def score_queries(found: Tensor, reference: Tensor, own: Tensor | None = None) -> dict[str, NDArray[np.float64]]:
    """What each query scores (q,), by metric: the rows found (q, 10) against the reference (q, 10) and against the row
    of the query's own text (q,).
    """
    there = also_in(found, reference).double()
    discount = 1 / torch.log2(torch.arange(2, found.shape[1] + 2, device=found.device, dtype=torch.float64))
    missed = (1 - there) @ (discount / discount.sum())  # rather than what is there: without a miss it is 1 exactly
    values = {"overlap": there.mean(dim=1), "ndcg": (1 - missed).clamp_min(0)}
    if own is not None:
        hit = (found == own[:, None]).double()
        values |= {"self_recall_1": hit[:, 0], "self_recall_10": hit.amax(dim=1)}
    return {name: each.cpu().numpy() for name, each in values.items()}


def bootstrap_interval(values: NDArray[np.float64], chance: np.random.Generator) -> Interval:
    """The mean of values (q,), and the 90 % interval of the means of a thousand samples of q drawn from them again.

    By hand: `scipy.stats.bootstrap` draws a thousand times q values, where how often each distinct value is drawn is
    all that a mean depends on, and there are few distinct values however many queries.
    """
    distinct, counts = np.unique(values, return_counts=True)
    drawn = chance.multinomial(len(values), counts / len(values), size=_DRAWS)
    low, high = np.quantile(drawn @ distinct / len(values), (_LOW, _HIGH))
    return Interval(float(counts @ distinct / len(values)), float(low), float(high))


def as_cell(interval: Interval | None) -> str:
    """A value and its interval for people."""
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})" if interval else "-"


def as_text(value: float | None) -> str:
    """A value for people; a dash stands for one that is not known."""
    return "-" if value is None else f"{value:.3f}"

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
"""Table headers for the fields of `SearchMetrics`."""

_DRAWS = 1000
_LOW, _HIGH = 0.05, 0.95
_MAX_CLUSTERS, _MIN_QUERIES = 8, 25
_KEYS_NAMED = 3


@dataclass(frozen=True)
class SearchMetrics:
    """Means over queries, each of which searches for its ten nearest rows, with 90 % bootstrap intervals.

    The intervals have zero width if all queries have the same value. `self_recall_1` and `self_recall_10`: how often
    the query's own text is the nearest row, or among the ten (None if the queries have no text in the index). The other
    two compare with the *reference*: the ten rows that the search finds without the change, including the query's own
    text. `overlap`: the share of the rows found that are in the reference; `ndcg`: the same, with ranks discounted by
    1 / log2(rank + 1), so that a miss near the top counts for more (the ten reference rows are equally relevant,
    nothing else is).
    """

    self_recall_1: Interval | None
    self_recall_10: Interval | None
    overlap: Interval
    ndcg: Interval

    def in_order(self) -> tuple[Interval | None, ...]:
        """All metrics, in the order of `METRIC_NAMES`."""
        return tuple(getattr(self, name) for name in METRIC_NAMES)


@dataclass(frozen=True)
class QueryCluster:
    """A cluster of similar queries: the keys of the most central ones, the number of queries, and their metrics."""

    keys: tuple[str, ...]
    queries: int
    metrics: SearchMetrics

    def short_keys(self, max_letters: int) -> list[str]:
        """The keys, each truncated to `max_letters` characters."""
        return [key if len(key) <= max_letters else f"{key[: max_letters - 3]}..." for key in self.keys]


@dataclass(frozen=True)
class DirectionResult:
    """Search metrics in one direction, over all `queries` in an index of `index` rows and over clusters of queries.

    There are at most eight `clusters`, sorted by `ndcg` with the worst first, and none if there are too few queries.
    """

    metrics: SearchMetrics
    queries: int
    index: int
    clusters: tuple[QueryCluster, ...]

    def cluster_table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table, one per cluster: its number of queries, then its metrics without intervals."""
        return [
            (f"{cluster.queries}", *(as_text(each.estimate if each else None) for each in cluster.metrics.in_order()))
            for cluster in self.clusters
        ]


class QueryGroup(NamedTuple):
    """A group of similar queries: the most central keys, and the row numbers (c,) of all members."""

    keys: tuple[str, ...]
    members: NDArray[np.int64]


def group_queries(discovery: AnchorDiscovery, queries: Embeddings, random_state: int) -> list[QueryGroup]:
    """Groups of similar queries; an empty list if there are too few queries for two groups."""
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
    """Average the scores of each query (q,), given by metric, over all queries and over each group."""
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
    """The scores of each query (q,), by metric: rows found (q, 10) against the reference (q, 10) and `own` row (q,)."""
    there = also_in(found, reference).double()
    discount = 1 / torch.log2(torch.arange(2, found.shape[1] + 2, device=found.device, dtype=torch.float64))
    missed = (1 - there) @ (discount / discount.sum())  # sums misses rather than hits: without a miss nDCG is exactly 1
    values = {"overlap": there.mean(dim=1), "ndcg": (1 - missed).clamp_min(0)}
    if own is not None:
        hit = (found == own[:, None]).double()
        values |= {"self_recall_1": hit[:, 0], "self_recall_10": hit.amax(dim=1)}
    return {name: each.cpu().numpy() for name, each in values.items()}


def bootstrap_interval(values: NDArray[np.float64], chance: np.random.Generator) -> Interval:
    """The mean of values (q,), and its 90 % percentile bootstrap interval from 1,000 resamples.

    Not SciPy: `scipy.stats.bootstrap` draws 1,000 times q values. A mean depends only on how often each distinct value
    is drawn, and there are few distinct values, however many queries.
    """
    distinct, counts = np.unique(values, return_counts=True)
    drawn = chance.multinomial(len(values), counts / len(values), size=_DRAWS)
    low, high = np.quantile(drawn @ distinct / len(values), (_LOW, _HIGH))
    return Interval(float(counts @ distinct / len(values)), float(low), float(high))


def as_cell(interval: Interval | None) -> str:
    """Format a value and its interval; a dash if it is unknown."""
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})" if interval else "-"


def as_text(value: float | None) -> str:
    """Format a value; a dash if it is unknown."""
    return "-" if value is None else f"{value:.3f}"

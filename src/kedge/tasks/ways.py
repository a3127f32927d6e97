"""How searches do: figures with intervals, over all queries and over those that lie together."""

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
from kedge.tasks.clusters import cluster_rows
from kedge.tasks.searching import also_in, loaded

FIGURE_NAMES = {"own_1": "own@1", "own_10": "own@10", "overlap": "overlap@10", "ndcg": "nDCG@10"}
"""What tables call the fields of `SearchFigures`."""

_DRAWS = 1000
_LOW, _HIGH = 0.05, 0.95
_MOST_CLUSTERS, _FEWEST_QUERIES = 8, 25
_KEYS_NAMED = 3


@dataclass(frozen=True)
class SearchFigures:
    """Means over queries, each of which looks for its ten nearest, with 90 % intervals (by bootstrap over the queries:
    they have no width where all queries agree).

    `own_1` and `own_10`: how often the query's own text is the nearest, or among the ten (None where queries have no
    text in the index). The other two compare with the *reference*, the ten that the search would find without the
    change; the query's own text counts among the ten like any other. `overlap`: the share of the reference that is
    found; `ndcg`: the same, discounted by 1 / log2(rank + 1), so that what is missing at the top counts for more (all
    ten of the reference are equally relevant, nothing else is).
    """

    own_1: Interval | None
    own_10: Interval | None
    overlap: Interval
    ndcg: Interval

    def in_order(self) -> tuple[Interval | None, ...]:
        """All of them, in the order of `FIGURE_NAMES`."""
        return self.own_1, self.own_10, self.overlap, self.ndcg


@dataclass(frozen=True)
class QueryCluster:
    """Queries that lie together: the keys of the most central ones, how many there are, and how they do."""

    keys: tuple[str, ...]
    queries: int
    figures: SearchFigures

    def short_keys(self, most: int) -> list[str]:
        """The keys, cut to so many letters each."""
        return [key if len(key) <= most else f"{key[: most - 3]}..." for key in self.keys]


@dataclass(frozen=True)
class Way:
    """How searches do one way: over all `queries`, in an index of `index` rows, and over each of at most eight clusters
    of them, the worst by `ndcg` first (none where the queries are few).
    """

    figures: SearchFigures
    queries: int
    index: int
    clusters: tuple[QueryCluster, ...]

    def cluster_table(self) -> list[tuple[str, ...]]:
        """The rows of a table for people: how many queries a cluster has, then its figures without intervals."""
        return [
            (f"{cluster.queries}", *(told(each.estimate if each else None) for each in cluster.figures.in_order()))
            for cluster in self.clusters
        ]


class Group(NamedTuple):
    """Queries that lie together: the most central keys, and all their numbers (c,)."""

    keys: tuple[str, ...]
    members: NDArray[np.int64]


def groups_of(discovery: AnchorDiscovery, queries: Embeddings, random_state: int) -> list[Group]:
    """Kinds of queries, where there are enough for two."""
    count = min(_MOST_CLUSTERS, len(queries) // _FEWEST_QUERIES)
    if count < 2:
        return []
    rows = loaded(discovery.normalise_x, queries.vectors, torch.device("cpu"))
    cluster, centers = cluster_rows(rows, count, _FEWEST_QUERIES, random_state)
    if len(centers) < 2:
        return []
    groups = []
    for number, center in enumerate(centers):
        members = np.flatnonzero(cluster == number)
        central = (rows[members] @ center).topk(_KEYS_NAMED).indices.tolist()
        groups.append(Group(tuple(queries.keys[members[place]] for place in central), members))
    return groups


def way_of(
    outcomes: Mapping[str, NDArray[np.float64]], index: int, groups: Sequence[Group], chance: np.random.Generator
) -> Way:
    """The means of what queries came to, of all and of each group."""
    clusters = [
        QueryCluster(keys, len(members), _figures({name: values[members] for name, values in outcomes.items()}, chance))
        for keys, members in groups
    ]
    clusters.sort(key=lambda cluster: cluster.figures.ndcg.estimate or 0.0)
    return Way(_figures(outcomes, chance), len(outcomes["ndcg"]), index, tuple(clusters))


def _figures(outcomes: Mapping[str, NDArray[np.float64]], chance: np.random.Generator) -> SearchFigures:
    intervals = {name: bootstrap_interval(values, chance) for name, values in outcomes.items()}
    return SearchFigures(
        own_1=intervals.get("own_1"),
        own_10=intervals.get("own_10"),
        overlap=intervals["overlap"],
        ndcg=intervals["ndcg"],
    )


def outcomes_of(found: Tensor, reference: Tensor, own: Tensor | None = None) -> dict[str, NDArray[np.float64]]:
    """What each query comes to (q,), by figure: found (q, 10) against the reference (q, 10) and its own text (q,)."""
    there = also_in(found, reference).double()
    discount = 1 / torch.log2(torch.arange(2, found.shape[1] + 2, device=found.device, dtype=torch.float64))
    missed = (1 - there) @ (discount / discount.sum())  # rather than what is there: without a miss it is 1 exactly
    outcomes = {"overlap": there.mean(dim=1), "ndcg": (1 - missed).clamp_min(0)}
    if own is not None:
        hit = (found == own[:, None]).double()
        outcomes |= {"own_1": hit[:, 0], "own_10": hit.amax(dim=1)}
    return {name: values.cpu().numpy() for name, values in outcomes.items()}


def bootstrap_interval(values: NDArray[np.float64], chance: np.random.Generator) -> Interval:
    """The mean of values (q,), and the 90 % interval of the means of a thousand samples of q drawn from them again."""
    distinct, counts = np.unique(values, return_counts=True)
    # How often each value is drawn is all that a mean depends on, and there are few values however many queries.
    drawn = chance.multinomial(len(values), counts / len(values), size=_DRAWS)
    low, high = np.quantile(drawn @ distinct / len(values), (_LOW, _HIGH))
    return Interval(float(counts @ distinct / len(values)), float(low), float(high))


def told(figure: float | None) -> str:
    """A figure for people; a dash is what is not known."""
    return "-" if figure is None else f"{figure:.3f}"

"""Searches with real queries, measured by relevance judgements: with the change of model, and without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.judging.health import Interval
from kedge.models.translator import unit_vectors
from kedge.spaces import Embeddings
from kedge.tasks.rehearsal.metrics import as_cell, bootstrap_interval
from kedge.tasks.rehearsal.relevance import Relevance
from kedge.tasks.row_transforms import transform_rows
from kedge.tasks.search_quality import ten_nearest

JUDGED_METRIC_NAMES = {"recall_1": "recall@1", "recall_10": "recall@10", "ndcg": "nDCG@10"}
"""Table headers for the fields of `JudgedMetrics`."""

SEARCH_ROW_NAMES = {
    "old": "old model alone",
    "translated_queries": "translated queries",
    "translated_index": "translated index",
    "partly_reencoded": "translated index, partly re-encoded",
    "new": "new model alone (re-encoded)",
    "translated_queries_among_these": "translated queries, same texts",
}
"""Table names of the searches of a `JudgedSearches`."""

MIN_JUDGED = 10
"""With fewer judged queries nothing is measured."""

# A new index of fewer texts than this says nothing about one that holds all texts.
_MIN_INDEX = 100


@dataclass(frozen=True)
class JudgedMetrics:
    """Means over queries, with 90 % bootstrap intervals.

    `recall_1` and `recall_10`: the share of a query's relevant texts that are ranked first, or among the first ten.
    `ndcg`: the grades of the first ten, discounted by 1 / log2(rank + 1), as a share of the best possible (like
    trec_eval's `ndcg_cut_10`).
    """

    recall_1: Interval
    recall_10: Interval
    ndcg: Interval

    def in_order(self) -> tuple[Interval, ...]:
        """All metrics, in the order of `JUDGED_METRIC_NAMES`."""
        return self.recall_1, self.recall_10, self.ndcg


@dataclass(frozen=True)
class KindOfQuery:
    """The queries of one kind, as named in the judgements, and their metrics."""

    kind: str
    queries: int
    metrics: JudgedMetrics


@dataclass(frozen=True)
class JudgedSearch:
    """Metrics of one search over all `queries` in an index of `index` rows, and by kind of query, worst first."""

    metrics: JudgedMetrics
    queries: int
    index: int
    kinds: tuple[KindOfQuery, ...]


@dataclass(frozen=True)
class JudgedSearches:
    """Searches by name (see `SEARCH_ROW_NAMES`), as far as there are vectors for them.

    `old` needs the old model's vectors of the queries; `new` and `partly_reencoded` need the new model's vectors of
    texts in the index. If some texts lack one, `new` is measured in a smaller index, which is easier, and
    `translated_queries_among_these` repeats `translated_queries` in that index.
    """

    searches: Mapping[str, JudgedSearch]
    queries: int
    judgements: int
    skipped: int
    as_queries: bool

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table: search, number of queries, number of rows in the index, metrics."""
        return [
            (SEARCH_ROW_NAMES[name], f"{one.queries}", f"{one.index}", *map(as_cell, one.metrics.in_order()))
            for name, one in self.searches.items()
        ]

    def value(self, name: str, metric: str) -> float | None:
        """A metric of a search, without its interval; None if it was not measured."""
        search = self.searches.get(name)
        return None if search is None else getattr(search.metrics, metric).estimate


class _Judge:
    """Scores the rows found (q, 10) in an index against judgements."""

    def __init__(self, relevance: Relevance, count: int, index: int) -> None:
        order = np.lexsort((relevance.rows, relevance.queries))
        self.queries, self.rows = relevance.queries[order], relevance.rows[order]
        self.grades = relevance.grades[order].astype(np.float64)
        self.codes, self.index = self.queries * index + self.rows, index
        self.relevant = np.bincount(self.queries, minlength=count)
        self.discount = 1 / np.log2(np.arange(2, 12))
        best = np.lexsort((-self.grades, self.queries))
        place = np.arange(len(best)) - np.repeat(np.cumsum(self.relevant) - self.relevant, self.relevant)
        gains = np.where(place < 10, self.grades[best] * self.discount[np.minimum(place, 9)], 0)
        self.ideal = np.bincount(self.queries[best], weights=gains, minlength=count)

    def scores(self, found: Tensor, asked: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """The scores (q,) of the queries `asked` (q,), which found these rows (q, 10), by metric."""
        codes = asked[:, None] * self.index + found.cpu().numpy()
        place = np.searchsorted(self.codes, codes).clip(max=len(self.codes) - 1)
        grades = np.where(self.codes[place] == codes, self.grades[place], 0)
        hit, relevant = grades > 0, self.relevant[asked]
        gained = grades @ self.discount[: grades.shape[1]]
        return {
            "recall_1": hit[:, 0] / relevant,
            "recall_10": hit.sum(axis=1) / relevant,
            "ndcg": np.minimum(gained / self.ideal[asked], 1.0),
        }


def measure_judged(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    known: NDArray[np.int64],
    queries: Embeddings,
    queries_old: Embeddings | None,
    relevance: Relevance,
    device: torch.device,
    chance: np.random.Generator,
) -> JudgedSearches:
    """Run all searches that can be measured; `known` (p, 2) holds rows of x and y that are the same text."""
    asked, number = np.unique(relevance.queries, return_inverse=True)
    if len(asked) < MIN_JUDGED:
        raise InputError(f"relevant: {len(asked)} queries have a relevant text, at least {MIN_JUDGED} are needed")
    queries = queries.take(asked)
    kinds = [relevance.kinds.get(query, "") for query in asked.tolist()]
    relevance = replace(relevance, queries=number)

    def as_they_are(vectors: NDArray[np.float32]) -> Tensor:
        return transform_rows(unit_vectors, vectors, device)

    as_queries = discovery.queries_ is not None
    new, old = as_they_are(queries.vectors), as_they_are(y.vectors)
    to_old = partial(discovery.translate, kind="query" if as_queries else "text")
    in_old = transform_rows(to_old, queries.vectors, device)
    in_new = transform_rows(partial(discovery.translate, back=True), y.vectors, device)
    searches: dict[str, JudgedSearch] = {}

    def search(name: str, vectors: Tensor, index: Tensor, judgements: Relevance = relevance) -> None:
        tested = np.unique(judgements.queries)
        judge = _Judge(judgements, len(queries), len(index))
        values = judge.scores(ten_nearest(vectors[torch.from_numpy(tested).to(device)], index), tested)
        searches[name] = _summarise(values, [kinds[query] for query in tested], len(index), chance)

    if queries_old is not None:
        order = _rows_of_old(queries, queries_old)
        search("old", as_they_are(queries_old.vectors)[torch.from_numpy(order).to(device)], old)
    search("translated_queries", in_old, old)
    search("translated_index", new, in_new)
    pairs = known[np.unique(known[:, 1], return_index=True)[1]]  # one new vector for each text of the index
    if len(pairs) < min(_MIN_INDEX, len(y)):
        return JudgedSearches(searches, len(asked), len(relevance.rows), relevance.skipped, as_queries)
    own = as_they_are(x.vectors[pairs[:, 0]])
    if len(pairs) == len(y):
        search("new", new, own)  # pairs covers the rows of y in order, so row numbers agree
    else:
        places = torch.from_numpy(pairs[:, 1]).to(device)
        search("partly_reencoded", new, in_new.index_copy(0, places, own))
        among = _among(relevance, pairs[:, 1])
        if len(np.unique(among.queries)) >= MIN_JUDGED:
            search("new", new, own, among)
            search("translated_queries_among_these", in_old, old[places], among)
    return JudgedSearches(searches, len(asked), len(relevance.rows), relevance.skipped, as_queries)


def _among(relevance: Relevance, rows: NDArray[np.int64]) -> Relevance:
    """The judgements about some rows (r,) of the index, in ascending order, renumbered by position among them."""
    kept = np.isin(relevance.rows, rows)
    places = np.searchsorted(rows, relevance.rows[kept])
    return Relevance(relevance.queries[kept], places, relevance.grades[kept], relevance.kinds)


def _rows_of_old(queries: Embeddings, old: Embeddings) -> NDArray[np.int64]:
    """The row of the old model's vector of each query."""
    missing = [key for key in queries.keys if key not in old.row_of]
    if missing:
        raise InputError(
            f"{old.source}: lacks {len(missing)} of the {len(queries)} queries of {queries.source}, the first is "
            f"{missing[0]!r}; encode the same queries with the old model, under the same keys"
        )
    return old.rows(queries.keys)


def _summarise(
    values: Mapping[str, NDArray[np.float64]], kinds: list[str], index: int, chance: np.random.Generator
) -> JudgedSearch:
    """Average the scores of each query (q,), given by metric, over all queries and over each kind."""
    of_query = np.asarray(kinds)
    by_kind = []
    for kind in sorted(set(of_query.tolist()) - {""}):
        members = of_query == kind
        metrics = _means({name: each[members] for name, each in values.items()}, chance)
        by_kind.append(KindOfQuery(kind, int(members.sum()), metrics))
    by_kind.sort(key=lambda each: each.metrics.ndcg.estimate or 0.0)
    return JudgedSearch(_means(values, chance), len(kinds), index, tuple(by_kind))


def _means(values: Mapping[str, NDArray[np.float64]], chance: np.random.Generator) -> JudgedMetrics:
    return JudgedMetrics(**{name: bootstrap_interval(each, chance) for name, each in values.items()})

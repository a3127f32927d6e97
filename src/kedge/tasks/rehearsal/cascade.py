"""Four strategies for a new model, and what each costs: stay, bridge, cascade, re-encode.

*Stay*: old queries search the old index. *Bridge*: new queries, translated, search the old index. *Cascade*: the bridge
finds candidates, whose texts the new model encodes and ranks. *Re-encode*: new queries search an index of new vectors.
All are measured on texts that both models have already encoded, so comparing them encodes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.devices import resolve_device
from kedge.judging.health import Interval
from kedge.matching import DEFAULT_BUDGET, top_k, using_precision
from kedge.models.translator import unit_vectors
from kedge.spaces import Embeddings
from kedge.tasks.rehearsal.judged import MIN_JUDGED
from kedge.tasks.rehearsal.metrics import bootstrap_interval
from kedge.tasks.rehearsal.outcome import MIN_TEXTS
from kedge.tasks.rehearsal.relevance import Relevance
from kedge.tasks.row_transforms import transform_rows

STRATEGIES = ("stay", "bridge", "cascade", "re-encode")
"""The strategies, from the cheapest to the most expensive."""

CANDIDATES = 100
"""How many candidate texts a cascade encodes per query."""

TOLERANCE = 0.02
"""How much lower the recall of a cheaper strategy may be than the best one's for it to be recommended."""

_FOUND = 10
# Number of queries whose candidates' vectors are gathered at once.
_BLOCK = 128


@dataclass(frozen=True)
class PricedStrategy:
    """One of `STRATEGIES`: its recall@10, and what it costs.

    The new model must encode `texts` texts in advance, and `texts_per_query` texts for each query besides the query
    itself. `seconds_per_query` includes encoding the candidates.
    """

    name: str
    recall: Interval
    texts: int
    texts_per_query: int
    seconds_per_query: float


@dataclass(frozen=True)
class StrategyComparison:
    """The strategies that could be measured, cheapest first, with the name of the recommended one and the reason.

    `judged` says whether judgements told what is right, or what the new model itself finds did.
    """

    strategies: tuple[PricedStrategy, ...]
    queries: int
    index: int
    recommended: str
    reason: str
    judged: bool = False

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table: strategy, recall@10, texts to encode in advance and per query, seconds."""
        return [
            (
                each.name,
                f"{each.recall.estimate:.3f} ({each.recall.low:.3f} to {each.recall.high:.3f})",
                f"{each.texts}",
                f"{each.texts_per_query}",
                f"{each.seconds_per_query:.4f}",
            )
            for each in self.strategies
        ]


def rank_candidates(candidates: Tensor, queries: Tensor, index: Tensor, k: int = _FOUND) -> Tensor:
    """The k best (q, k) of each query's candidates (q, c), which are rows of an index (m, d), by inner product."""
    best = [candidates[:0, :k]]
    for begin in range(0, len(queries), _BLOCK):
        some, asked = (rows[begin : begin + _BLOCK] for rows in (candidates, queries))
        scores = torch.einsum("qd,qcd->qc", asked, index[some])
        best.append(some.gather(1, scores.topk(min(k, some.shape[1]), dim=1).indices))
    return torch.cat(best)


def judged_pairs(relevance: Relevance, pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The queries (q,) with a relevant text among known pairs (p, 2), and the indices (q, j) of its pairs.

    Indices are padded with -1. No row of y may be in two pairs.
    """
    pair_of = {row: number for number, row in enumerate(pairs[:, 1].tolist())}
    found: dict[int, list[int]] = {}
    for query, row in sorted(zip(relevance.queries.tolist(), relevance.rows.tolist(), strict=True)):
        if row in pair_of:
            found.setdefault(query, []).append(pair_of[row])
    if len(found) < MIN_JUDGED:
        raise InputError(
            f"relevant: {len(found)} queries have a relevant text among the {len(pairs)} known pairs, at least "
            f"{MIN_JUDGED} are needed to compare strategies; give more judgements or more known pairs"
        )
    judged = np.full((len(found), max(map(len, found.values()))), -1, dtype=np.int64)
    for place, right in enumerate(found.values()):
        judged[place, : len(right)] = right
    return np.asarray(list(found), dtype=np.int64), judged


def rehearse_strategies(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    pairs: NDArray[np.int64],
    queries: Embeddings,
    *,
    old_queries: Embeddings | None = None,
    judged: NDArray[np.int64] | None = None,
    device: str = "auto",
    **options: Any,
) -> StrategyComparison:
    """Compare the four strategies for the new model's queries (q, dx) on the texts of known pairs (p, 2).

    A pair holds a row of x and a row of y. `old_queries` (q, dy) are the same queries, encoded by the old model, in the
    same order; `judged` (q, j) holds the indices of the pairs whose texts are right for each query, padded with -1 (see
    `judged_pairs`). Other options are passed to `compare_strategies`.
    """
    if len(pairs) < MIN_TEXTS:
        raise InputError(f"strategies are compared on at least {MIN_TEXTS} known texts, got {len(pairs)}")
    place = resolve_device(device)
    unit = partial(transform_rows, unit_vectors, device=place)
    translate = partial(discovery.translate, kind="text" if discovery.queries_ is None else "query")
    return compare_strategies(
        transform_rows(translate, queries.vectors, place),
        unit(queries.vectors),
        unit(y.vectors[pairs[:, 1]]),
        unit(x.vectors[pairs[:, 0]]),
        None if judged is None else torch.from_numpy(judged).to(place),
        old_queries=None if old_queries is None else unit(old_queries.vectors),
        **options,
    )


def compare_strategies(
    translated: Tensor,
    new_queries: Tensor,
    old_index: Tensor,
    new_index: Tensor,
    judged: Tensor | None = None,
    *,
    old_queries: Tensor | None = None,
    candidates: int = CANDIDATES,
    seconds_per_text: float = 0.0,
    max_seconds: float | None = None,
    random_state: int = 0,
) -> StrategyComparison:
    """Measure the four strategies on q queries and an index of m texts that both models have encoded.

    Parameters
    ----------
    translated : Tensor, shape (q, dy)
        The new model's queries, translated into the old space; unit rows, like all other vectors here.
    new_queries, new_index : Tensor, shape (q, dx) and (m, dx)
        Queries and texts, encoded by the new model.
    old_index : Tensor, shape (m, dy)
        The index: the texts, encoded by the old model.
    judged : int Tensor, shape (q, j), optional
        The rows that are right for each query, padded with -1; at least one each. By default, whatever the new model
        finds among its own vectors counts as right, so that re-encoding has a recall of 1.
    old_queries : Tensor, shape (q, dy), optional
        The queries, encoded by the old model; without them "stay" is not measured.
    candidates : int
        How many texts a cascade ranks.
    seconds_per_text : float
        How long the new model takes to encode one text; a cascade pays this for each candidate.
    max_seconds : float, optional
        Strategies that take longer per query are not recommended.
    random_state : int
        Seed of the bootstrap intervals.
    """
    if candidates < _FOUND:
        raise InputError(
            f"candidates must be at least {_FOUND}, the number of texts that are looked for, got {candidates}"
        )
    if not (len(translated) == len(new_queries) and len(old_index) == len(new_index) > _FOUND):
        raise InputError(
            f"both models need the same number of queries and of texts, and more than {_FOUND} texts; got "
            f"{len(translated)} and {len(new_queries)} queries, {len(old_index)} and {len(new_index)} texts"
        )
    depth = min(candidates, len(old_index))
    searches: dict[str, Callable[[], Tensor]] = {
        "bridge": lambda: _nearest(translated, old_index, _FOUND),
        "cascade": lambda: rank_candidates(_nearest(translated, old_index, depth), new_queries, new_index),
        "re-encode": lambda: _nearest(new_queries, new_index, _FOUND),
    }
    if old_queries is not None:
        given = old_queries
        searches["stay"] = lambda: _nearest(given, old_index, _FOUND)
    _finished(searches["bridge"])  # the first search of a process is slower than any later one
    found, seconds = {}, {}
    for name, search in searches.items():
        began = time.perf_counter()
        found[name] = _finished(search)
        seconds[name] = (time.perf_counter() - began) / len(new_queries)
    seconds["cascade"] += depth * seconds_per_text
    chance = np.random.default_rng(random_state)
    recalls = {name: recall_of(each, found["re-encode"] if judged is None else judged) for name, each in found.items()}
    strategies = tuple(
        PricedStrategy(
            name,
            bootstrap_interval(recalls[name], chance),
            texts=len(new_index) if name == "re-encode" else 0,
            texts_per_query=depth if name == "cascade" else 0,
            seconds_per_query=seconds[name],
        )
        for name in STRATEGIES
        if name in recalls
    )
    recommended, reason = recommend(strategies, max_seconds)
    return StrategyComparison(
        strategies, len(new_queries), len(new_index), recommended, reason, judged=judged is not None
    )


def recommend(strategies: tuple[PricedStrategy, ...], max_seconds: float | None = None) -> tuple[str, str]:
    """The cheapest strategy that is about as good as the best, and a sentence that explains the choice."""
    quick = [each for each in strategies if max_seconds is None or each.seconds_per_query <= max_seconds] or list(
        strategies[:1]
    )
    best = max(quick, key=lambda each: each.recall.estimate or 0.0)
    reached = (best.recall.estimate or 0.0) - TOLERANCE
    chosen = next(each for each in quick if (each.recall.estimate or 0.0) >= reached)
    costs = {
        "stay": "nothing changes",
        "bridge": "no text is encoded again",
        "cascade": f"{chosen.texts_per_query} texts are encoded for each query",
        "re-encode": f"all {chosen.texts} texts are encoded once",
    }
    reason = f"recall@10 {chosen.recall.estimate:.3f}; {costs[chosen.name]}"
    if chosen is not best:
        reason += f"; {best.name}, which costs more, has {best.recall.estimate:.3f}"
    slow = [each.name for each in strategies if each not in quick]
    if slow:
        reason += f"; {' and '.join(slow)} would take too long"
    return chosen.name, reason


def recall_of(found: Tensor, judged: Tensor) -> NDArray[np.float64]:
    """The share (q,) of the rows that are right for each query (q, j), padded with -1, among those found (q, k).

    If more than k rows are right, finding k of them counts as full recall.
    """
    right = judged >= 0
    hit = (judged[:, :, None] == found[:, None, :]).any(dim=2) & right
    possible = right.sum(dim=1).clamp(min=1, max=found.shape[1])
    return (hit.sum(dim=1).clamp(max=found.shape[1]) / possible).double().cpu().numpy()


def _finished(search: Callable[[], Tensor]) -> Tensor:
    """What a search finds, once it has: a GPU returns before its work is done."""
    found = search()
    if found.is_cuda:
        torch.cuda.synchronize(found.device)
    return found


def _nearest(queries: Tensor, index: Tensor, k: int) -> Tensor:
    """The k rows (q, k) of an index (m, d) with the largest inner products with each query (q, d), best first."""
    with using_precision("float32"):
        return top_k(queries, index, k, budget=DEFAULT_BUDGET)[1]

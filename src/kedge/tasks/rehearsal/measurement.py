"""Compare searches with and without the change of model, on texts that both models have encoded.

X is the new model's space, Y the old one's, whose vectors are in the index. There are two ways to switch without
encoding everything again: with *translated queries*, new queries are translated into the old space and search the old
index; with a *translated index*, the old index is translated into the new space, where new queries search it as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.devices import resolve_device
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.estimators.pair_inputs import PairsLike, as_seed_rows
from kedge.models.maps.choosing import ENOUGH_KNOWN
from kedge.models.translator import unit_vectors
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.tasks.rehearsal.judged import measure_judged
from kedge.tasks.rehearsal.metrics import DirectionResult, group_queries, score_queries, summarise
from kedge.tasks.rehearsal.outcome import MIN_PAIRS, MIN_TEXTS, Estimate, HeldOut, Rehearsal
from kedge.tasks.rehearsal.relevance import RelevanceLike, as_relevance
from kedge.tasks.row_transforms import transform_rows
from kedge.tasks.search_quality import ten_nearest


def rehearse(
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    known: PairsLike = None,
    *,
    queries: SpaceLike | None = None,
    relevant: RelevanceLike | None = None,
    queries_old: SpaceLike | None = None,
    kinds: Mapping[Any, str] | None = None,
    device: str = "auto",
    random_state: RandomState = 0,
) -> Rehearsal:
    """Measure what searches would lose if X's model replaced Y's, which the index was made with.

    *Translated queries*: the rows of X among the known pairs are translated and search all rows of Y; the reference is
    what the old model's own vector of the same text finds there. *Translated index*: the rows of Y among the known
    pairs are translated back into an index that the rows of X search as they are; the reference is what they find among
    themselves, that is, in an index of the same texts by the new model.

    Parameters
    ----------
    discovery : AnchorDiscovery
        Fitted on these spaces, on parts of them, or on others of the same two models.
    x, y : spaces (n, dx) and (m, dy)
        The new model's space, and the old model's: the index. Embeddings, arrays, DataFrames, ...: see
        `AnchorDiscovery.fit`.
    known : pairs of keys or rows, optional
        Rows of x and y that are the same text, in any form accepted for seeds; each row in at most one pair. Pairs that
        share a key with a seed are left out. If fewer than ten remain, nothing is measured and `held_out` is all there
        is.
    queries : space (q, dx), optional
        The new model's vectors of real user queries. `given_queries` compares what they find in the translated index
        with what they find in the new model's own; to judge what they find, give `relevant` too.
    relevant : judgements, optional
        What the queries should find in the index, by key: a mapping from query to text, to several texts, or to grades
        by text; tuples (query, text) or (query, text, grade); or the result of `kedge.read_relevance`. With them,
        `judged_queries` has the recall and nDCG of real searches: with translated queries, in the translated index, by
        the new model alone if enough texts have its vectors, and by the old model alone if `queries_old` is given.
    queries_old : space (q, dy), optional
        The same queries by the old model, under the same keys, to measure what searches find today.
    kinds : mapping, optional
        From a query's key to its kind, for separate figures per kind.
    device : str
        Where to compute: "auto", "cpu", "cuda" or "cuda:N".
    random_state : int, NumPy generator or None
        Seeds the intervals and the clusters.
    """
    place = resolve_device(device)
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    asked = None if queries is None else as_space(queries, "queries").with_text_keys()
    asked_old = None if queries_old is None else as_space(queries_old, "queries_old").with_text_keys()
    for space, name, dim in (
        (space_x, "X, the new model's,", discovery.map_.dims[0]),
        (space_y, "Y, the old model's,", discovery.map_.dims[1]),
        (asked, "X, the new model's,", discovery.map_.dims[0]),
        (asked_old, "Y, the old model's,", discovery.map_.dims[1]),
    ):
        if space is not None and space.dim != dim:
            raise InputError(
                f"{space.source}: has {space.dim} dimensions, but {name} has {dim} in this run; give the new model's "
                "vectors as X, the old one's as Y"
            )
    given = as_seed_rows(known, space_x, space_y, 0, "known pairs")
    if relevant is not None and asked is None:
        raise InputError("relevant: also give `queries`, the queries that it is about, encoded with the new model")
    # A loaded run has text keys, so whatever it is compared with must have them too.
    discovery = discovery.with_text_keys()
    space_x, space_y = space_x.with_text_keys(), space_y.with_text_keys()
    pairs = _without_seeds(discovery, space_x, space_y, given)
    listed = set(discovery.pair_keys_)
    state = as_random_state(random_state)
    results = _measure(discovery, space_x, space_y, pairs, asked, place, state)
    judged = None
    if relevant is not None and asked is not None:
        judgements = as_relevance(relevant, asked, space_y)
        if kinds is not None:
            named = {asked.row_of.get(str(key)): kind for key, kind in kinds.items()}
            judgements = replace(judgements, kinds={row: kind for row, kind in named.items() if row is not None})
        chance = np.random.default_rng(state)
        judged = measure_judged(discovery, space_x, space_y, given, asked, asked_old, judgements, place, chance)
    return Rehearsal(
        pairs=len(pairs),
        seeds=len(given) - len(pairs),
        found=sum((space_x.keys[left], space_y.keys[right]) in listed for left, right in pairs.tolist()),
        translated_queries=results.get("translated_queries"),
        translated_index=results.get("translated_index"),
        given_queries=results.get("given_queries"),
        held_out=_held_out(discovery),
        judged_queries=judged,
    )


def _without_seeds(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, pairs: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The pairs (g, 2) of which neither row has the key of a seed."""
    seeds_x, seeds_y = ({seed[side] for seed in discovery.seed_keys_} for side in (0, 1))
    kept = [x.keys[left] not in seeds_x and y.keys[right] not in seeds_y for left, right in pairs.tolist()]
    return pairs[np.asarray(kept, dtype=bool)]


def _measure(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    pairs: NDArray[np.int64],
    asked: Embeddings | None,
    device: torch.device,
    random_state: int,
) -> dict[str, DirectionResult]:
    """The results by direction, as far as the pairs (p, 2) and the given queries allow."""
    results: dict[str, DirectionResult] = {}
    if len(pairs) < MIN_PAIRS:
        return results
    chance = np.random.default_rng(random_state)
    texts = x.take(pairs[:, 0])
    groups = group_queries(discovery, texts, random_state)

    def as_they_are(vectors: NDArray[np.float32]) -> torch.Tensor:
        """Vectors (k, d) as unit rows, to be compared by cosine."""
        return transform_rows(unit_vectors, vectors, device)

    index = as_they_are(y.vectors)
    own = torch.from_numpy(pairs[:, 1]).to(device)
    found = ten_nearest(transform_rows(discovery.translate, texts.vectors, device), index)
    values = score_queries(found, ten_nearest(index[own], index), own)
    results["translated_queries"] = summarise(values, len(index), groups, chance)
    if len(pairs) < MIN_TEXTS:
        return results

    native = as_they_are(texts.vectors)
    translated = transform_rows(partial(discovery.translate, back=True), y.vectors[pairs[:, 1]], device)
    own = torch.arange(len(native), device=device)
    values = score_queries(ten_nearest(native, translated), ten_nearest(native, native), own)
    results["translated_index"] = summarise(values, len(translated), groups, chance)
    if asked is not None:
        queries = as_they_are(asked.vectors)
        values = score_queries(ten_nearest(queries, translated), ten_nearest(queries, native))
        groups = group_queries(discovery, asked, random_state)
        results["given_queries"] = summarise(values, len(translated), groups, chance)
    return results


def _held_out(discovery: AnchorDiscovery) -> Estimate:
    """The scores that the discovery measured when it chose its maps, and how far to trust them."""
    forward, back = (_map_scores(discovery, name) for name in ("map", "map_back"))
    trusted = int((~discovery.seed_is_suspect_).sum())
    measured = None not in (forward.mrr, forward.overlap, back.mrr, back.overlap)
    map_is_ok = discovery.health_.map.verdict == "ok"
    if not measured:
        caveat = "The discovery had too few certain pairs to hold some out: without known pairs nothing can be said."
    elif trusted >= ENOUGH_KNOWN:
        caveat = "Measured by the discovery on seeds that it held out."
    elif map_is_ok:
        caveat = (
            "Measured by the discovery on pairs that it found and held out, which are easier than the rest: expect to "
            "lose more."
        )
    else:
        caveat = (
            f"The map's verdict is not ok and there are fewer than {ENOUGH_KNOWN} seeds, so what the discovery held "
            "out says nothing: give known pairs."
        )
    return Estimate(forward, back, measured and (trusted >= ENOUGH_KNOWN or map_is_ok), caveat)


def _map_scores(discovery: AnchorDiscovery, name: str) -> HeldOut:
    mrr, overlap = (discovery.map_scores_[name][field] for field in ("mrr", "overlap"))
    return HeldOut(None if mrr is None else float(mrr), None if overlap is None else float(overlap))

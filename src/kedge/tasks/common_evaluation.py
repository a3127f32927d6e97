"""Score a common space against gold items: search between every two members, and precision and recall of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators.devices import resolve_device
from kedge.many.common_space import CommonSpace
from kedge.many.seed_tuples import UNKNOWN
from kedge.models.translator import unit_vectors
from kedge.spaces import Embeddings
from kedge.tasks.row_transforms import transform_rows
from kedge.tasks.search_quality import SearchScores, search_scores, ten_nearest

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class MemberPairEvaluation:
    """Scores of two members: rows of the first that are in no seed search all rows of the second for their partners.

    `shared` ranks by the likelihood of the two, `map` by `translate` and cosine; both are None without queries.
    `pairs_precision` is computed over the pairs in groups, without seeds (None if there are none), `pairs_recall` over
    the queries.
    """

    first: str
    second: str
    queries: int
    shared: SearchScores | None
    map: SearchScores | None
    pairs_precision: float | None
    pairs_recall: float | None


def evaluate_common(
    common: CommonSpace, spaces: Mapping[str, Embeddings], gold: Rows, *, complete: bool, device: str = "auto"
) -> list[MemberPairEvaluation]:
    """Score every two of the spaces, which are members of `common` as they were fitted.

    `gold` (g, k) holds tuples of rows of the k spaces that are one item, -1 where unknown. With `complete`, a row
    without a gold partner is known to have none, so any pair with it is wrong; otherwise such pairs are not counted.
    """
    if len(spaces) < 2:
        raise InputError(f"at least two members are needed to compare them, got {len(spaces)}")
    place = resolve_device(device)
    members = list(common.members_)
    columns = {name: members.index(name) for name in spaces}
    found = []
    for s, t in combinations(range(len(spaces)), 2):
        first, second = list(spaces)[s], list(spaces)[t]
        seeds = _both(common.seeds_[:, [columns[first], columns[second]]])
        truth = np.unique(_both(gold[:, [s, t]]), axis=0)
        asked = truth[~np.isin(truth[:, 0], seeds[:, 0])]
        shared, by_map = _searched(common, first, second, spaces, asked, place) if len(asked) else (None, None)
        precision, recall = _pairs(common.match(first, second), seeds, truth, asked, complete=complete)
        queries = len(np.unique(asked[:, 0]))
        found.append(MemberPairEvaluation(first, second, queries, shared, by_map, precision, recall))
    return found


def gold_tuples_by_key(spaces: Mapping[str, Embeddings]) -> Rows:
    """Tuples (g, k) of rows with equal keys in at least two spaces, -1 where a space lacks the key."""
    keys: dict[object, None] = {}
    for space in spaces.values():
        keys.update(dict.fromkeys(space.keys))
    tuples = np.array([[space.row_of.get(key, UNKNOWN) for space in spaces.values()] for key in keys])
    several = tuples[(tuples >= 0).sum(axis=1) > 1]
    if not len(several):
        raise InputError("gold: no two of the spaces have a key in common; give a table with one column per space")
    return several


def _searched(
    common: CommonSpace, first: str, second: str, spaces: Mapping[str, Embeddings], asked: Rows, device: torch.device
) -> tuple[SearchScores, SearchScores]:
    """Search scores by likelihood, and by the map and cosine."""
    rows, query = np.unique(asked[:, 0], return_inverse=True)
    vectors, targets = spaces[first].vectors[rows], spaces[second].vectors
    partners = torch.from_numpy(np.stack([query, asked[:, 1]], axis=1)).to(device)
    index = transform_rows(unit_vectors, targets, device)
    nearest = ten_nearest(index[partners[:, 1]], index)
    translator = common.translator(source=first, target=second)
    by_map = search_scores(transform_rows(translator, vectors, device), index, partners, nearest)
    pair = common.between(first, second)
    index = transform_rows(pair.y_.shared, targets, device)
    return search_scores(transform_rows(pair.x_.shared, vectors, device), index, partners, nearest), by_map


def _pairs(match: Rows, seeds: Rows, truth: Rows, asked: Rows, *, complete: bool) -> tuple[float | None, float | None]:
    """Precision and recall of a match (n,), -1 where a row has no partner, without the seeds (s, 2)."""
    match = match.copy()
    match[seeds[:, 0]] = UNKNOWN
    right = {tuple(pair) for pair in truth.tolist()}
    known = set(truth[:, 0].tolist())
    judged = [
        (row, partner) in right
        for row, partner in enumerate(match.tolist())
        if partner != UNKNOWN and (complete or row in known)
    ]
    queries = set(asked[:, 0].tolist())
    hits = sum((row, int(match[row])) in right for row in queries)
    return (sum(judged) / len(judged) if judged else None), (hits / len(queries) if queries else None)


def _both(pairs: Rows) -> Rows:
    """The pairs (p, 2) that are known at both ends."""
    known: Rows = pairs[(pairs >= 0).all(axis=1)]
    return known

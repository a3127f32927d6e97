"""How well search works: queries that are not seeds search all rows of the other space for their partners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.estimators import AnchorDiscovery
from kedge.geometry import denormalise, moments_of, nearest_rotation, ridge, unit
from kedge.matching import DEFAULT_BUDGET, top_k, using_precision
from kedge.models.maps.choosing import NEIGHBOURS
from kedge.models.translator import unit_vectors
from kedge.spaces import Embeddings, rows_from_key_pairs
from kedge.tasks.row_transforms import transform_rows

SEARCH_NAMES = {"p_at_1": "P@1", "p_at_10": "P@10", "mrr": "MRR@10", "overlap": "overlap@10"}
"""Table headers for the fields of `SearchScores`."""

SEARCHES = ("Shared", "Map", "Procrustes", "Ridge")
"""Ways to search: shared coordinates, `translate`, and two maps fitted to the seeds alone."""

_PENALTY = 0.1  # of the ridge regression fitted to the seeds alone


@dataclass(frozen=True)
class SearchScores:
    """Means over queries, each of which searches for its ten nearest rows of Y.

    `p_at_1` and `p_at_10`: how often a partner of the query is the nearest row, or among the ten; `mrr`: reciprocal
    rank of its best partner, 0 if none is among the ten; `overlap`: the share of the ten that are also among the ten
    rows nearest to that partner within Y (including the partner).
    """

    p_at_1: float
    p_at_10: float
    mrr: float
    overlap: float


class SearchEvaluation(NamedTuple):
    """Scores for each of `SEARCHES` (None if it has no map or there are no queries), and the number of queries."""

    scores: dict[str, SearchScores | None]
    queries: int


def evaluate_search(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, gold: NDArray[np.int64], device: torch.device
) -> SearchEvaluation:
    """Search all rows of y for the partners of the rows of x in `gold` (g, 2) that are in no seed.

    Shared coordinates are compared by inner product. Maps translate a query into Y, where it is compared with Y's
    unchanged vectors by cosine. The scores of the two maps fitted to the seeds alone are None without seeds; these maps
    also use suspect seeds.
    """
    seeds = rows_from_key_pairs(discovery.seed_keys_, x, y)
    asked = np.unique(gold[~np.isin(gold[:, 0], seeds[:, 0])], axis=0)
    scores: dict[str, SearchScores | None] = dict.fromkeys(SEARCHES)
    if not len(asked):
        return SearchEvaluation(scores, 0)
    query_rows, query = np.unique(asked[:, 0], return_inverse=True)
    vectors = x.vectors[query_rows]
    partners = torch.from_numpy(np.stack([query, asked[:, 1]], axis=1)).to(device)

    index = transform_rows(unit_vectors, y.vectors, device)
    nearest = ten_nearest(index[partners[:, 1]], index)
    scores["Map"] = search_scores(transform_rows(discovery.translate, vectors, device), index, partners, nearest)
    if len(seeds):
        maps = _maps_of_seeds(discovery, x, y, seeds, device)
        normalised = transform_rows(discovery.x_.normalise, vectors, device)
        center = None if discovery.y_.center is None else torch.from_numpy(discovery.y_.center).to(device)
        for name, matrix in maps.items():
            queries = denormalise(unit(normalised @ matrix), center)
            scores[name] = search_scores(queries, index, partners, nearest)
    index = transform_rows(discovery.y_.shared, y.vectors, device)
    scores["Shared"] = search_scores(transform_rows(discovery.x_.shared, vectors, device), index, partners, nearest)
    return SearchEvaluation(scores, len(query_rows))


def search_scores(
    queries: Tensor, index: Tensor, partners: Tensor, nearest: Tensor, *, budget: int = DEFAULT_BUDGET
) -> SearchScores:
    """Score a search of an index (m, d) with queries (q, d), by inner product.

    Parameters
    ----------
    partners : int Tensor, shape (p, 2)
        Pairs of a query and a row of the index that is right for it; at least one for each query. If there are several,
        the one that ranks best counts.
    nearest : int Tensor, shape (p, k)
        The rows of the index nearest to each of these partners.
    """
    found = ten_nearest(queries, index, budget=budget)
    count = found.shape[1]
    query, row = partners.T
    hit = found[query] == row[:, None]
    place = torch.where(hit.any(dim=1), hit.int().argmax(dim=1), count)
    similarity = (queries[query] * index[row]).sum(dim=1)  # ranks partners that were not found
    order = np.lexsort([key.cpu().numpy() for key in (-similarity, place, query)])
    _, first = np.unique(query.cpu().numpy()[order], return_index=True)
    best = torch.from_numpy(order[first]).to(found.device)
    rank = place[best].double() + 1
    shared = also_in(found, nearest[best])
    return SearchScores(
        p_at_1=float((rank == 1).double().mean()),
        p_at_10=float((rank <= count).double().mean()),
        mrr=float(torch.where(rank <= count, 1 / rank, 0).mean()),
        overlap=float(shared.double().mean()),
    )


def ten_nearest(queries: Tensor, index: Tensor, *, budget: int = DEFAULT_BUDGET) -> Tensor:
    """The ten rows (q, 10) of an index (m, d) with the largest inner products with each query (q, d), best first."""
    with using_precision("float32"):
        return top_k(queries, index, NEIGHBOURS, budget=budget)[1]


def also_in(found: Tensor, wanted: Tensor) -> Tensor:
    """A mask (q, k) of the rows found (q, k) for each query that are among the wanted ones (q, j)."""
    mask = torch.zeros_like(found, dtype=torch.bool)
    for column in wanted.T:
        mask |= found == column[:, None]
    return mask


def _maps_of_seeds(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, seeds: NDArray[np.int64], device: torch.device
) -> dict[str, Tensor]:
    """Maps (dx, dy) between the normalised spaces, fitted to the seeds (s, 2) only."""
    source = transform_rows(discovery.x_.normalise, x.vectors[seeds[:, 0]], device)
    target = transform_rows(discovery.y_.normalise, y.vectors[seeds[:, 1]], device)
    moments = moments_of(source.double(), target.double())
    maps = nearest_rotation(moments.cross), ridge(moments.source, moments.cross, _PENALTY)
    return {name: matrix.float() for name, matrix in zip(("Procrustes", "Ridge"), maps, strict=True)}

"""Neighbours of a row of X among the rows of Y: the thing people try first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from kedge.discovery import AnchorDiscovery
from kedge.errors import InputError
from kedge.matching import top_k
from kedge.spaces import Embeddings


class Neighbour(NamedTuple):
    """A key of Y and its cosine similarity to the translated query."""

    key: str
    similarity: float


def search(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, keys: Sequence[str], k: int = 5
) -> dict[str, list[Neighbour]]:
    """The k rows of Y nearest to each key of X, carried across by the map; nearest first."""
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    queries = torch.from_numpy(discovery.map_x(x.take(x.rows(keys))))
    values, rows = top_k(queries, torch.from_numpy(discovery.normalise_y(y)), k)
    return {
        key: [Neighbour(y.keys[row], similarity) for row, similarity in zip(near, similar, strict=True)]
        for key, near, similar in zip(keys, rows.tolist(), values.tolist(), strict=True)
    }

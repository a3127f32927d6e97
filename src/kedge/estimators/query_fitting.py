"""How a fitted discovery translates queries: what it tries their translation on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.models.query_map import QueryTranslation, choose_query_translation
from kedge.spaces import Embeddings

if TYPE_CHECKING:
    from kedge.estimators.anchor_discovery import AnchorDiscovery


def translation_of_queries(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, queries: Embeddings
) -> QueryTranslation:
    """The translation of queries (q, dx), tried on the pairs that were found and the seeds that are trusted."""
    seeds = discovery.seeds_[~discovery.seed_is_suspect_]
    pairs = np.unique(np.concatenate([seeds, discovery.pairs_]), axis=0)
    return choose_query_translation(
        discovery.translator().steps[0],
        _rows(queries.vectors),
        _rows(x.vectors[pairs[:, 0]]),
        _rows(y.vectors[pairs[:, 1]]),
        centered=discovery.center,
    )


def _rows(vectors: NDArray[np.float32]) -> torch.Tensor:
    """A copy: a memory map may be read-only, and of half precision."""
    return torch.from_numpy(np.array(vectors, dtype=np.float32))

"""A few clusters of nearby rows, computed on the CPU, for choosing and naming kinds of rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.geometry import unit

_ROUNDS = 25
_SAMPLE = 10_000  # rows that the centers are fitted to


def cluster_rows(rows: Tensor, count: int, min_size: int, random_state: int = 0) -> tuple[NDArray[np.int64], Tensor]:
    """Spherical k-means of unit rows (n, d): the cluster (n,) of each row, and the centers (c, d).

    There are at most `count` clusters. The smallest is dissolved into the others until every cluster has at least
    `min_size` rows, or only one is left. The same `random_state` gives the same clusters.

    Not SciPy: the k-means++ start of `scipy.cluster.vq.kmeans2` takes four to nine times as long for 64 clusters, and
    its random start misses small ones. (`kedge.matching` has another k-means, for thousands of clusters on a GPU.)
    """
    generator = torch.Generator().manual_seed(random_state)
    sample = rows[torch.randperm(len(rows), generator=generator)[:_SAMPLE]]
    centers = _fit_centers(sample, _start_centers(sample, count, generator))
    while True:
        nearest = (rows @ centers.T).argmax(dim=1)
        sizes = torch.bincount(nearest, minlength=len(centers))
        smallest = int(sizes.argmin())
        if len(centers) == 1 or sizes[smallest] >= min_size:
            return nearest.numpy(), centers
        centers = torch.cat([centers[:smallest], centers[smallest + 1 :]])


def _fit_centers(rows: Tensor, centers: Tensor) -> Tensor:
    """Lloyd's iterations: move centers (c, d) to the mean of their nearest rows (n, d); one without rows stays."""
    for _ in range(_ROUNDS):
        nearest = (rows @ centers.T).argmax(dim=1)
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
        taken = torch.bincount(nearest, minlength=len(centers)) > 0
        moved = torch.where(taken[:, None], unit(sums), centers)
        if torch.equal(moved, centers):
            break
        centers = moved
    return centers


def _start_centers(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Initial centers (count, d): rows drawn in proportion to their distance from those already drawn (k-means++)."""
    chosen = [rows[0]]
    for _ in range(count - 1):
        closest = (rows @ torch.stack(chosen).T).amax(dim=1)
        distances = (1 - closest).clamp_min(torch.finfo(rows.dtype).eps)  # all rows may be the same
        chosen.append(rows[torch.multinomial(distances, 1, generator=generator)[0]])
    return torch.stack(chosen)

"""Clusters of rows, so that a row need only be compared with the clusters nearest to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks

ROWS_IN_A_CLUSTER = {"cpu": 128, "cuda": 1024}
"""The average. Smaller clusters fit the rows better, larger ones make better use of a matrix product."""

# Rounds of Lloyd's algorithm, and points per cluster that it runs on: better clusters hardly find more.
_ROUNDS, _POINTS = 6, 24
# Points converted to float32 at once.
_AT_ONCE = 65_536


@dataclass(frozen=True)
class Clusters:
    """Centers (k, e) of clusters of points (m, e), and the cluster of each point (m,)."""

    centers: Tensor
    labels: Tensor

    @classmethod
    def of(cls, points: Tensor, budget: int = DEFAULT_BUDGET, *, count: int | None = None) -> Clusters:
        """Run k-means on a sample, deterministically, for `count` clusters; points may be in half precision."""
        count = count or max(1, len(points) // ROWS_IN_A_CLUSTER[points.device.type])
        drawn = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[: _POINTS * count]
        sample = points[drawn.to(points.device)].float()
        centers = sample[:count].clone()
        for _ in range(_ROUNDS):
            labels = nearest_centers(sample, centers, 1, budget)[:, 0]
            sizes = torch.bincount(labels, minlength=count)[:, None]
            sums = torch.zeros_like(centers).index_add_(0, labels, sample)
            centers = torch.where(sizes > 0, sums / sizes.clamp_min(1), centers)
        return cls(centers, nearest_centers(points, centers, 1, budget)[:, 0])

    @cached_property
    def order(self) -> Tensor:
        """The points (m,), cluster by cluster."""
        return self.labels.argsort(stable=True)

    @cached_property
    def bounds(self) -> list[int]:
        """Where each cluster begins in `order`, and last the number of points (k + 1)."""
        return bounds_of(self.labels, len(self.centers))

    def members(self, cluster: int) -> Tensor:
        """The points of one cluster."""
        return self.order[self.bounds[cluster] : self.bounds[cluster + 1]]

    def nearest(self, points: Tensor, count: int, budget: int = DEFAULT_BUDGET) -> Tensor:
        """The clusters (n, count) nearest to other points (n, e), nearest first."""
        return nearest_centers(points, self.centers, count, budget)


def nearest_centers(points: Tensor, centers: Tensor, count: int, budget: int = DEFAULT_BUDGET) -> Tensor:
    """The numbers (n, count) of the centers (k, e) nearest to each point (n, e) by distance, nearest first."""
    count = min(count, len(centers))
    nearest = torch.empty(len(points), count, dtype=torch.int64, device=points.device)
    bias = -centers.square().sum(dim=1) / 2
    for begin in range(0, len(points), _AT_ONCE):
        some = points[begin : begin + _AT_ONCE].float()
        for rows, block in row_blocks(some, centers, budget, bias=bias):
            best = block.argmax(dim=1, keepdim=True) if count == 1 else block.topk(count, dim=1).indices
            nearest[begin + rows.start : begin + rows.stop] = best
    return nearest


def bounds_of(labels: Tensor, count: int) -> list[int]:
    """Where each of `count` labels begins once all are sorted, and last how many there are (count + 1)."""
    return [0, *torch.bincount(labels, minlength=count).cumsum(0).tolist()]

"""What all batches of a match share: how rows become coordinates, the centers of clusters, and who looks where.

Centers come from a sample of both spaces, which lie together in shared coordinates. A row looks into the few clusters
nearest to it, and into others whose centers are hardly farther: rows between clusters look into many. How much farther
they may be is decided on some rows of X whose nearest row of all Y is known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.engines import Engine
from kedge.geometry import leading_directions
from kedge.matching import to_half, top_k
from kedge.matching.clusters import Clusters
from kedge.models.side import Side
from kedge.spaces.row_ranges import Range, RowRanges

BATCH = 8192
"""Rows that are read and given coordinates at once."""

BIASES = 2
"""The last shared coordinates, which a row has whatever it is compared with."""

CHECKED = 2000
"""Rows of X whose nearest row is found among all of Y."""

# Rows in a cluster, on average, and as many clusters as finding the nearest of them for every row allows.
_ROWS_IN_A_CLUSTER, _MAX_CLUSTERS = 512, 16_384
# Points of the sample in a cluster, and ranges of rows that are read for the sample.
_POINTS, _MAX_RANGES = 24, 64
# Clusters that a row looks into, at least and at most: the partner is mostly in the first, its rivals are around it.
_MIN_PROBES, _MAX_PROBES = 6, 32
# Clusters are made in so many leading axes.
_AXES = 128
# The share of checked rows that must meet their nearest.
_MET = 0.998
# Bytes of messages that one group of clusters holds, about.
_GROUP_BYTES = 256 * 2**20


@dataclass(frozen=True)
class ReadSide:
    """One space as it is read: its rows, and the side of the run that gives them coordinates."""

    rows: RowRanges
    side: Side

    def coordinates(self, rows: Range) -> Iterator[tuple[int, Tensor]]:
        """Shared coordinates (k, c + 2) of a range, some rows at a time, with the number of the first."""
        for begin, vectors in self.rows.blocks(rows, BATCH):
            yield begin, torch.from_numpy(self.side.shared(vectors))


@dataclass(frozen=True)
class MatchPlan:
    """See the module's text.

    `axes` (c, e) are those in which clusters are made, `centers` (k, e) theirs, `group_of` (k,) the group that each
    belongs to, so that neighbours mostly share one. A row looks into clusters whose centers are closer than its own
    less `slack`; on average these are `probes`.
    """

    x: ReadSide
    y: ReadSide
    axes: NDArray[np.float32]
    centers: NDArray[np.float32]
    group_of: NDArray[np.int64]
    slack: float
    probes: float

    @property
    def groups(self) -> int:
        """How many groups of clusters there are."""
        return int(self.group_of.max()) + 1

    def side(self, number: int) -> ReadSide:
        """X is number 0, Y number 1."""
        return (self.x, self.y)[number]

    def looks(self, coordinates: Tensor) -> NDArray[np.int64]:
        """The clusters (k, p) that rows (k, c + 2) look into, the one they are in first; after the last -1."""
        points = coordinates[:, :-BIASES] @ torch.from_numpy(self.axes)
        behind, clusters = _nearest_clusters(points, torch.from_numpy(self.centers))
        return clusters.masked_fill_(behind > self.slack, -1).numpy()


def make_plan(x: ReadSide, y: ReadSide, engine: Engine) -> tuple[MatchPlan, NDArray[np.int64]]:
    """The plan, and the checked rows of X with the nearest row of Y for each (s, 2)."""
    clusters = min(max(1, max(x.rows.rows, y.rows.rows) // _ROWS_IN_A_CLUSTER), _MAX_CLUSTERS)
    wanted = max(_POINTS * clusters, 20_000)
    samples = [next(iter(engine.each([0], partial(_sample, side, wanted)))) for side in (x, y)]
    (rows_x, of_x), (_, of_y) = samples
    plain = of_y[:, :-BIASES]
    axes = leading_directions(plain - plain.mean(dim=0), _AXES)
    points = torch.cat([of_x[:, :-BIASES] @ axes, of_y[:, :-BIASES] @ axes])
    found = Clusters.of(points, count=clusters)
    checked = torch.randperm(len(of_x), generator=torch.Generator().manual_seed(1))[:CHECKED].sort().values
    nearest, points_y = _nearest_of_all(of_x[checked], y, axes, engine)
    slack = _enough_slack(of_x[checked][:, :-BIASES] @ axes, points_y, found.centers)
    probes = float((_nearest_clusters(points, found.centers)[0] <= slack).sum(dim=1).float().mean())
    sizes = torch.bincount(found.labels, minlength=clusters)
    width = 2 * (of_x.shape[1] + 2 * BIASES)
    total = (x.rows.rows + y.rows.rows) * probes * width / 2  # about half of the looks share a group
    groups = min(max(1, 2 ** int(np.ceil(np.log2(max(total / _GROUP_BYTES, 1))))), clusters)
    group_of = _neighbourhoods(found.centers, sizes, groups)
    plan = MatchPlan(x, y, axes.numpy(), found.centers.numpy(), group_of, slack, probes)
    return plan, np.stack([rows_x[checked.numpy()], nearest], axis=1)


def _sample(side: ReadSide, wanted: int, _: Any) -> tuple[NDArray[np.int64], Tensor]:
    """Numbers (s,) and coordinates (s, c + 2) of about so many rows, from ranges all over the space."""
    ranges = side.rows.ranges(BATCH)
    chosen = np.unique(np.linspace(0, len(ranges) - 1, min(len(ranges), max(_MAX_RANGES, wanted // BATCH))).astype(int))
    total = sum(ranges[place][1] - ranges[place][0] for place in chosen)
    stride = max(1, total // wanted)
    numbers, coordinates = [], []
    for place in chosen.tolist():
        for begin, part in side.coordinates(ranges[place]):
            numbers.append(np.arange(begin, begin + len(part))[::stride])
            coordinates.append(part[::stride])
    return np.concatenate(numbers), torch.cat(coordinates)


def _nearest_of_all(queries: Tensor, y: ReadSide, axes: Tensor, engine: Engine) -> tuple[NDArray[np.int64], Tensor]:
    """The row of Y (s,) nearest to each query (s, c + 2), of all there are, and where it lies (s, e)."""
    best = torch.full((len(queries),), -torch.inf)
    rows, points = torch.zeros(len(queries), dtype=torch.int64), torch.zeros(len(queries), axes.shape[1])
    for value, row, point in engine.each(y.rows.ranges(4 * BATCH), partial(_nearest_in_range, queries, y, axes)):
        # Of equally near rows the first counts, in whatever order ranges arrive.
        better = (value > best) | ((value == best) & (row < rows))
        best = torch.where(better, value, best)
        rows = torch.where(better, row, rows)
        points = torch.where(better[:, None], point, points)
    return rows.numpy(), points


def _nearest_in_range(queries: Tensor, y: ReadSide, axes: Tensor, rows: Range) -> tuple[Tensor, Tensor, Tensor]:
    """The same among a range of rows, with the similarities (s,)."""
    best = torch.full((len(queries),), -torch.inf)
    found, points = torch.zeros(len(queries), dtype=torch.int64), torch.zeros(len(queries), axes.shape[1])
    for begin, part in y.coordinates(rows):
        values, columns = (each[:, 0] for each in top_k(queries, part, 1))
        better = values > best
        best = torch.where(better, values, best)
        found = torch.where(better, columns + begin, found)
        points = torch.where(better[:, None], part[columns, :-BIASES] @ axes, points)
    return best, found, points


def _nearest_clusters(points: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """How much less close than the first (n, p) the centers (k, e) nearest to points (n, e) are, and which (n, p).

    Closeness is the inner product less half of the center's square: half of what squared distances differ by. The first
    few count as equally close.
    """
    ones, squares = points.new_ones(len(points), 1), centers.square().sum(dim=1, keepdim=True)
    values, clusters = top_k(torch.cat([points, ones], dim=1), torch.cat([centers, -squares / 2], dim=1), _MAX_PROBES)
    behind = values[:, :1] - values
    behind[:, :_MIN_PROBES] = 0
    return behind, clusters


def _enough_slack(points_x: Tensor, points_y: Tensor, centers: Tensor) -> float:
    """How much less close centers may be for nearly all checked rows (s, e) to meet their nearest (s, e)."""
    (behind_x, looks_x), (behind_y, looks_y) = (_nearest_clusters(points, centers) for points in (points_x, points_y))
    needed = [
        torch.where(looks == home[:, :1], behind, torch.inf).amin(dim=1)
        for looks, behind, home in ((looks_x, behind_x, looks_y), (looks_y, behind_y, looks_x))
    ]
    return float(torch.minimum(*needed).sort().values[math.ceil(_MET * len(points_x)) - 1])


def _neighbourhoods(centers: Tensor, sizes: Tensor, groups: int) -> NDArray[np.int64]:
    """The group (k,) of each center (k, e): halved again and again where half of the rows (k,) lie on either side."""
    group_of = np.zeros(len(centers), dtype=np.int64)
    pending = [(torch.arange(len(centers)), 0, groups)]
    while pending:
        members, first, count = pending.pop()
        if count == 1 or len(members) == 1:
            group_of[members.numpy()] = first
            continue
        spread = centers[members] - centers[members].mean(dim=0)
        direction = torch.linalg.eigh(spread.T @ spread)[1][:, -1]
        order = members[(spread @ direction).argsort(stable=True)]
        weight = sizes[order].double().cumsum(0)
        cut = int((weight < weight[-1] / 2).sum()) + 1
        cut = min(max(cut, 1), len(order) - 1)
        pending += [(order[:cut], first, count // 2), (order[cut:], first + count // 2, count - count // 2)]
    return np.unique(group_of, return_inverse=True)[1].astype(np.int64)


def halves(coordinates: Tensor, number: int) -> NDArray[np.float16]:
    """Coordinates (k, c + 2) as they travel, those of X on the left of products."""
    return to_half(coordinates, BIASES, left=number == 0).numpy()

"""What all batches of a match share: how rows get coordinates, the cluster centers, and which clusters a row probes.

Centers are fitted to a sample of both spaces, which lie together in shared coordinates. A row looks into the few
clusters nearest to it, and into others whose centers are hardly farther away, so rows between clusters look into many.
How much farther they may be is chosen on some rows of X whose exact nearest row in Y is known. Where that would be many
clusters, only rows count that are the nearest of their nearest: others mostly have no counterpart, and their nearest
may be anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
"""Number of rows that are read and given coordinates at once."""

BIASES = 2
"""Number of trailing shared coordinates that do not depend on what a row is compared with."""

CHECKED = 2000
"""Number of rows of X whose nearest row is found by comparing them with all of Y."""

# Average number of rows in a cluster, and a limit on clusters that keeps finding the nearest ones for every row cheap.
_ROWS_IN_A_CLUSTER, _MAX_CLUSTERS = 512, 16_384
# Sample points per cluster, and ranges of rows that are read for the sample.
_POINTS, _MAX_RANGES = 24, 64
# Least and most clusters that a row looks into: the partner is mostly in the first, its rivals are around it.
_MIN_PROBES, _MAX_PROBES = 6, 32
# Number of leading axes in which clusters are made.
_AXES = 128
# The share of checked rows that must meet their nearest row.
_MET = 0.998
# If rows would look into more clusters than this, checked rows that probably have no counterpart are left aside.
_MANY_PROBES = 2 * _MIN_PROBES
# Approximate bytes of messages in one group of clusters.
_GROUP_BYTES = 256 * 2**20


class CheckedRows(NamedTuple):
    """Rows of X (s,), the nearest of all rows of Y to each (s,), and whether it counts for the slack (s,)."""

    rows: NDArray[np.int64]
    nearest: NDArray[np.int64]
    counts: NDArray[np.bool_]


@dataclass(frozen=True)
class ReadSide:
    """The rows of one space, and the side of the run that gives them coordinates."""

    rows: RowRanges
    side: Side

    def coordinates(self, rows: Range) -> Iterator[tuple[int, Tensor]]:
        """Yield the shared coordinates (k, c + 2) of a range in blocks, each with the number of its first row."""
        for begin, vectors in self.rows.blocks(rows, BATCH):
            yield begin, torch.from_numpy(self.side.shared(vectors))


@dataclass(frozen=True)
class MatchPlan:
    """The plan of a match (see the module docstring).

    Clusters are made in the directions `axes` (c, e), with `centers` (k, e). `group_of` (k,) is the group of each
    cluster; neighbouring clusters mostly share one. A row looks into all clusters whose closeness to it is at most
    `slack` below that of its own, `probes` on average.
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
        """The number of groups of clusters."""
        return int(self.group_of.max()) + 1

    def side(self, number: int) -> ReadSide:
        """The side with this number: 0 for X, 1 for Y."""
        return (self.x, self.y)[number]

    def looks(self, coordinates: Tensor) -> NDArray[np.int64]:
        """The clusters (k, p) that rows (k, c + 2) look into, their own first, with -1 in place of the others."""
        points = coordinates[:, :-BIASES] @ torch.from_numpy(self.axes)
        behind, clusters = _nearest_clusters(points, torch.from_numpy(self.centers))
        return clusters.masked_fill_(behind > self.slack, -1).numpy()


def make_plan(x: ReadSide, y: ReadSide, engine: Engine) -> tuple[MatchPlan, CheckedRows]:
    """Make the plan; also return the rows that it was checked on."""
    clusters = min(max(1, max(x.rows.rows, y.rows.rows) // _ROWS_IN_A_CLUSTER), _MAX_CLUSTERS)
    wanted = max(_POINTS * clusters, 20_000)
    samples = [next(iter(engine.each([0], partial(_sample, side, wanted)))) for side in (x, y)]
    (rows_x, of_x), (_, of_y) = samples
    plain = of_y[:, :-BIASES]
    axes = leading_directions(plain - plain.mean(dim=0), _AXES)
    points = torch.cat([of_x[:, :-BIASES] @ axes, of_y[:, :-BIASES] @ axes])
    found = Clusters.of(points, count=clusters)
    checked = torch.randperm(len(of_x), generator=torch.Generator().manual_seed(1))[:CHECKED].sort().values
    nearest, of_nearest = _nearest_of_all(of_x[checked], y, engine)
    needed = _needed_slack(of_x[checked][:, :-BIASES] @ axes, of_nearest[:, :-BIASES] @ axes, found.centers)
    behind = _nearest_clusters(points, found.centers)[0]
    counts = np.ones(len(checked), dtype=bool)
    slack, probes = _enough_slack(needed, behind)
    if probes > _MANY_PROBES:
        back, _ = _nearest_of_all(of_nearest, x, engine)
        mutual = back == rows_x[checked.numpy()]
        counts = mutual if mutual.any() else counts
        slack, probes = _enough_slack(needed[torch.from_numpy(counts)], behind)
    sizes = torch.bincount(found.labels, minlength=clusters)
    width = 2 * (of_x.shape[1] + 2 * BIASES)
    total = (x.rows.rows + y.rows.rows) * probes * width / 2  # about half of the looks share a group
    groups = min(max(1, 2 ** int(np.ceil(np.log2(max(total / _GROUP_BYTES, 1))))), clusters)
    group_of = _neighbourhoods(found.centers, sizes, groups)
    plan = MatchPlan(x, y, axes.numpy(), found.centers.numpy(), group_of, slack, probes)
    return plan, CheckedRows(rows_x[checked.numpy()], nearest, counts)


def _sample(side: ReadSide, wanted: int, _: Any) -> tuple[NDArray[np.int64], Tensor]:
    """Row numbers (s,) and coordinates (s, c + 2) of about `wanted` rows, from ranges spread over the space."""
    ranges = side.rows.ranges(BATCH)
    chosen = np.unique(np.linspace(0, len(ranges) - 1, min(len(ranges), max(_MAX_RANGES, wanted // BATCH))).astype(int))
    total = sum(ranges[place][1] - ranges[place][0] for place in chosen)
    stride = max(1, total // wanted)
    numbers, coordinates = [], []
    for place in chosen.tolist():
        for begin, vectors in side.rows.blocks(ranges[place], BATCH):
            numbers.append(np.arange(begin, begin + len(vectors))[::stride])
            coordinates.append(torch.from_numpy(side.side.shared(vectors[::stride])))
    return np.concatenate(numbers), torch.cat(coordinates)


def _nearest_of_all(queries: Tensor, side: ReadSide, engine: Engine) -> tuple[NDArray[np.int64], Tensor]:
    """The nearest of all rows of a side (s,) to queries (s, c + 2) from the other, and its coordinates (s, c + 2)."""
    best = torch.full((len(queries),), -torch.inf)
    rows, nearest = torch.zeros(len(queries), dtype=torch.int64), torch.zeros_like(queries)
    for value, row, there in engine.each(side.rows.ranges(4 * BATCH), partial(_nearest_in_range, queries, side)):
        # Ties go to the first row, in whatever order ranges arrive.
        better = (value > best) | ((value == best) & (row < rows))
        best = torch.where(better, value, best)
        rows = torch.where(better, row, rows)
        nearest = torch.where(better[:, None], there, nearest)
    return rows.numpy(), nearest


def _nearest_in_range(queries: Tensor, side: ReadSide, rows: Range) -> tuple[Tensor, Tensor, Tensor]:
    """The same within a range of rows, preceded by the similarities (s,)."""
    best = torch.full((len(queries),), -torch.inf)
    found, nearest = torch.zeros(len(queries), dtype=torch.int64), torch.zeros_like(queries)
    for begin, part in side.coordinates(rows):
        values, columns = (each[:, 0] for each in top_k(queries, part, 1))
        better = values > best
        best = torch.where(better, values, best)
        found = torch.where(better, columns + begin, found)
        nearest = torch.where(better[:, None], part[columns], nearest)
    return best, found, nearest


def _nearest_clusters(points: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centers (k, e) of points (n, e): how much less close each is than the first (n, p), and which (n, p).

    Closeness is the inner product minus half of the center's squared norm, so its differences are half those of squared
    distances. The first few centers count as equally close.
    """
    ones, squares = points.new_ones(len(points), 1), centers.square().sum(dim=1, keepdim=True)
    values, clusters = top_k(torch.cat([points, ones], dim=1), torch.cat([centers, -squares / 2], dim=1), _MAX_PROBES)
    behind = values[:, :1] - values
    behind[:, :_MIN_PROBES] = 0
    return behind, clusters


def _needed_slack(points_x: Tensor, points_y: Tensor, centers: Tensor) -> Tensor:
    """The smallest slack (s,) at which each checked row (s, e) meets its nearest row (s, e); infinite if none does."""
    (behind_x, looks_x), (behind_y, looks_y) = (_nearest_clusters(points, centers) for points in (points_x, points_y))
    needed = [
        torch.where(looks == home[:, :1], behind, torch.inf).amin(dim=1)
        for looks, behind, home in ((looks_x, behind_x, looks_y), (looks_y, behind_y, looks_x))
    ]
    return torch.minimum(*needed)


def _enough_slack(needed: Tensor, behind: Tensor) -> tuple[float, float]:
    """The smallest slack that suffices for nearly all of those needed (s,), and into how many clusters rows then look.

    If too many rows need more than any, it is the largest of the others: beyond that, nothing more is met.
    """
    needed = needed.sort().values
    finite = needed[needed < torch.inf]
    rank = min(math.ceil(_MET * len(needed)), len(finite))
    slack = float(finite[rank - 1]) if rank else 0.0
    return slack, float((behind <= slack).sum(dim=1).float().mean())


def _neighbourhoods(centers: Tensor, sizes: Tensor, groups: int) -> NDArray[np.int64]:
    """The group (k,) of each center (k, e), by repeated bisection with half of the rows (k,) on either side."""
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
    """Coordinates (k, c + 2) in half precision, as they are sent; X is the left factor of products."""
    return to_half(coordinates, BIASES, left=number == 0).numpy()

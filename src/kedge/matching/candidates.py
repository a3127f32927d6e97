"""Candidates: for each row a few of the other side, which nearly always include its nearest.

Both sides are clustered, in their leading axes. Each row probes the clusters of the other side that are nearest to it,
and is compared with all of their rows. Rows of the other side do the same: two rows meet if either probes the other's
cluster, which misses far fewer pairs than one direction alone (`python benchmarks/candidates.py`). How many clusters
are probed is decided on a sample whose nearest rows are known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, float_parts
from kedge.matching.clusters import Clusters, bounds_of
from kedge.matching.neighbours import largest, top_k

KEPT = 16
"""Candidates kept for each row."""

KEPT_ONCE = {"cpu": 32, "cuda": KEPT}
"""The same if they come from one comparison of all rows; the GPU kernels keep no more."""

# Up to this many pairs of rows, n * m, comparing all rows again and again is fast; and up to this many, comparing them
# all once is faster than clustering.
_QUICK = {"cpu": 15_000**2, "cuda": 200_000**2}
_QUICK_ONCE = {"cpu": 30_000**2, "cuda": 2_000_000**2}
# Leading axes in which rows are clustered; the others tell neighbours apart, but not regions.
_AXES = 64
_POINTS_FOR_AXES = 20_000
# Places among a row's candidates that the rows of each cluster it probes compete for.
_PLACES = {"cpu": 32, "cuda": 64}
# The most numbers in one tensor; beyond 2**31, GPU kernels with 32-bit indices read the wrong memory.
_NUMBERS = 2**30
# How many clusters a row may probe, and the share of sampled rows that must meet their nearest.
_PROBES = (8, 16, 32, 64)
_MET = 0.995
_SAMPLE = 1000
# Rows converted to float32 at once.
_ROWS = 16_384


@dataclass(frozen=True)
class Candidates:
    """Candidates for each row of a among the rows of b (n, k), and for each row of b among a (m, k), nearest first.

    If a row has fewer, the last are -1. `probes` is how many clusters each row was compared with, 0 if it was compared
    with all rows.
    """

    of_a: Tensor
    of_b: Tensor
    probes: int


def exact_is_quick(rows_a: int, rows_b: int, device: torch.device) -> bool:
    """Whether these numbers of rows are better compared all with all."""
    return rows_a * rows_b <= _QUICK[device.type]


def find_candidates(a: Tensor, b: Tensor, *, biases: int = 0, budget: int = DEFAULT_BUDGET) -> Candidates:
    """Candidates by inner product for rows a (n, d) and b (m, d), in float32 or half precision.

    The last `biases` columns hold biases of the rows: they count in the product, but say nothing of a row's position.
    """
    if len(a) * len(b) <= _QUICK_ONCE[a.device.type]:
        of_a, of_b = (
            nearest_of(left.float(), right, KEPT_ONCE[a.device.type], budget)[1] for left, right in ((a, b), (b, a))
        )
        return Candidates(of_a.int(), of_b.int(), 0)
    axes = _leading_axes(b, biases)
    points_a, points_b = (_along(rows, axes) for rows in (a, b))
    clusters_a, clusters_b = Clusters.of(points_a, budget), Clusters.of(points_b, budget)
    probes = _enough_probes(a, b, points_a, points_b, clusters_a, clusters_b, budget)
    forth = _compare(a, b, clusters_b.nearest(points_a, probes, budget), clusters_b, budget)
    back = _compare(b, a, clusters_a.nearest(points_b, probes, budget), clusters_a, budget)
    return Candidates(_merged(forth.of_queries, back.of_members), _merged(back.of_queries, forth.of_members), probes)


def _leading_axes(rows: Tensor, biases: int) -> Tensor:
    """Axes (d, e) along which a sample of rows (m, d) varies most; they are zero in the biases."""
    drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:_POINTS_FOR_AXES]
    sample = rows[drawn.to(rows.device), : rows.shape[1] - biases].double()
    sample -= sample.mean(dim=0)
    _, axes = torch.linalg.eigh((sample.T @ sample).cpu())
    chosen = axes.flip(1)[:, :_AXES].to(rows.device, torch.float32)
    return torch.cat([chosen, chosen.new_zeros(biases, chosen.shape[1])])


def _along(rows: Tensor, axes: Tensor) -> Tensor:
    """Coordinates (n, e) of rows (n, d) along axes (d, e), in the precision of the rows."""
    points = torch.empty(len(rows), axes.shape[1], dtype=rows.dtype, device=rows.device)
    for begin in range(0, len(rows), _ROWS):
        points[begin : begin + _ROWS] = (rows[begin : begin + _ROWS].float() @ axes).to(rows.dtype)
    return points


def _enough_probes(
    a: Tensor, b: Tensor, points_a: Tensor, points_b: Tensor, in_a: Clusters, in_b: Clusters, budget: int
) -> int:
    """How many clusters rows must probe for nearly all of a sample of a to meet their nearest row of b."""
    drawn = torch.randperm(len(a), generator=torch.Generator().manual_seed(1))[:_SAMPLE].to(a.device)
    nearest = nearest_of(a[drawn].float(), b, 1, budget)[1][:, 0]
    forth = _place(points_a[drawn], in_b.centers, in_b.labels[nearest])
    back = _place(points_b[nearest], in_a.centers, in_a.labels[drawn])
    at = torch.minimum(forth, back)
    return next((probes for probes in _PROBES if float((at < probes).float().mean()) >= _MET), _PROBES[-1])


def _place(points: Tensor, centers: Tensor, cluster: Tensor) -> Tensor:
    """How many (s,) of the centers (k, e) are nearer to each point (s, e) than that of its given cluster (s,)."""
    closeness = torch.addmm(-centers.square().sum(dim=1) / 2, points.float(), centers.T)
    return (closeness > closeness.gather(1, cluster[:, None])).sum(dim=1)


def nearest_of(
    queries: Tensor, rows: Tensor, count: int, budget: int, read: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Similarities and numbers (s, count) of the exact nearest rows (m, d), in any precision, to queries (s, d).

    `read`, if given, converts rows to the coordinates of the queries, a part at a time.
    """
    values = queries.new_empty(len(queries), 0)
    columns = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
    for first, part in float_parts(rows):
        value, column = top_k(queries, part if read is None else read(part), count, budget=budget)
        values, order = torch.cat([values, value], dim=1).topk(min(count, values.shape[1] + value.shape[1]), dim=1)
        columns = torch.cat([columns, column + first], dim=1).gather(1, order)
    return values, columns


@dataclass(frozen=True)
class _Found:
    """Similarities (n, k) and the rows of the other side (n, k) that they belong to; -inf and -1 if there are fewer."""

    values: Tensor
    rows: Tensor

    @classmethod
    def nothing(cls, count: int, like: Tensor) -> _Found:
        values = torch.full((count, KEPT), -torch.inf, device=like.device)
        return cls(values, torch.full((count, KEPT), -1, dtype=torch.int32, device=like.device))


@dataclass(frozen=True)
class _Compared:
    """What a search finds for the queries, and for the members of the clusters that they probe."""

    of_queries: _Found
    of_members: _Found


def _compare(queries: Tensor, rows: Tensor, probes: Tensor, clusters: Clusters, budget: int) -> _Compared:
    """Compare each query (n, d) with all rows (m, d) of the clusters (n, p) it probes."""
    found, met = _Found.nothing(len(queries), queries), _Found.nothing(len(rows), rows)
    # Bytes for each query: its places, and its number in every cluster that it probes.
    each = probes.shape[1] * (4 * _PLACES[rows.device.type] + 24)
    if rows.is_cuda:  # a GPU is fast only with large batches
        budget = max(budget, torch.cuda.mem_get_info(rows.device)[0] // 4)
    limit = _NUMBERS // (probes.shape[1] * _PLACES[rows.device.type])
    at_once = max(1, min(len(queries), 2 * budget // each, limit))
    for begin in range(0, len(queries), at_once):
        some = slice(begin, min(begin + at_once, len(queries)))
        _compare_some(queries, rows, probes[some], some, clusters, found, met)
    return _Compared(found, met)


def _compare_some(
    queries: Tensor, rows: Tensor, probes: Tensor, some: slice, clusters: Clusters, found: _Found, met: _Found
) -> None:
    """The same for some of the queries; updates `found` and `met`."""
    count = probes.shape[1]
    width = _PLACES[rows.device.type]
    places = torch.full((len(probes) * count, width), -torch.inf, device=rows.device)
    looks = probes.flatten()  # the p-th probe of query i is number i * count + p
    order = looks.argsort(stable=True)
    bounds = bounds_of(looks, len(clusters.centers))
    bits = _bits(clusters, width)
    for cluster in range(len(clusters.centers)):
        look = order[bounds[cluster] : bounds[cluster + 1]]
        members = clusters.members(cluster)
        if not len(look) or not len(members):
            continue
        who = look // count + some.start
        similarity = _similarities(queries.index_select(0, who).float(), rows.index_select(0, members).float(), width)
        _meet(met, members, who, similarity[:, : len(members)])
        places.index_copy_(0, look, _best_places(similarity, len(members), width, bits))
    best, place = places.view(len(probes), -1).topk(KEPT, dim=1)
    into = probes.gather(1, place // width)
    step = best.view(torch.int32) & ((1 << bits) - 1)
    column = step * width + place % width
    starts = torch.tensor(clusters.bounds, device=rows.device)
    there = best > -torch.inf
    member = torch.where(there, starts[into] + column, 0)
    found.values[some] = best
    found.rows[some] = clusters.order[member].int().masked_fill_(~there, -1)


def _bits(clusters: Clusters, width: int) -> int:
    """How many bits it takes to say which of the columns competing for a place has won it."""
    largest = max(after - before for before, after in zip(clusters.bounds, clusters.bounds[1:], strict=False))
    return (-(-largest // width) - 1).bit_length()


def _similarities(queries: Tensor, rows: Tensor, width: int) -> Tensor:
    """Products (q, l) of queries (q, d) with rows (l, d), padded with -inf to a multiple of `width` columns."""
    steps = -(-len(rows) // width)
    similarity = torch.full((len(queries), steps * width), -torch.inf, device=rows.device)
    torch.mm(queries, rows.T, out=similarity[:, : len(rows)])
    return similarity


def _best_places(similarity: Tensor, columns: int, width: int, bits: int) -> Tensor:
    """The largest of every w-th similarity (q, l) for each place (q, w), with its index encoded in the last bits.

    Top-k with indices takes longer than the product; maxima alone are fast. If two of a row's nearest compete for one
    place, one is lost, and similarities lose their last digits; for candidates neither matters much. Overwrites the
    similarity.
    """
    packed = similarity.view(torch.int32)[:, :columns]
    step = torch.arange(columns, dtype=torch.int32, device=similarity.device) // width
    packed.bitwise_and_(-(1 << bits)).bitwise_or_(step)
    return similarity.view(len(similarity), -1, width).amax(dim=1)


def _meet(met: _Found, members: Tensor, who: Tensor, similarity: Tensor) -> None:
    """Update `met` for the members (l,) of a cluster with the nearest of the queries (q,) that probe it."""
    values, columns = largest(similarity.T.contiguous(), min(KEPT, len(who)))
    values = torch.cat([met.values[members], values], dim=1)
    rows = torch.cat([met.rows[members], who[columns].int()], dim=1)
    met.values[members], order = values.topk(KEPT, dim=1)
    met.rows[members] = rows.gather(1, order)


def _merged(one: _Found, other: _Found) -> Tensor:
    """The rows (n, k) with the largest similarities in two searches, each once; -1 if there are no more."""
    merged = torch.empty_like(one.rows)
    for begin in range(0, len(merged), _ROWS):
        some = slice(begin, begin + _ROWS)
        rows = torch.cat([one.rows[some], other.rows[some]], dim=1)
        values = torch.cat([one.values[some], other.values[some]], dim=1)
        rows, order = rows.sort(dim=1)
        values = values.gather(1, order)
        # A row found by both searches counts once; its packed similarities may differ in the last bits.
        values[:, 1:][rows[:, 1:] == rows[:, :-1]] = -torch.inf
        values, order = values.topk(KEPT, dim=1)
        merged[some] = rows.gather(1, order).masked_fill_(values == -torch.inf, -1)
    return merged

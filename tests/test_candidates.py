"""Matching among candidates, and every piece it is made of, against the comparison of all rows with all."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.geometry import unit
from kedge.matching import (
    COLUMNS_PER_BIAS,
    DEFAULT_BUDGET,
    CandidateComparison,
    Candidates,
    ExactComparison,
    Match,
    Problem,
    exact_is_quick,
    find_candidates,
    map_rows,
    match_csls,
    nearest_of,
    row_pieces,
    second_margins,
    to_half,
)
from kedge.matching import blocks as blocks_module
from kedge.matching import candidates as candidates_module
from kedge.matching.blocks import float_parts
from kedge.matching.candidates import KEPT, KEPT_ONCE, _best_places, _bits, _Found, _merged, _similarities
from kedge.matching.clusters import ROWS_IN_A_CLUSTER, Clusters, nearest_centers

SMALL_BUDGET = 100_000  # some rows a block


def chance(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(n: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    return unit(torch.randn(n, dim, generator=chance(seed)))


def clustered(n: int = 3000, dim: int = 32, noise: float = 0.3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit rows that lie in topics of very different sizes, as real ones do, and the same with noise, shuffled."""
    topics = torch.randn(40, dim, generator=chance(seed))
    of = (40 * torch.rand(n, generator=chance(seed + 1)) ** 2).long()
    x = topics[of] + torch.randn(n, dim, generator=chance(seed + 2))
    y = x + noise * torch.randn(n, dim, generator=chance(seed + 3))
    return unit(x), unit(y[torch.randperm(n, generator=chance(seed + 4))])


@contextmanager
def threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- clusters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("n", [1, 5, 127, 128, 1000])
def test_every_point_is_in_the_cluster_of_its_nearest_center(n, dtype):
    points = clustered(n, 8)[0].to(dtype)
    clusters = Clusters.of(points, SMALL_BUDGET)
    assert len(clusters.centers) == max(1, n // ROWS_IN_A_CLUSTER["cpu"])
    assert clusters.centers.dtype == torch.float32
    distance = torch.cdist(points.double(), clusters.centers.double())
    own = distance.gather(1, clusters.labels[:, None])[:, 0]
    torch.testing.assert_close(own, distance.amin(dim=1), rtol=0, atol=1e-5)
    # The order goes cluster by cluster, and within one by row.
    assert sorted(clusters.order.tolist()) == list(range(n))
    assert clusters.bounds[0] == 0
    assert clusters.bounds[-1] == n
    for number in range(len(clusters.centers)):
        assert clusters.members(number).tolist() == (clusters.labels == number).nonzero()[:, 0].tolist()


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 25), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_nearest_centers_are_those_of_all_distances(n, k, count, seed):
    points, centers = torch.randn(n, 4, generator=chance(seed)), torch.randn(k, 4, generator=chance(seed + 1))
    found = nearest_centers(points, centers, count, SMALL_BUDGET)
    assert found.shape == (n, min(count, k))
    distance = torch.cdist(points.double(), centers.double())
    torch.testing.assert_close(distance.gather(1, found), distance.sort(dim=1).values[:, :count], rtol=0, atol=1e-5)


def test_equal_points_leave_clusters_empty():
    clusters = Clusters.of(torch.ones(600, 3))
    assert sorted(len(clusters.members(number)) for number in range(4)) == [0, 0, 0, 600]


# -- halves ---------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 3), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_products_of_halves_are_those_of_the_numbers(n, m, biases, seed):
    """Biases of thousands, which nearly cancel, lose next to nothing; coordinates no more than halves round off."""
    plain = 8
    left, right = (torch.randn(count, plain, generator=chance(seed + count)) for count in (n, m))
    # One of each pair of biases is a 1, as a reading has them; the other is great.
    great = 4000 + 3000 * torch.rand(n + m, biases, generator=chance(seed))
    left = torch.cat([left, great[:n], torch.ones(n, biases)], dim=1)
    right = torch.cat([right, torch.ones(m, biases), -great[n:]], dim=1)
    halves = to_half(left, 2 * biases, left=True), to_half(right, 2 * biases, left=False)
    assert [side.dtype for side in halves] == [torch.float16] * 2
    assert halves[0].shape == (n, plain + 2 * biases * COLUMNS_PER_BIAS)
    assert halves[1].shape == (m, plain + 2 * biases * COLUMNS_PER_BIAS)
    found = halves[0].double() @ halves[1].double().T
    rounded = left[:, :plain].half().double() @ right[:, :plain].half().double().T
    exact = left[:, plain:].double() @ right[:, plain:].double().T
    torch.testing.assert_close(found - rounded, exact, rtol=0, atol=2 * biases * 5e-4 + 1e-9)
    torch.testing.assert_close(found, left.double() @ right.double().T, rtol=0, atol=0.02)


# -- looking for candidates -----------------------------------------------------------------------


def assert_well_formed(candidates: torch.Tensor, others: int) -> None:
    assert candidates.dtype == torch.int32
    assert candidates.shape[1] == KEPT
    for row in candidates.tolist():
        there = [candidate for candidate in row if candidate >= 0]
        assert row == there + [-1] * (KEPT - len(there))
        assert len(set(there)) == len(there)
        assert all(candidate < others for candidate in there)


def cloud(n: int = 2000, dim: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that lie in no topics, and fewer of the same with noise."""
    x = torch.randn(n, dim, generator=chance(0)) * torch.logspace(0, -1, dim)
    y = x + 0.1 * torch.randn(n, dim, generator=chance(1))
    return unit(x), unit(y[: n * 3 // 4])


@pytest.fixture(autouse=True, scope="module")
def _always_by_clusters():
    """However few rows there are; otherwise so few would all be compared once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates_module, "_QUICK_ONCE", {"cpu": 0})
        yield


@pytest.mark.parametrize("make", [clustered, partial(clustered, n=1500, dim=80, noise=0.5, seed=9), cloud])
def test_the_nearest_of_nearly_all_rows_are_among_their_candidates(make):
    """Also where there are more axes than clusters are made in."""
    x, y = make()
    turn, _ = torch.linalg.qr(torch.randn(x.shape[1], x.shape[1], generator=chance(7)))
    x, y = x @ turn, y @ turn
    found = find_candidates(x, y, budget=SMALL_BUDGET)
    similarity = x @ y.T
    for candidates, exact in ((found.of_a, similarity), (found.of_b, similarity.T)):
        assert_well_formed(candidates, exact.shape[1])
        met = (candidates == exact.argmax(dim=1, keepdim=True)).any(dim=1)
        assert met.float().mean() >= 0.99
        nearest = exact.topk(10, dim=1).indices
        recall = (nearest[:, :, None] == candidates[:, None]).any(dim=2)
        assert recall.float().mean() > 0.9
    assert found.probes in (8, 16, 32, 64)


def test_candidates_in_halves_and_with_biases_are_nearly_the_same():
    x, y = clustered(n=2000)
    plain = find_candidates(x, y)
    loss_x, loss_y = (1000 * torch.rand(2000, 1, generator=chance(seed)) for seed in (5, 6))
    ones = torch.ones(2000, 1)
    halves = to_half(torch.cat([x, ones, loss_x], dim=1), 2, left=True)
    others = to_half(torch.cat([y, loss_y / 1e5, ones], dim=1), 2, left=False)
    found = find_candidates(halves, others, biases=2 * COLUMNS_PER_BIAS)
    # What a row of y has whatever its partner is counts, little as it is; what a row of x has changes no order.
    exact = (x @ y.T + loss_y.T / 1e5).argmax(dim=1, keepdim=True)
    assert (found.of_a == exact).any(dim=1).float().mean() >= 0.99
    assert found.probes == plain.probes  # biases say nothing about where a row lies


def test_candidates_do_not_depend_on_threads_nor_on_when_they_are_looked_for():
    x, y = clustered(n=2500)
    with threads(1):
        one = find_candidates(x, y)
    with threads(2):
        two = find_candidates(x, y)
        again = find_candidates(x, y)
    for other in (two, again):
        assert torch.equal(one.of_a, other.of_a)
        assert torch.equal(one.of_b, other.of_b)
        assert one.probes == other.probes


def test_the_budget_changes_what_is_compared_at_once_but_no_candidate():
    x, y = clustered(n=1500)
    wide, narrow = find_candidates(x, y), find_candidates(x, y, budget=60_000)
    for one, other in ((wide.of_a, narrow.of_a), (wide.of_b, narrow.of_b)):
        assert (one == other).float().mean() > 0.999  # a product may be rounded otherwise


@given(st.integers(1, 2 * KEPT), st.integers(1, 2 * KEPT), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_with_few_rows_the_candidates_are_the_nearest(n, m, seed):
    """All rows, where there are no more than are kept."""
    x, y = rows(n, seed=seed), rows(m, seed=seed + 1)
    found = find_candidates(x, y)
    for candidates, similarity in ((found.of_a, x @ y.T), (found.of_b, y @ x.T)):
        assert_well_formed(candidates, similarity.shape[1])
        expected = similarity.topk(min(KEPT, similarity.shape[1]), dim=1).indices
        for row, nearest in zip(candidates.tolist(), expected.tolist(), strict=True):
            assert set(row) - {-1} == set(nearest)


def test_where_comparing_all_rows_once_is_quick_the_candidates_are_the_nearest(monkeypatch):
    x, y = rows(300), rows(200, seed=1)
    monkeypatch.setattr(candidates_module, "_QUICK_ONCE", {"cpu": len(x) * len(y)})
    found = find_candidates(x, y, budget=SMALL_BUDGET)
    for candidates, similarity in ((found.of_a, x @ y.T), (found.of_b, y @ x.T)):
        assert candidates.tolist() == similarity.topk(KEPT_ONCE["cpu"], dim=1).indices.tolist()
    assert found.probes == 0
    assert find_candidates(x, rows(201, seed=1)).probes > 0  # one row too many


def test_no_candidate_is_lost_to_a_place_that_was_never_filled():
    """Row 0 too, of which a search knows nothing that found fewer rows than it keeps."""
    one, other = _Found.nothing(1, torch.zeros(1)), _Found.nothing(1, torch.zeros(1))
    one.values[0, :2], one.rows[0, :2] = torch.tensor([0.9, 0.8]), torch.tensor([3, 5], dtype=torch.int32)
    other.values[0, :2], other.rows[0, :2] = torch.tensor([0.95, 0.8]), torch.tensor([0, 5], dtype=torch.int32)
    assert _merged(one, other)[0].tolist() == [0, 3, 5] + [-1] * (KEPT - 3)


def test_no_candidate_is_lost_to_small_clusters():
    """Clusters of a few rows each, with fewer rows in all that are looked into than are kept."""
    apart = 100 * torch.eye(40).repeat_interleave(2, dim=0)[:, :40] + 0.01 * torch.randn(80, 40, generator=chance(0))
    clusters = Clusters(apart[::2].clone(), torch.arange(80) // 2)
    found = candidates_module._compare(apart, apart, clusters.nearest(apart, 2), clusters, DEFAULT_BUDGET)
    for side in (found.of_queries, found.of_members):
        merged = _merged(_Found.nothing(80, apart), side)
        assert_well_formed(merged, 80)
        similarity = apart @ apart.T
        assert (merged == similarity.argmax(dim=1, keepdim=True)).any(dim=1).all()
        assert ((merged >= 0).sum(dim=1) >= 2).all()


@given(st.integers(1, 300), st.sampled_from([4, 32]), st.booleans(), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_packing_loses_only_the_last_bits(columns, width, great, seed):
    scale = 1000.0 if great else 1.0
    queries, others = scale * torch.randn(7, 5, generator=chance(seed)), torch.randn(columns, 5, generator=chance(seed))
    clusters = Clusters(torch.zeros(1, 5), torch.zeros(columns, dtype=torch.int64))
    bits = _bits(clusters, width)
    similarity = _similarities(queries, others, width)
    steps = -(-columns // width)
    assert similarity.shape == (7, steps * width)
    assert bool((similarity[:, columns:] == -torch.inf).all())
    exact = similarity.clone().view(7, steps, width)
    places = _best_places(similarity, columns, width, bits)
    there = places > -torch.inf
    assert bool((there == (exact > -torch.inf).any(dim=1)).all())
    step = (places.view(torch.int32) & ((1 << bits) - 1)).long()
    won = exact.gather(1, torch.where(there, step, 0)[:, None])[:, 0]  # what the winner really is
    best = exact.amax(dim=1)
    tolerance = best[there].abs() * 2.0 ** (bits - 22) + 1e-30
    assert bool(((best - won)[there] <= tolerance).all())
    assert bool(((places - won)[there].abs() <= tolerance).all())


def test_nearest_of_parts_is_that_of_all(monkeypatch):
    x, y = rows(20), rows(50, seed=1).half()
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=chance(2)))
    monkeypatch.setattr(blocks_module, "_HALF_ROWS", 7)
    for read in (None, lambda part: part @ turn):
        values, columns = nearest_of(x, y, 9, SMALL_BUDGET, read)
        expected = (x @ (y.float() if read is None else y.float() @ turn).T).topk(9, dim=1)
        assert columns.tolist() == expected.indices.tolist()
        torch.testing.assert_close(values, expected.values)


def test_exact_is_quick_up_to_a_number_of_pairs(monkeypatch):
    cpu = torch.device("cpu")
    assert exact_is_quick(15_000, 15_000, cpu)
    assert not exact_is_quick(15_001, 15_000, cpu)
    assert exact_is_quick(100, 2_000_000, cpu)
    monkeypatch.setattr(candidates_module, "_QUICK", {"cpu": 99})
    assert not exact_is_quick(10, 10, cpu)


# -- comparing among candidates -------------------------------------------------------------------


def everything(n: int, m: int, seed: int) -> Candidates:
    """All rows as candidates, in any order."""

    def all_of(count: int, others: int) -> torch.Tensor:
        listed = torch.full((count, KEPT), -1, dtype=torch.int32)
        for row in range(count):
            listed[row, :others] = torch.randperm(others, generator=chance(seed + row)).int()
        return listed

    return Candidates(all_of(n, m), all_of(m, n), 1)


def assert_same(found: Match, exact: Match) -> None:
    assert found.partner.tolist() == exact.partner.tolist()
    assert found.mutual.tolist() == exact.mutual.tolist()
    for name in ("margin", "row_hubness", "column_hubness"):
        torch.testing.assert_close(getattr(found, name), getattr(exact, name), rtol=0, atol=1e-6)


@given(st.integers(1, KEPT), st.integers(1, KEPT), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_an_exact_comparison_is_that_of_the_plain_passes(n, m, seed):
    x, y = rows(n, seed=seed), rows(m, seed=seed + 1)
    compared, match = ExactComparison(x, y, budget=2**12), match_csls(x, y)
    assert_same(compared.match(), match)
    hubness = match.row_hubness, match.column_hubness
    found, expected = compared.second_margins(match, torch.arange(n)), second_margins(x, y, torch.arange(n), *hubness)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    found, of_y = compared.second_margins(match, torch.arange(m), of_y=True), hubness[::-1]
    torch.testing.assert_close(found, second_margins(y, x, torch.arange(m), *of_y), rtol=0, atol=1e-6)


@given(st.integers(1, KEPT), st.integers(1, KEPT), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_with_all_rows_as_candidates_the_comparison_is_exact(n, m, seed):
    x, y = rows(n, seed=seed), rows(m, seed=seed + 1)
    exact, among = ExactComparison(x, y), CandidateComparison(x, y, everything(n, m, seed))
    match = exact.match()
    assert_same(among.match(), match)
    for of_y, count in ((False, n), (True, m)):
        some = torch.arange(count)[:: 1 + seed % 3]
        expected = exact.second_margins(match, some, of_y=of_y)
        torch.testing.assert_close(among.second_margins(match, some, of_y=of_y), expected, rtol=0, atol=1e-6)
    recall = among.candidate_recall(among.match())
    assert (recall.checked, recall.share) == (n, 1.0)
    assert recall.checked_pairs == int(match.mutual.sum())


@given(st.integers(1, KEPT), st.integers(1, KEPT), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_ties_lead_by_nothing_among_candidates_too(n, m, seed):
    x, y = (torch.randint(-2, 3, (count, 2), generator=chance(seed + count)).float() for count in (n, m))
    exact, among = (
        comparison.match()
        for comparison in (
            ExactComparison(x, y),
            CandidateComparison(x, y, everything(n, m, seed)),
        )
    )
    scores = x @ y.T - exact.row_hubness[:, None] - exact.column_hubness
    value = scores.gather(1, among.partner[:, None])[:, 0]
    torch.testing.assert_close(value, scores.amax(dim=1), rtol=0, atol=1e-5)
    best = scores.topk(min(2, m), dim=1).values
    tied = best[:, 0] - best[:, -1] < 1e-5 if m > 1 else torch.zeros(n, dtype=torch.bool)
    assert among.margin[tied].amax() <= 1e-5 if tied.any() else True
    torch.testing.assert_close(among.margin[~tied], exact.margin[~tied], rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def compared() -> tuple[ExactComparison, CandidateComparison]:
    """Rows that are many for their neighbourhoods, and candidates that were found for them, in halves."""
    x, y = clustered(noise=0.4)
    halves = x.half(), y.half()
    return ExactComparison(x, y), CandidateComparison(*halves, find_candidates(*halves))


def test_matching_among_found_candidates_is_nearly_exact(compared):
    exact, among = (comparison.match() for comparison in compared)
    sure = exact.mutual & (exact.margin > 1e-3)
    assert sure.float().mean() > 0.5
    assert (among.partner == exact.partner)[sure].float().mean() >= 0.99
    assert (among.mutual == exact.mutual).float().mean() >= 0.99
    close = (among.margin - exact.margin).abs() < 2e-3  # what halves round off, unless a rival was missed
    assert close.float().mean() >= 0.97
    some = torch.arange(0, 3000, 7)
    for of_y in (False, True):
        second = [comparison.second_margins(exact, some, of_y=of_y) for comparison in compared]
        assert ((second[0] - second[1]).abs() < 2e-3).float().mean() >= 0.9


def test_how_often_candidates_are_as_exact_is_reported(compared):
    among = compared[1]
    recall = among.candidate_recall(among.match())
    exact = compared[0].match()
    share = float((among.match().partner == exact.partner).float().mean())
    assert recall.checked == 2000
    assert recall.share == pytest.approx(share, abs=0.01)
    assert recall.share > 0.98
    assert recall.share_of_pairs >= 0.99
    assert str(recall) == f"{100 * recall.share:.1f} % of 2000 checked rows as exact"


def test_spoiled_candidates_are_reported(compared):
    """The rows with the candidates of others have partners that a comparison with all rows does not give them."""
    among = compared[1]
    spoiled = among.candidates.of_a.clone()
    spoiled[::2] = spoiled[::2].roll(17, dims=0)
    worse = CandidateComparison(among.x, among.y, replace(among.candidates, of_a=spoiled))
    recall = worse.candidate_recall(worse.match())
    assert recall.share == pytest.approx(0.5, abs=0.06)
    assert recall.share < recall.share_of_pairs  # spoiled rows are rarely anybody's first choice


def test_rows_without_any_pair_are_described_in_plain_numbers():
    """Rows that all come twice: nobody is anybody's first choice, and of no pairs no share is right."""
    x = rows(6)
    doubled = x.repeat(2, 1)
    among = CandidateComparison(x, doubled, everything(6, 12, 0))
    match = among.match()
    assert not match.mutual.any()
    recall = among.candidate_recall(match)
    assert recall.checked_pairs == 0
    assert not math.isnan(recall.share_of_pairs)  # which JSON does not know


# -- rows in half precision -----------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_rows_in_half_precision_give_float32_of_the_same_numbers(n, seed):
    half = rows(n, seed=seed).half()
    same = half.float()
    none = torch.empty(0, dtype=torch.int64)
    held, plain = (Problem(side, side, none, none, DEFAULT_BUDGET, exact=side is same) for side in (half, same))
    some = torch.randperm(n, generator=chance(seed))[: n // 2 + 1].sort().values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_ROWS", 7)
        patch.setattr(blocks_module, "_HALF_ROWS", 9)
        taken = [
            (held.take_x(some), same[some]),
            (held.take_y(some), same[some]),
            (held.part(some, some).x, same[some]),
            (held.part(torch.arange(n), some).x, same),
            (torch.cat(list(row_pieces(half))), same),
            (torch.cat([part for _, part in float_parts(half)]), same),
            (map_rows(half, lambda piece: piece * 2 + 1), same * 2 + 1),
            (held.whitened(0.5).x, plain.whitened(0.5).x),
        ]
        for found, expected in taken:
            assert found.dtype == torch.float32
            assert torch.equal(found, expected)
        assert [first for first, _ in float_parts(half)] == list(range(0, n, 9))
        assert [first for first, _ in float_parts(same)] == [0]
        assert map_rows(half, lambda piece: piece.half()).dtype == torch.float16

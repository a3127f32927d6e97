"""Every blocked reduction against the plain one with the matrix stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from kedge import InputError
from kedge.geometry import unit
from kedge.matching import (
    BlockedSoftmin,
    assign_distinct,
    best_partners,
    blocks,
    csls,
    hubness,
    largest,
    match_csls,
    row_blocks,
    sinkhorn,
    top_k,
    top_k_both,
    transport_step,
    use_fused,
)
from kedge.matching.csls import NEIGHBOURS, best_both_ways

SMALL_BUDGET = 4000  # a few rows a block


def rows(n: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    return unit(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)))


sizes = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))


@given(sizes)
@settings(deadline=None, max_examples=30)
def test_row_blocks_cover_the_product(size):
    n, m, seed = size
    a, b = rows(n, seed=seed), rows(m, seed=seed + 1)
    found = torch.full((n, m), torch.nan)
    for part, block in row_blocks(a, b, SMALL_BUDGET):
        found[part] = block
    torch.testing.assert_close(found, a @ b.T)


def test_blocks_stay_within_the_budget_and_say_when_they_cannot():
    a, b = rows(100), rows(50)
    for dtype in (torch.float32, torch.float64):  # the block and two temporaries of its size
        sizes = [block.nbytes for _, block in row_blocks(a.to(dtype), b.to(dtype), SMALL_BUDGET)]
        assert 3 * max(sizes) <= SMALL_BUDGET
    with pytest.raises(InputError, match="memory_budget of 100 bytes is too small.*at least 600"):
        next(row_blocks(a, b, 100))


@given(sizes, st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_top_k(size, k):
    n, m, seed = size
    a, b = rows(n, seed=seed), rows(m, seed=seed + 1)
    values, indices = top_k(a, b, k, budget=SMALL_BUDGET)
    expected = (a @ b.T).topk(min(k, m), dim=1)
    torch.testing.assert_close(values, expected.values)
    torch.testing.assert_close((a @ b.T).gather(1, indices), expected.values)


@given(sizes, st.integers(1, 7), st.booleans())
@settings(deadline=None, max_examples=60)
def test_top_k_of_both_sides(size, k, rising):
    n, m, seed = size
    a, b = rows(n, seed=seed), rows(m, seed=seed + 1)
    if rising:  # every block beats those before
        a = a * torch.linspace(0.1, 10, n)[:, None]
    dense = a @ b.T
    for (values, indices), scores in zip(top_k_both(a, b, k, budget=SMALL_BUDGET), (dense, dense.T), strict=True):
        torch.testing.assert_close(values, scores.topk(min(k, scores.shape[1]), dim=1).values)
        torch.testing.assert_close(scores.gather(1, indices), values)
        assert all(len(set(row)) == len(row) for row in indices.tolist())


@pytest.mark.parametrize("shape", [(900, 700), (300, 900), (40, 9), (5, 30), (2, 2), (1, 1)])
@pytest.mark.parametrize("like", ["random", "hubs", "equal"])
def test_the_best_by_csls_both_ways_are_those_of_a_matrix(shape, like):
    n, m = shape
    a, b = rows(n, seed=1), rows(m, seed=2)
    if like == "hubs":  # of very different hubness, on both sides
        a, b = a * torch.linspace(0.1, 3, n)[:, None], b * torch.linspace(0.1, 3, m)[:, None]
        a[:, 0], b[:, 0] = a[:, 0].abs() + 0.1, b[:, 0].abs() + 0.1
    if like == "equal":  # rows that are there several times
        a, b = a[torch.arange(n) % max(n // 20, 1)], b[torch.arange(m) % max(m // 20, 1)]
    dense = a @ b.T
    hubness = [side.topk(min(NEIGHBOURS, side.shape[1]), dim=1).values.mean(dim=1) / 2 for side in (dense, dense.T)]
    scores = dense - hubness[0][:, None] - hubness[1]
    of_both, best = best_both_ways(a, b, budget=64 * 1024)
    for found, expected, (values, partners), side in zip(of_both, hubness, best, (scores, scores.T), strict=True):
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(values, side.topk(min(3, side.shape[1]), dim=1).values)
        torch.testing.assert_close(side.gather(1, partners), values)
        assert all(len(set(row)) == len(row) for row in partners.tolist())


def test_rows_that_shortlists_leave_in_doubt_are_compared_again(monkeypatch):
    a, b = rows(900, seed=1), rows(700, seed=2)
    expected = best_both_ways(a, b)
    monkeypatch.setattr(csls, "_SHORTLIST", NEIGHBOURS)
    monkeypatch.setattr(csls, "_best_unlisted", lambda limit, *_: torch.full_like(limit, torch.inf))
    for doubted, found in zip(best_both_ways(a, b)[1], expected[1], strict=True):
        torch.testing.assert_close(doubted, found)


@given(st.integers(1, 5), st.integers(1, 3000), st.integers(1, 11), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_the_largest_in_groups_is_a_selection_from_all(n, m, k, seed):
    block = torch.randn(n, m, generator=torch.Generator().manual_seed(seed)).round(decimals=1)  # with ties
    values, columns = largest(block, min(k, m))
    torch.testing.assert_close(values, block.topk(min(k, m), dim=1).values)
    torch.testing.assert_close(block.gather(1, columns), values)
    assert all(len(set(row)) == len(row) for row in columns.tolist())


@given(sizes)
@settings(deadline=None, max_examples=30)
def test_best_partners(size):
    n, m, seed = size
    a, b = rows(n, seed=seed), rows(m, seed=seed + 1)
    penalties = torch.rand(n + m, generator=torch.Generator().manual_seed(seed))
    partner, margin = best_partners(a, b, penalties[:n], penalties[n:], budget=SMALL_BUDGET)
    dense = a @ b.T - penalties[:n, None] - penalties[n:]
    assert partner.tolist() == dense.argmax(dim=1).tolist()
    for row, column in enumerate(partner.tolist()):
        rivals = torch.cat([dense[row, torch.arange(m) != column], dense[torch.arange(n) != row, column]])
        lead = float(dense[row, column] - rivals.max()) if len(rivals) else torch.inf
        assert float(margin[row]) == pytest.approx(lead, abs=1e-6)


def test_equal_rows_are_nobodys_first_choice():
    a = rows(20)
    doubled = torch.cat([a, a[:3]])
    match = match_csls(doubled, a)
    assert not match.mutual[[0, 1, 2, 20, 21, 22]].any()
    assert match.mutual[3:20].all()


@given(sizes)
@settings(deadline=None, max_examples=30)
def test_csls_against_the_formula(size):
    n, m, seed = size
    a, b = rows(n, seed=seed), rows(m, seed=seed + 1)
    match = match_csls(a, b, 3, budget=SMALL_BUDGET)
    cosine = a @ b.T
    near_a = cosine.topk(min(3, m), dim=1).values.mean(dim=1)
    near_b = cosine.topk(min(3, n), dim=0).values.mean(dim=0)
    csls = 2 * cosine - near_a[:, None] - near_b
    assert match.partner.tolist() == csls.argmax(dim=1).tolist()
    expected_mutual = csls.argmax(dim=0)[csls.argmax(dim=1)] == torch.arange(n)
    assert match.mutual.tolist() == expected_mutual.tolist()
    torch.testing.assert_close(match.column_hubness, near_b / 2)


def test_margin_is_the_lead_over_the_best_rival():
    a, b = rows(30), rows(25, seed=1)
    match = match_csls(a, b)
    scores = a @ b.T - hubness(a, b)[:, None] - hubness(b, a)
    for row, column in enumerate(match.partner.tolist()):
        rivals = torch.cat([scores[row, torch.arange(25) != column], scores[torch.arange(30) != row, column]])
        assert float(match.margin[row]) == pytest.approx(float(scores[row, column] - rivals.max()), abs=1e-6)


def test_csls_is_equivariant_to_permutation_and_invariant_to_rotation():
    a, b = rows(50), rows(60, seed=1)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(2))
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3)))
    plain, permuted, turned = match_csls(a, b), match_csls(a, b[order]), match_csls(a @ turn, b @ turn)
    assert order[permuted.partner].tolist() == plain.partner.tolist()
    assert turned.partner.tolist() == plain.partner.tolist()


@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_distinct_assignment_is_as_good_as_scipy_on_the_whole_matrix(n, more, seed):
    a, b = rows(n, seed=seed), rows(n + more, seed=seed + 1)
    b[: more // 2] = b[0]  # ties and duplicates
    penalty = torch.rand(n + more, generator=torch.Generator().manual_seed(seed))
    found = assign_distinct(a, b, penalty, budget=SMALL_BUDGET)
    assert len(set(found.tolist())) == n
    dense = (a @ b.T - penalty).double().numpy()
    best_rows, best_columns = linear_sum_assignment(-dense)
    assert dense[np.arange(n), found.numpy()].sum() == pytest.approx(dense[best_rows, best_columns].sum(), abs=1e-5)


def test_distinct_assignment_needs_enough_columns():
    with pytest.raises(InputError, match="cannot give 3 rows distinct partners among 2"):
        assign_distinct(rows(3), rows(2), torch.zeros(2))


def test_transport_step_against_the_stored_plan():
    a, b, epsilon = rows(40), rows(30, seed=1), 0.1
    potential = 0.1 * torch.rand(30, generator=torch.Generator().manual_seed(2))
    step = transport_step(a, b, potential, epsilon, budget=SMALL_BUDGET)
    plan = ((a @ b.T + potential) / epsilon).softmax(dim=1)
    torch.testing.assert_close(step.targets, plan @ b)
    assert step.sharpness == pytest.approx(float(plan.amax(dim=1).mean()), rel=1e-4)
    # The new potential balances the columns of the plan with the row half-step's f.
    f = -epsilon * ((a @ b.T + potential) / epsilon).logsumexp(dim=1)
    balanced = ((a @ b.T + f[:, None] + step.potential) / epsilon).exp() / 40
    torch.testing.assert_close(balanced.sum(dim=0), torch.full((30,), 1 / 30), rtol=1e-3, atol=1e-5)


def test_transport_step_is_one_iteration_of_sinkhorn():
    a, b, epsilon = rows(40), rows(30, seed=1), 0.1
    potential = 0.1 * torch.rand(30, generator=torch.Generator().manual_seed(2))
    ours = transport_step(a, b, potential, epsilon).potential
    loop = sinkhorn(BlockedSoftmin(a, b), epsilon, max_iter=1, start=potential).g
    torch.testing.assert_close(ours - ours.mean(), loop - loop.mean(), rtol=1e-4, atol=1e-5)


@given(sizes)
@settings(max_examples=60, deadline=None)
def test_assigning_rows_in_half_precision_part_by_part_is_assigning_at_once(size):
    """Also with exact ties, of which small whole numbers make plenty."""
    n, m, seed = min(size[:2]), max(size[:2]), size[2]
    chance = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-2, 3, (count, 3), generator=chance).float() for count in (n, m))
    penalty = torch.randint(0, 3, (m,), generator=chance).float()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_HALF_ROWS", 7)
        assigned = [assign_distinct(a, of, penalty) for of in (b, b.half())]
    scores = a @ b.T - penalty
    totals = [scores[torch.arange(n), chosen].sum() for chosen in assigned]
    assert totals[0] == totals[1]
    assert len(set(assigned[1].tolist())) == n


def test_on_a_cpu_the_blocked_path_serves(monkeypatch):
    from kedge.matching import neighbours, transport

    blocks = []

    def counting(*arguments, **options):
        blocks.append(arguments[0].shape)
        return row_blocks(*arguments, **options)

    monkeypatch.setattr(neighbours, "row_blocks", counting)
    monkeypatch.setattr(transport, "row_blocks", counting)
    a, b = rows(30), rows(20, seed=1)
    assert not use_fused(a, b)
    match_csls(a, b)
    assert blocks == [(30, 6), (20, 6), (30, 6)]  # neighbours both ways, then partners
    transport_step(a, b, torch.zeros(20), 0.05)
    assert len(blocks) == 4

"""First and second choices must tell how many rows recognise their counterpart, on similarities where that is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.judging.confidence import share_by_chance
from kedge.judging.overlap import estimate_overlap
from kedge.judging.recognition import Choices, Recognition, count_recognised, pair_probabilities, shown_by_margins
from kedge.matching import best_partners, second_margins


def margins_of(similarity):
    """Margins of the first and of the second choices (n,) of a similarity (n, m), by its definition."""
    similarity = np.asarray(similarity, dtype=np.float64)
    order = np.argsort(-similarity, axis=1)
    found = []
    for choice in (0, 1):
        column = order[:, choice]
        rows = np.arange(len(similarity))
        own = similarity[rows, column]
        row_rival = similarity[rows, order[:, choice + 1]]
        others = similarity[:, column].copy()
        others[rows, rows] = -np.inf
        found.append(own - np.maximum(row_rival, others.max(axis=0)))
    return found


def choices_of(similarity):
    first, second = margins_of(similarity)
    return Choices(first, second, margins_of(similarity.T)[1], similarity.shape[1])


def non_matches_and_pairs(share, rows=1500, lead=6.0, seed=0):
    """Similarities that fall off exponentially, and a lead for the counterparts of a share of the rows."""
    chance = np.random.default_rng(seed)
    similarity = chance.exponential(size=(rows, rows))
    paired = np.arange(int(share * rows))
    similarity[paired, paired] = similarity.max() + lead * chance.random(len(paired))
    return similarity


def test_second_margins_are_what_they_say():
    chance = torch.Generator().manual_seed(0)
    a, b = torch.randn(60, 5, generator=chance), torch.randn(40, 5, generator=chance)
    row_penalty, column_penalty = torch.rand(60, generator=chance), torch.rand(40, generator=chance)
    similarity = a @ b.T - row_penalty[:, None] - column_penalty
    first, second = margins_of(similarity.numpy())
    rows = torch.tensor([3, 17, 59, 0])
    found = second_margins(a, b, rows, row_penalty, column_penalty, budget=50 * 40 * 12)
    np.testing.assert_allclose(found.numpy(), second[rows.numpy()], atol=1e-5)
    _, margin = best_partners(a, b, row_penalty, column_penalty)
    np.testing.assert_allclose(margin.numpy(), first, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 2])
def test_second_margins_of_hardly_any_columns(columns):
    rows = torch.eye(4)[:, :3]
    found = second_margins(rows, torch.eye(3)[:columns], torch.arange(4), torch.zeros(4), torch.zeros(columns))
    assert found.isneginf().all() if columns == 1 else found.isfinite().all()


def test_the_second_choices_of_non_matches_lead_as_the_square_of_the_first():
    """The law that all rests on, for similarities that fall off exponentially."""
    first, second = (
        np.concatenate(m)
        for m in zip(*(margins_of(non_matches_and_pairs(0, 800, seed=s)) for s in range(5)), strict=True)
    )
    for margin in (0.0, 0.3, 1.0):
        assert (second > margin).mean() == pytest.approx((first > margin).mean() ** 2, abs=0.02)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_recognised_are_counted(share):
    recognition = count_recognised(choices_of(non_matches_and_pairs(share)))
    assert recognition.share == pytest.approx(share, abs=4 * recognition.share_error + 0.01)
    assert recognition.share_error < 0.08


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_probabilities_undo_a_known_mixture(share):
    """Counterparts stand out by more or less: what is listed must be right as often as it says, or more often."""
    chance = np.random.default_rng(3)
    similarity = chance.exponential(size=(2000, 2000))
    paired = np.arange(int(share * 2000))
    similarity[paired, paired] = np.log(2000) + 3 + 6 * chance.random(len(paired))
    choices = choices_of(similarity)
    at, probability = pair_probabilities(choices, count_recognised(choices))
    assert (np.diff(probability) >= 0).all()
    mutual = choices.first > 0
    confidence, right = np.interp(choices.first[mutual], at, probability), np.flatnonzero(mutual) < len(paired)
    assert confidence.mean() == pytest.approx(right.mean() - 0.04, abs=0.05)
    listed = confidence >= 0.5
    assert confidence[listed].mean() == pytest.approx(right[listed].mean() - 0.04, abs=0.05)


def test_nothing_is_probable_among_non_matches():
    choices = choices_of(non_matches_and_pairs(0))
    _, probability = pair_probabilities(choices, count_recognised(choices))
    assert probability.max() < 0.5
    none = Choices(np.full(60, -1.0), np.full(60, -1.0), np.full(60, -1.0), 60)
    assert count_recognised(none).count == 0
    assert pair_probabilities(none, count_recognised(none))[1].max() == 0


def leads(share_ahead, scale, rows=2000):
    """Margins (n,) of which a share is positive and falls off exponentially on a scale."""
    quantiles = (np.arange(rows) + 0.5) / rows
    return -scale * np.log(quantiles / share_ahead)


def fitted_non_matches():
    """First choices that lead more often than the law says, S = .5 and F = .25, as fitted to false pairs.

    Those that lead by far are not more than the law says, or fewer.
    """
    second = leads(0.25, 0.55)
    return Choices(leads(0.56, 1.0), second, second, 2000)


def test_the_largest_margins_show_whether_any_row_is_recognised():
    """As few as a tenth of the rows show it; fitted non-matches do not, although rows seem recognised."""
    assert shown_by_margins(choices_of(non_matches_and_pairs(0.1)))
    assert count_recognised(fitted_non_matches()).share > 0.15
    assert not shown_by_margins(fitted_non_matches())


@pytest.mark.parametrize(
    ("shared", "significant", "expected"), [(0.1, False, 0.0), (0.0, False, 1.0), (0.0, True, 0.2)]
)
def test_what_the_largest_margins_show_is_counted_and_what_nothing_shows_is_not(shared, significant, expected):
    judged = SimpleNamespace(chance_rate=0.2, significant=significant)
    choices = choices_of(non_matches_and_pairs(shared)) if shared else fitted_non_matches()
    assert share_by_chance(judged, choices, disjoint=False) == expected
    assert share_by_chance(judged, choices, disjoint=True) == 1


def test_margins_that_are_all_equal_leave_no_bin_empty():
    tied = np.repeat([0.5, 1.0], 100)
    choices = Choices(tied, tied - 1, tied - 1, 200)
    at, probability = pair_probabilities(choices, count_recognised(choices))
    assert at.tolist() == [0.5, 1.0]
    assert np.isfinite(probability).all()


def test_few_rows_are_not_counted():
    few = choices_of(non_matches_and_pairs(1.0, rows=30))
    assert count_recognised(few).count == 0


@settings(max_examples=50, deadline=None)
@given(
    share=st.floats(0, 1),
    error=st.floats(0, 0.05),
    rows=st.tuples(st.integers(60, 5000), st.integers(60, 5000)),
    seeds=st.integers(0, 50),
    found=st.floats(0, 1),
)
def test_an_overlap_is_a_share_with_its_bounds_in_order(share, error, rows, seeds, found):
    smaller = min(rows)
    recognition = Recognition(share * smaller, error * smaller, *rows)
    overlap = estimate_overlap(recognition, seeds, int(found * seeds))
    for interval, total in ((overlap.x, rows[0]), (overlap.y, rows[1])):
        assert seeds / total - 1e-9 <= interval.low <= interval.high <= 1
        assert (interval.estimate is None) == (seeds < 10 or int(found * seeds) < 0.5 * seeds)
        if interval.estimate is not None:
            assert interval.low <= interval.estimate <= interval.high
    assert overlap.x.low * rows[0] == pytest.approx(overlap.y.low * rows[1])


def test_an_overlap_is_described_in_words():
    certain = estimate_overlap(Recognition(1980, 5, 2000, 2000), 100, 99)
    assert str(certain.x).startswith("about 100%, between")
    unseeded = estimate_overlap(Recognition(1000, 20, 2000, 2000), 0, 0)
    assert str(unseeded.x).startswith("at least 4")
    assert str(estimate_overlap(Recognition(0, 20, 2000, 2000), 0, 0).x) == "unknown"

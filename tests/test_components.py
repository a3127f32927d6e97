"""Independent components: found whichever way a space is turned or stretched, matched without a pair, annealed from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

import other_half
from kedge import Schedule
from kedge.geometry import Components, nearest_rotation, unit
from kedge.matching import DEFAULT_BUDGET, CosineReading, Match, Problem
from kedge.solving import components
from kedge.solving.attempts import solve
from kedge.solving.closeness import Closeness, implied_cross
from kedge.solving.components import match_components, read_by_components, starts_from_components
from kedge.solving.starts import shared_coordinates
from kedge.solving.steps import Log

TOPICS, UNSEEN = 16, 300


def topics(rows: int, chance: np.random.Generator) -> np.ndarray:
    """Peaked coordinates (n, k): rows have much of a few topics, of some topics more often than of others, and together
    with others of the same group.
    """
    groups = chance.random((rows, TOPICS // 4)) < np.linspace(0.15, 0.5, TOPICS // 4)
    often = np.linspace(0.2, 0.9, TOPICS)
    active = np.repeat(groups, 4, axis=1) & (chance.random((rows, TOPICS)) < often)
    return active * chance.exponential(size=(rows, TOPICS)) + 0.05 * chance.standard_normal((rows, TOPICS))


def spaces(rows: int, state: int = 0) -> tuple[Problem, Tensor, Tensor]:
    """Two spaces of other items, stretched and turned; and as both see the same unseen ones."""
    chance = np.random.default_rng(state)
    of_x, of_y, unseen = (topics(count, chance) for count in (rows, rows, UNSEEN))
    middle = np.concatenate([of_x, of_y]).mean(axis=0)
    sides = []
    for own in (of_x, of_y):
        turn = np.linalg.qr(chance.standard_normal((TOPICS, TOPICS)))[0]
        stretch = np.exp(0.2 * chance.standard_normal(TOPICS))
        seen = [(part - middle) * stretch @ turn for part in (own, unseen)]
        sides.append([unit(torch.from_numpy(part.astype(np.float32))) for part in seen])
    none = torch.zeros(0, dtype=torch.int64)
    return Problem(sides[0][0], sides[1][0], none, none, DEFAULT_BUDGET), sides[0][1], sides[1][1]


def first(reading: CosineReading, x: Tensor, y: Tensor) -> float:
    """The share of rows of x that have the same row of y first."""
    similarity = reading.shared_x(x) @ reading.shared_y(y).T
    return float((similarity.argmax(dim=1) == torch.arange(len(x))).float().mean())


# -- one space ------------------------------------------------------------------------------------


def test_components_are_those_of_scikit_learn():
    fastica = pytest.importorskip("sklearn.decomposition").FastICA
    rows = topics(3000, np.random.default_rng(0)) @ np.random.default_rng(1).standard_normal((TOPICS, TOPICS))
    rows -= rows.mean(axis=0)
    expected = fastica(fun="logcosh", whiten="unit-variance", random_state=0, max_iter=500).fit_transform(rows)
    found = (
        torch.from_numpy(rows.astype(np.float32))
        @ Components.of(torch.from_numpy(rows.astype(np.float32)), 99).directions
    )
    correlation = np.abs(np.corrcoef(expected.T, found.numpy().T)[:TOPICS, TOPICS:])
    assert correlation[linear_sum_assignment(-correlation)].min() > 0.98


def test_values_are_uncorrelated_peaked_first_and_give_the_rows_back():
    rows = torch.from_numpy(topics(2000, np.random.default_rng(0)).astype(np.float32))
    rows = rows - rows.mean(dim=0)
    found = Components.of(rows, TOPICS)
    values = rows @ found.directions
    torch.testing.assert_close(values.T @ values / len(rows), torch.eye(TOPICS), atol=1e-3, rtol=0)
    torch.testing.assert_close(values @ found.loadings.T, rows, atol=1e-3, rtol=1e-3)
    peaked = values.clamp(-6, 6).pow(4).mean(dim=0)
    assert (peaked.diff() <= 0).all()
    assert (values.clamp(-6, 6).pow(3).mean(dim=0) >= 0).all()


def test_neither_turning_nor_stretching_changes_them():
    rows = torch.from_numpy(topics(3000, np.random.default_rng(0)).astype(np.float32))
    rows = rows - rows.mean(dim=0)
    mixed = rows @ torch.randn(TOPICS, TOPICS, generator=torch.Generator().manual_seed(0))
    values, others = (part @ Components.of(part, TOPICS).directions for part in (rows, mixed))
    correlation = (values.T @ others / len(rows)).numpy()
    assert correlation[linear_sum_assignment(-correlation)].min() > 0.98


@pytest.mark.parametrize("rank", [1, 3])
def test_axes_along_which_nothing_varies_are_left_out(rank):
    chance = torch.Generator().manual_seed(0)
    rows = torch.randn(200, rank, generator=chance) @ torch.randn(rank, 8, generator=chance)
    found = Components.of(rows, 8)
    assert found.directions.shape == (8, rank)
    assert bool(found.directions.isfinite().all())


# -- two spaces -----------------------------------------------------------------------------------


def test_components_of_two_spaces_without_a_common_item_are_matched():
    problem, x, y = spaces(6000)
    left, right = (components._Side.of(rows, TOPICS) for rows in (problem.x, problem.y))
    matched = match_components(left, right, torch.zeros(TOPICS, TOPICS))
    torch.testing.assert_close(matched.sum(dim=0), torch.ones(TOPICS), atol=1e-3, rtol=0)
    torch.testing.assert_close(matched.sum(dim=1), torch.ones(TOPICS), atol=0.1, rtol=0)
    seen = (x @ left.components.directions).T @ (y @ right.components.directions) / len(x)
    rows, columns = linear_sum_assignment(-seen.numpy())
    assert np.mean(matched.argmax(dim=1).numpy()[rows] == columns) > 0.5


def test_a_hint_decides_where_the_company_does_not():
    chance = torch.Generator().manual_seed(0)
    alike = torch.ones(5, 3), tuple(torch.zeros(5, 5) for _ in range(5))
    side = components._Side(Components(torch.eye(5), torch.eye(5)), *alike)
    order = torch.randperm(5, generator=chance)
    hint = torch.zeros(5, 5)
    hint[torch.arange(5), order] = 12.0
    assert torch.equal(match_components(side, side, hint).argmax(dim=1), order)


def test_annealing_from_components_finds_what_no_pair_shows():
    problem, x, y = spaces(3000)
    schedule = Schedule(
        anneal_rounds=30, both_ways=True, weighted=True, hints=False, fingerprints=True, components=True
    )
    shared = shared_coordinates(problem, with_fingerprints=True, log=Log())
    reading = read_by_components(problem, problem, shared, schedule, Log())
    assert first(reading, x, y) > 30 / UNSEEN  # thirty times chance, from other items and without a pair


def test_spaces_too_small_for_components_have_the_hint_as_their_start():
    problem, _, _ = spaces(40)
    hint = torch.randn(TOPICS, TOPICS, generator=torch.Generator().manual_seed(0))
    assert starts_from_components(problem, hint) == [hint]


# -- which of several ways is closer --------------------------------------------------------------


def test_what_is_right_is_closer_than_what_is_not():
    problem, x, y = spaces(2000)
    right = (x.T @ y).double()
    wrong = torch.randn(TOPICS, TOPICS, generator=torch.Generator().manual_seed(0))
    closeness = Closeness(problem, 1000)
    assert len(closeness.sample.x) == 1000
    assert closeness.of(right) > closeness.of(wrong) + 0.01
    implied = implied_cross(problem, CosineReading(nearest_rotation(right).float(), torch.eye(TOPICS)))
    assert closeness.of(implied) > closeness.of(wrong) + 0.01


class _Undecided:
    """Finds every map as bad as every other."""

    score, ok, significant, recognised = 0.0, False, False, 0.0

    def judge(self, problem: Problem, match: Match, rotation: Tensor | None = None) -> _Undecided:
        return self

    def probable(self, compared, match: Match) -> Tensor:
        return torch.zeros(len(match.partner), dtype=torch.bool)


def test_where_no_score_decides_the_closest_attempt_is_kept(rotated):
    x, y = (unit(torch.from_numpy(rows)) for rows in rotated(n=400, noise=0.3))
    seeds = torch.arange(12)
    problem = Problem(x, y, seeds, seeds, DEFAULT_BUDGET)
    bad, good = Schedule(anneal_rounds=1, rank=2, finish_rounds=1), Schedule()
    found = solve(problem, (bad, good), _Undecided(), torch.Generator().manual_seed(0), Log(), disjoint=True)
    alone = solve(problem, (good,), _Undecided(), torch.Generator().manual_seed(0), Log(), disjoint=True)
    assert torch.equal(found.match.partner, alone.match.partner)


@pytest.mark.thorough
def test_words_of_two_models_that_have_no_word_in_common_are_translated_without_a_pair():
    found = other_half.halves(*other_half.words(), 2500, 0, "cpu")
    assert min(found["words_of_x"], found["words_of_y"]) > 0.8  # by chance one in 2,500
    assert found["verdict"].startswith("ok")
    assert found["pairs"] == 0

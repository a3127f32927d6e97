"""Noise stays noise, mirror images are noticed, and rows that look like nothing are said to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, Schedule
from kedge.geometry import unit
from kedge.judging.isolation import Isolation
from kedge.judging.overlap import estimate_overlap
from kedge.judging.recognition import Recognition
from kedge.judging.symmetries import reflections
from kedge.matching import DEFAULT_BUDGET, Problem

ONCE = Schedule(anneal_rounds=30, fingerprints=True, parts=1)
NONE = torch.empty(0, dtype=torch.int64)


def skewed(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    """Rows of a latent structure that no reflection leaves as it is."""
    chance = np.random.default_rng(seed)
    centers = chance.exponential(size=(12, dim)) * np.geomspace(1, 0.3, dim)
    return centers[chance.integers(12, size=rows)] + 0.4 * chance.exponential(size=(rows, dim)) * np.geomspace(
        1, 0.3, dim
    )


def turned_copy(x: np.ndarray, seed: int = 1) -> np.ndarray:
    """The same rows, turned, a little blurred, in the same order."""
    chance = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(chance.standard_normal((x.shape[1], x.shape[1])))
    return x @ turn + 0.02 * x.std() * chance.standard_normal(x.shape)


def two_mirrors(rows: int, dim: int = 10) -> np.ndarray:
    """Rows with all four images under two sign flips, of the first and of the other axes."""
    base = skewed(rows // 4, dim)
    base = base - base.mean(axis=0)
    flips = [np.where(np.arange(dim) < dim // 2, s, t) for s in (1, -1) for t in (1, -1)]
    return np.concatenate([base * flip for flip in flips])


def problem_of(x: np.ndarray, y: np.ndarray) -> Problem:
    rows = [torch.from_numpy(side.astype(np.float32)) for side in (x, y)]
    rows = [unit(side - side.mean(dim=0)) for side in rows]
    return Problem(rows[0], rows[1], NONE, NONE, DEFAULT_BUDGET)


# -- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["binary 12", pytest.param("gauss 3", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("seeds", [0, 15])
def test_noise_of_few_dimensions_is_never_ok(kind, seeds):
    chance = np.random.default_rng(0)
    name, dim = kind.split()
    shape = 300, int(dim)
    x, y = (chance.integers(0, 2, shape) if name == "binary" else chance.standard_normal(shape) for _ in range(2))
    x, y = (np.where(side.any(axis=1, keepdims=True), side, 1) for side in (x, y))
    pairs = np.stack([chance.permutation(300)[:seeds] for _ in range(2)], axis=1)
    discovery = AnchorDiscovery(n_anchors=20, schedule=ONCE, device="cpu").fit(x, y, pairs)
    health = discovery.health_
    assert health.map.verdict != "ok"
    assert health.closeness is None or health.closeness < 2  # not some thousand per cent of next to nothing


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [0, 15])
@pytest.mark.parametrize("state", [0, 1])
def test_binary_noise_of_many_dimensions_is_never_ok(seeds, state):
    chance = np.random.default_rng(state)
    x, y = (chance.integers(0, 2, (1500, 64)) for _ in range(2))
    pairs = np.stack([np.arange(seeds)] * 2, axis=1)
    discovery = AnchorDiscovery(n_anchors=20, random_state=state, device="cpu").fit(x, y, pairs)
    assert discovery.health_.map.verdict != "ok"


def test_signs_of_real_spaces_are_not_refused(rotated):
    """One thing seen by two encoders, of which only the signs are kept."""
    signs = [np.where(side > np.median(side, axis=0), 1.0, -1.0) for side in rotated(n=600, dim=64)]
    discovery = AnchorDiscovery(n_anchors=20, schedule=Schedule(), device="cpu")
    discovery.fit(*signs, [(row, row) for row in range(60)])
    assert discovery.health_.map.verdict == "ok"
    assert (discovery.match_ == np.arange(600)).mean() > 0.9


# -- symmetries -----------------------------------------------------------------------------------


def test_a_skewed_space_has_no_reflection():
    rows = problem_of(skewed(800, 10), skewed(800, 10)).x
    assert reflections(rows) == []


def test_reflections_of_a_space_onto_itself_are_found():
    x = two_mirrors(800)
    rows = problem_of(x, x).x
    found = reflections(rows)
    flips = [torch.diag(torch.where(torch.arange(10) < 5, s, t).float()) for s, t in ((-1, 1), (1, -1), (-1, -1))]
    for flip in flips:
        assert any(torch.allclose(reflection, flip, atol=1e-3) for reflection in found)
    for reflection in found:
        torch.testing.assert_close(reflection @ reflection.T, torch.eye(10), atol=1e-4, rtol=0)


def test_a_swap_of_two_parts_is_a_reflection():
    one, other = skewed(400, 5, seed=2), skewed(400, 5, seed=3)
    x = np.concatenate([np.hstack([one, other]), np.hstack([other, one])])
    rows = problem_of(x, x).x
    swap = torch.eye(10).roll(5, dims=0)
    assert any(torch.allclose(reflection, swap, atol=0.02) for reflection in reflections(rows))


@pytest.mark.parametrize("seed", [10, 11, 12])
def test_without_seeds_mirror_images_make_it_uncertain_and_three_seeds_decide(seed):
    x = two_mirrors(400)
    y = turned_copy(x, seed)
    alone = AnchorDiscovery(n_anchors=20, schedule=ONCE, device="cpu").fit(x, y).health_.map
    assert alone.verdict == "uncertain"
    assert "Mirror images fit as well" in alone.reason
    assert "three seeds" in alone.advice
    seeded = AnchorDiscovery(n_anchors=20, schedule=ONCE, device="cpu").fit(x, y, [(3, 3), (150, 150), (333, 333)])
    assert seeded.health_.map.verdict == "ok"
    assert (seeded.match_ == np.arange(400)).mean() > 0.9


# -- rows that look like nothing ------------------------------------------------------------------


def half_garbage(x: np.ndarray, seed: int) -> np.ndarray:
    x = x - x.mean(axis=0)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.concatenate([x, x.std() * np.random.default_rng(seed).standard_normal(x.shape)])


def test_isolated_rows_are_found_on_the_side_that_has_them():
    x = skewed(500, 40)
    isolation = Isolation.from_problem(problem_of(half_garbage(x, 5), turned_copy(x)))
    assert isolation.x[500:].float().mean() > 0.95
    assert isolation.x[:500].float().mean() < 0.05
    assert not isolation.y.any()
    assert str(isolation).startswith("About half of X's rows look like nothing in Y")
    nothing = Isolation.from_problem(problem_of(x, turned_copy(x)))
    assert (nothing.any, str(nothing)) == (False, "")


def test_no_rows_of_a_space_without_a_gap_are_called_isolated(rotated):
    """A fifth of few Gaussian rows lies far out, but so do others, more or less."""
    for rows in (120, 400):
        assert not Isolation.from_problem(problem_of(*rotated(n=rows))).any


@pytest.mark.thorough
def test_garbage_is_said_and_not_paired(words, word_seeds):
    x, y = words
    keys = x.keys[:700]
    left, right = (
        half_garbage(side.take(side.rows(keys)).vectors.astype(np.float64), seed) for seed, side in ((1, x), (2, y))
    )
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(left, right, [(row, row) for row in range(15)])
    assert "half of X's rows look like nothing in Y" in discovery.health_.pairs.reason
    listed = discovery.pairs_
    right_share = np.mean((listed[:, 0] == listed[:, 1]) & (listed[:, 0] < 700))
    assert abs(right_share - discovery.pair_confidence_.mean()) < 0.05
    assert len(listed) > 500
    overlap = discovery.health_.overlap.x
    assert overlap.low < 0.5 < overlap.high


# -- overlap --------------------------------------------------------------------------------------


def test_seeds_are_read_better_than_other_rows_where_few_pairs_are_right():
    """Half of the items are shared, of which three quarters are recognised, but nearly all of the seeds."""
    recognition = Recognition(0.36 * 1500, 0.035 * 1500, 1500, 1500)
    bent = estimate_overlap(recognition, 15, 14, right_share=0.6).x
    assert bent.low < 0.5 < bent.high
    straight = estimate_overlap(recognition, 15, 14).x
    assert bent.high > straight.high
    everything = estimate_overlap(Recognition(1490, 5, 1500, 1500), 15, 15, right_share=0.99).x
    assert everything.low > 0.95

"""Health must tell success from failure, and confidence must be worth something."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, Schedule
from kedge.discovery.confidence import _probabilities
from kedge.discovery.judgement import _health
from kedge.discovery.problem import Problem
from kedge.matching import Rows


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_seeds_are_not_called_aligned(words, seed):
    x, y = words
    chance = np.random.default_rng(seed)
    wrong = np.stack([chance.choice(len(x), 15, replace=False), chance.choice(len(y), 15, replace=False)], axis=1)
    # One attempt from the seeds alone; fingerprints would find the way in spite of them.
    discovery = AnchorDiscovery(n_anchors=50, schedule=Schedule(), min_confidence=0, device="cpu").fit(x, y, wrong)
    assert discovery.health_.verdict == "not aligned"
    assert discovery.health_.score < 0.15
    assert len(discovery.pairs_) > 500
    assert discovery.pair_confidence_.max() == 0
    assert "seeds" in discovery.health_.advice
    assert not discovery.seed_is_suspect_.any()  # nothing is known about them


def test_unrelated_spaces_are_not_called_aligned(words):
    noise = np.random.default_rng(0).standard_normal((2000, 100)).astype(np.float32)
    seeds = np.stack([np.arange(15), np.arange(15)], axis=1)
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(words[0], noise, seeds)
    assert discovery.health_.verdict == "not aligned"
    assert len(discovery.pairs_) == 0  # no pair is invented
    assert len(discovery.unmatched_keys_x_) == 2000


def test_health_says_what_it_measured(fitted):
    health = fitted.health_
    assert 0 <= health.chance < health.agreement <= 1
    assert health.score == pytest.approx((health.agreement - health.chance) / (1 - health.chance))
    assert health.mutual == pytest.approx(len(fitted.pairs_) / len(fitted.match_), abs=0.02)
    assert f"{health.agreement:.0%}" in health.reason


def test_confidence_separates_right_from_wrong(words, word_seeds):
    """With noise on one side some pairs are wrong: they must be less sure, and the mean must be near the truth."""
    x, y = words
    blurred = y.vectors + 0.7 * y.vectors.std() * np.random.default_rng(0).standard_normal(y.vectors.shape)
    y_noisy = type(y)(y.keys, blurred.astype(np.float32))
    discovery = AnchorDiscovery(n_anchors=50, min_confidence=0, device="cpu").fit(x, y_noisy, word_seeds)
    right = np.array([a == b for a, b in discovery.pair_keys_])
    assert 0.9 < right.mean() < 0.99
    confidence = discovery.pair_confidence_
    assert confidence[right].mean() > confidence[~right].mean() + 0.03
    assert abs(confidence.mean() - right.mean()) < 0.05
    surest = right[: len(right) // 4]
    assert surest.mean() > right.mean() + 0.01


def problem(seeds=15, centred=True):
    rows = torch.eye(20)
    return Problem(Rows.shared(rows), Rows.shared(rows), torch.arange(seeds), torch.arange(seeds), 2**20, centred)


def test_the_reasons_say_what_was_measured():
    nothing = _health(None, [0.1], 0.5, problem())
    assert (nothing.verdict, nothing.score) == ("doubtful", 0)
    assert "Nothing can be said" in nothing.reason
    unmeasured = _health(0.9, [], 0.5, problem())
    assert unmeasured.verdict == "doubtful"
    assert "Chance could not be measured" in unmeasured.reason
    assert "random start" not in unmeasured.reason
    verdicts = [_health(rate, [0.1, 0.2], 0.5, problem()).verdict for rate in (0.9, 0.4, 0.3)]
    assert verdicts == ["aligned", "doubtful", "not aligned"]


def test_the_advice_fits_what_was_done():
    assert "there were 2, 15 are enough" in _health(0.2, [0.2], 0.5, problem(seeds=2)).advice
    assert "Centre the spaces" in _health(0.2, [0.2], 0.5, problem(centred=False)).advice
    assert "Centre the spaces" in _health(None, [], 0.5, problem(centred=False)).advice
    assert "check that they are right" in _health(0.2, [0.2], 0.5, problem()).advice
    assert "share too few items" in _health(0.4, [0.2], 0.5, problem()).advice


def test_probabilities_undo_a_known_mixture():
    """700 true pairs with great margins and 300 false ones with small margins, as many as the measured rate implies."""
    chance = np.random.default_rng(0)
    true, false, measured = chance.normal(3, 0.5, 700), chance.exponential(0.5, 300), chance.exponential(0.5, 400)
    at, probability = _probabilities(np.concatenate([true, false]), measured, taken=1000, unpaired=450)
    assert (np.diff(at) > 0).all()
    assert (np.diff(probability) >= 0).all()
    assert np.interp(0.3, at, probability) < 0.1
    assert np.interp(3.0, at, probability) > 0.95
    assert np.interp(np.concatenate([true, false]), at, probability).mean() == pytest.approx(0.7, abs=0.03)


def test_without_a_false_pair_every_pair_is_sure():
    _, probability = _probabilities(np.linspace(0.1, 1, 50), np.empty(0), taken=10, unpaired=5)
    assert (probability == 1).all()

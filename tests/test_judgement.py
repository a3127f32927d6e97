"""Health must tell success from failure, and confidence must be worth something."""

from __future__ import annotations

import numpy as np
import pytest

from kedge import AnchorDiscovery
from kedge.discovery.judgement import _health


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_seeds_are_not_called_aligned(words, seed):
    x, y = words
    chance = np.random.default_rng(seed)
    wrong = np.stack([chance.choice(len(x), 15, replace=False), chance.choice(len(y), 15, replace=False)], axis=1)
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(x, y, wrong)
    assert discovery.health_.verdict == "not aligned"
    assert discovery.health_.score < 0.35
    assert discovery.pair_confidence_.max() < 0.05
    assert "seeds" in discovery.health_.advice


def test_unrelated_spaces_are_not_called_aligned(words):
    noise = np.random.default_rng(0).standard_normal((2000, 100)).astype(np.float32)
    seeds = np.stack([np.arange(15), np.arange(15)], axis=1)
    assert AnchorDiscovery(n_anchors=50, device="cpu").fit(words[0], noise, seeds).health_.verdict == "not aligned"


def test_health_says_what_it_measured(fitted):
    health = fitted.health_
    assert 0 <= health.chance < health.agreement <= 1
    assert health.score == pytest.approx((health.agreement - health.chance) / (1 - health.chance))
    assert health.mutual == pytest.approx(len(fitted.pairs_) / len(fitted.match_))
    assert f"{health.agreement:.0%}" in health.reason


def test_confidence_separates_right_from_wrong(words, word_seeds):
    """With noise on one side some pairs are wrong: they must be less sure, and the mean must be near the truth."""
    x, y = words
    blurred = y.vectors + 0.7 * y.vectors.std() * np.random.default_rng(0).standard_normal(y.vectors.shape)
    y_noisy = type(y)(y.keys, blurred.astype(np.float32))
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(x, y_noisy, word_seeds)
    right = np.array([a == b for a, b in discovery.pair_keys_])
    assert 0.9 < right.mean() < 0.98
    confidence = discovery.pair_confidence_
    assert confidence[right].mean() > confidence[~right].mean() + 0.2
    assert abs(confidence.mean() - right.mean()) < 0.2
    surest = right[: len(right) // 4]
    assert surest.mean() > right.mean() + 0.03


def test_the_reasons_say_what_was_measured():
    nothing = _health(None, [0.1], 0.5)
    assert (nothing.verdict, nothing.score) == ("doubtful", 0)
    assert "Nothing can be said" in nothing.reason
    unmeasured = _health(0.9, [], 0.5)
    assert unmeasured.verdict == "doubtful"
    assert "Chance could not be measured" in unmeasured.reason
    assert "random start" not in unmeasured.reason
    assert [_health(rate, [0.1, 0.2], 0.5).verdict for rate in (0.9, 0.6, 0.3)] == [
        "aligned",
        "doubtful",
        "not aligned",
    ]

"""The two answers must tell success from failure, and confidence must be worth something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, Embeddings, Schedule
from kedge.judging.judge import LabelFreeJudge, Standing
from kedge.judging.recognition import Recognition
from kedge.matching import Problem
from kedge.solving.steps import Log


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wrong_seeds_do_not_make_a_right_map(words, seed):
    x, y = words
    chance = np.random.default_rng(seed)
    wrong = np.stack([chance.choice(len(x), 15, replace=False), chance.choice(len(y), 15, replace=False)], axis=1)
    # One attempt from the seeds alone; fingerprints would find the way in spite of them.
    discovery = AnchorDiscovery(n_anchors=50, schedule=Schedule(), min_confidence=0, device="cpu").fit(x, y, wrong)
    health = discovery.health_
    assert (health.map.verdict, health.pairs.verdict) == ("failed", "failed")
    assert health.map.score < 0.15
    assert len(discovery.pairs_) > 500
    assert discovery.pair_confidence_.max() == 0
    assert "seeds" in health.map.advice
    assert str(health.overlap.x) == "unknown"
    assert not discovery.seed_is_suspect_.any()  # nothing is known about them


@pytest.mark.thorough
def test_unrelated_spaces_have_no_map_and_no_pairs(words):
    noise = np.random.default_rng(0).standard_normal((2000, 100)).astype(np.float32)
    seeds = np.stack([np.arange(15), np.arange(15)], axis=1)
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(words[0], noise, seeds)
    assert discovery.health_.map.verdict == "failed"
    assert len(discovery.pairs_) == 0  # no pair is invented
    assert len(discovery.x_.unmatched_keys) == 2000 - len(discovery.seeds_)


def test_health_says_what_it_measured(fitted):
    health = fitted.health_
    assert (health.map.verdict, health.pairs.verdict) == ("ok", "ok")
    assert health.recognised > 0.95
    assert f"about {health.recognised:.0%} of all other rows recognise their counterpart" in health.pairs.reason
    assert f"{len(fitted.pairs_):,} pairs found besides the 15 seeds" in health.pairs.reason
    assert health.mutual == pytest.approx(len(fitted.pairs_) / len(fitted.match_), abs=0.02)
    assert health.closeness is None  # rows that recognise each other are proof enough
    for interval in (health.overlap.x, health.overlap.y):
        assert interval.low <= 1.0 <= interval.high + 1e-9
        assert interval.estimate > 0.9


@pytest.mark.thorough
def test_with_nothing_in_common_the_map_is_right_and_no_pairs_are_listed(words):
    """Fifteen seeds are all that two lists of a thousand words share; words that neither has seen try the map."""
    x, y = words
    order = np.random.default_rng(0).permutation(len(x)).tolist()
    unseen, seeded, left, right = order[:200], order[200:215], order[215:1100], order[1100:]
    first, second = x.take(seeded + left), y.take(y.rows([x.keys[row] for row in seeded + right]))
    seeds = [(x.keys[row], x.keys[row]) for row in seeded]
    for disjoint in (False, True):
        discovery = AnchorDiscovery(n_anchors=50, disjoint=disjoint, device="cpu").fit(first, second, seeds)
        health = discovery.health_
        found = set(discovery.pair_keys_) - set(seeds)
        assert len(found) <= 0.01 * len(first), disjoint
        assert health.pairs.verdict == ("failed" if disjoint else health.judged.verdict) != "ok", disjoint
        assert health.overlap.x.low <= 15 / 900 <= health.overlap.x.high, disjoint
        keys = [x.keys[row] for row in unseen]
        near = discovery.x_.shared(x.take(unseen)) @ discovery.y_.shared(y.take(y.rows(keys))).T
        assert (near.argmax(axis=1) == np.arange(len(keys))).mean() > 0.5, disjoint
    assert "nothing in common" in health.pairs.reason


@pytest.mark.thorough
def test_half_of_the_items_in_common_are_found_to_be_half(words):
    x, y = words
    order = np.random.default_rng(1).permutation(len(x)).tolist()
    first, second = x.take(order[:1300]), y.take(y.rows([x.keys[row] for row in order[650:1950]]))
    shared = [x.keys[row] for row in order[650:1300]]
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(first, second, [(key, key) for key in shared[:15]])
    overlap = discovery.health_.overlap.x
    assert overlap.low < 0.5 < overlap.high
    assert overlap.estimate == pytest.approx(0.5, abs=0.15)
    right = np.mean([left == other for left, other in discovery.pair_keys_])
    assert right == pytest.approx(discovery.pair_confidence_.mean(), abs=0.07)


@pytest.mark.thorough
def test_a_space_and_its_mirror_image_cannot_be_told_apart_without_seeds(words):
    x, y = words
    doubled = []
    for space in (x.take(range(600)), y.take(y.rows(x.keys[:600]))):
        rows = space.vectors / np.linalg.norm(space.vectors, axis=1, keepdims=True)
        rows = rows - rows.mean(axis=0)
        doubled.append(np.concatenate([rows, -rows]))
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(*doubled)
    assert discovery.health_.map.verdict != "ok"
    assert len(discovery.pairs_) == 0


@pytest.mark.thorough
def test_seeds_that_are_close_but_wrong_are_ranked_in_the_order_of_doubt(words, word_seeds):
    x, y = words
    good = word_seeds[:13]
    near, far = ("mother", "father"), ("music", "water")
    assert all(left in x.row_of and right in y.row_of for left, right in (near, far))
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(x, y, [*good, near, far])
    rank = dict(zip(discovery.seed_keys_, discovery.seed_rank_.tolist(), strict=True))
    assert 1 < rank[near] < rank[far]
    assert 1 <= max(rank[seed] for seed in good) < rank[near]


@pytest.mark.thorough
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


class Fixed(LabelFreeJudge):
    """A judge of rows that recognise each other as told, and of a map that stands as told."""

    def __init__(self, recognised, standing=None, seeds=15, centered=True, rows=100, chance_rate=0.0):
        space = torch.eye(rows)
        chosen = torch.arange(seeds)
        super().__init__(Problem(space, space, chosen, chosen, 2**20, centered), 0, Log())
        self._told = Recognition(recognised * rows, 0.01 * rows, rows, rows), standing and Standing(*standing)
        self.__dict__["_chance_rate"] = chance_rate

    def _recognition(self, part, match):
        return self._told[0]

    def _standing(self, part, match, rotation, *, random_rivals):
        return self._told[1]

    def _sharp_chance_rate(self, part, match):
        return 0.0


def test_the_reasons_say_what_was_measured():
    nothing = Fixed(0.0, rows=20).judge(None, None).answer
    assert (nothing.verdict, nothing.score) == ("uncertain", 0)
    assert "Nothing can be said" in nothing.reason
    verdicts = [Fixed(0.0, (gain, gain)).judge(None, None).answer.verdict for gain in (0.5, 0.2, 0.05)]
    assert verdicts == ["ok", "uncertain", "failed"]
    assert "20% closer than the best of 3 random starts" in Fixed(0.0, (0.2, 0.9)).judge(None, None).answer.reason
    # Closer, but the halves of the rows do not agree about it: right about topics, and nothing else.
    assert Fixed(0.0, (0.5, 0.1)).judge(None, None).answer.verdict == "uncertain"
    assert Fixed(0.0, (0.5, 0.02)).judge(None, None).answer.verdict == "failed"
    recognised = Fixed(0.4, (1.0, 1.0)).judge(None, None)
    assert (recognised.answer.verdict, recognised.significant) == ("ok", True)
    assert "About 40% of the rows recognise" in recognised.answer.reason
    # What a random start seems to recognise too is no evidence.
    assert not Fixed(0.4, (0.0, 0.0), chance_rate=0.35).judge(None, None).significant
    upside_down = Fixed(0.4, (0.0, 0.0, True), seeds=0).judge(None, None).answer
    assert (upside_down.verdict, "Mirror images fit as well" in upside_down.reason) == ("uncertain", True)
    assert "three seeds" in upside_down.advice
    # Of what is no better than chance, mirror images are not worth a word.
    assert Fixed(0.0, (0.0, 0.0, True), seeds=0).judge(None, None).answer.verdict == "failed"


def test_the_advice_fits_what_was_done():
    failed = (0.0, 0.0)
    assert "2 were given; 15 are enough" in Fixed(0.0, failed, seeds=2).judge(None, None).answer.advice
    assert "Center the spaces" in Fixed(0.0, failed, centered=False).judge(None, None).answer.advice
    assert "Center the spaces" in Fixed(0.0, centered=False, rows=20).judge(None, None).answer.advice
    assert "check that they are right" in Fixed(0.0, failed).judge(None, None).answer.advice
    assert "whose place you know" in Fixed(0.0, (0.2, 0.2)).judge(None, None).answer.advice


def test_a_share_of_a_recognition_is_that_of_the_smaller_space():
    recognition = Recognition(count=50.0, error=5.0, rows_x=100, rows_y=400)
    assert (recognition.share, recognition.share_error) == (0.5, 0.05)
    assert recognition.less(0.2).count == 30
    assert replace(recognition, count=5.0).less(0.2).count == 0


def test_embeddings_with_numbers_for_keys_are_judged_alike(rotated):
    x, y = (Embeddings([str(row) for row in range(300)], vectors) for vectors in rotated())
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, [(str(row), str(row)) for row in range(15)])
    assert discovery.health_.map.verdict == "ok"

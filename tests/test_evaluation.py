"""Evaluation against gold pairs, with numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kedge import AnchorDiscovery, Embeddings, InputError
from kedge.tasks import evaluate, gold_by_key


@pytest.fixture(scope="module")
def solved():
    """Forty rows rotated without noise: row i matches row i. Anchors are 8 to 15, of which 12 to 15 are no seeds."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((40, 16)).astype(np.float32)
    turn, _ = np.linalg.qr(chance.standard_normal((16, 16)))
    spaces = Embeddings([f"x{i}" for i in range(40)], x), Embeddings([f"y{i}" for i in range(40)], (x @ turn))
    seeds = [(f"x{i}", f"y{i}") for i in range(12)]
    discovery = AnchorDiscovery(min_confidence=0, device="cpu").fit(
        *spaces, seeds, anchors=[f"x{i}" for i in range(8, 16)]
    )
    assert discovery.anchor_keys_ == [(f"x{i}", f"y{i}") for i in range(8, 16)]
    assert len(discovery.pair_keys_) == 40
    return discovery, *spaces


def test_only_pairs_with_gold_are_judged_unless_gold_is_complete(solved):
    gold = np.array([[i, i] for i in range(20)])
    partial = evaluate(*solved, gold, complete=False, device="cpu")
    assert (partial.anchors_exact, partial.pairs_precision, partial.pairs_recall) == (1, 1, 1)
    complete = evaluate(*solved, gold, complete=True, device="cpu")
    assert complete.pairs_precision == 20 / 40  # the other pairs are known to be wrong
    assert complete.pairs_recall == 1


def test_wrong_gold_and_several_partners(solved):
    gold = np.array([[i, i] for i in range(8, 16)] + [[8, 9], [20, 21], [21, 20]])
    result = evaluate(*solved, gold, complete=False, device="cpu")
    assert result.anchors_exact == 1  # the four that are no seeds
    assert result.pairs_precision == 8 / 10  # rows 20 and 21 are paired with themselves
    assert result.pairs_recall == 8 / 10
    moved = np.array([[12, 13], [13, 12], [14, 14]])
    assert evaluate(*solved, moved, complete=False, device="cpu").anchors_exact == pytest.approx(1 / 3)


def test_a_noiseless_rotation_scores_perfectly(solved):
    result = evaluate(*solved, np.array([[i, i] for i in range(40)]), complete=True, device="cpu")
    for scores in (result.gt, result.seed, result.found, result.snapped):
        assert scores.mrr == scores.p_at_1 == 1
        assert scores.foscttm == 0


def test_gold_must_know_an_anchor(solved):
    with pytest.raises(InputError, match="no anchor of the run has a gold partner"):
        evaluate(*solved, np.array([[30, 30]]), complete=False)
    with pytest.raises(InputError, match="no key in common"):
        gold_by_key(*solved[1:])

"""Evaluation against gold pairs, with numbers worked out by hand."""

from __future__ import annotations

import json
from copy import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from kedge import AnchorDiscovery, Embeddings, InputError
from kedge.cli.main import main
from kedge.spaces import read_embeddings, rows_from_key_pairs
from kedge.tasks import SearchScores, evaluate, gold_by_key, search_scores, wilson_interval


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
    assert len(discovery.pair_keys_) == 28  # the seeds are no findings
    return discovery, *spaces


def test_only_pairs_with_gold_are_judged_unless_gold_is_complete(solved):
    gold = np.array([[i, i] for i in range(20)])
    partial = evaluate(*solved, gold, complete=False, device="cpu")
    assert (partial.anchors_exact, partial.pairs_precision, partial.pairs_recall) == (1, 1, 1)
    complete = evaluate(*solved, gold, complete=True, device="cpu")
    assert complete.pairs_precision == 8 / 28  # the other pairs are known to be wrong
    assert complete.pairs_recall == 1


def test_wrong_gold_and_several_partners(solved):
    gold = np.array([[i, i] for i in range(8, 16)] + [[8, 9], [20, 21], [21, 20]])
    result = evaluate(*solved, gold, complete=False, device="cpu")
    assert result.anchors_exact == 1  # the four that are no seeds
    assert result.pairs_precision == 4 / 6  # rows 20 and 21 are paired with themselves, 8 to 11 are seeds
    assert result.pairs_recall == 4 / 6
    moved = np.array([[12, 13], [13, 12], [14, 14]])
    assert evaluate(*solved, moved, complete=False, device="cpu").anchors_exact == pytest.approx(1 / 3)


def test_a_noiseless_rotation_scores_perfectly(solved):
    result = evaluate(*solved, np.array([[i, i] for i in range(40)]), complete=True, device="cpu")
    for scores in (result.gt, result.seed, result.found, result.snapped, result.shared):
        assert scores.mrr == scores.p_at_1 == 1
        assert scores.foscttm == 0


def test_gold_may_know_no_anchor(solved):
    result = evaluate(*solved, np.array([[i, i] for i in range(30, 40)]), complete=False, device="cpu")
    assert result.gt is result.anchors_exact is None
    assert result.table()[0] == ("GT", *"-----")
    assert result.found.mrr == result.searching["Map"].p_at_1 == 1


def test_equal_keys_are_needed_for_gold_by_key(solved):
    with pytest.raises(InputError, match="no key in common"):
        gold_by_key(*solved[1:])


def test_the_order_of_gold_does_not_matter(fitted, words):
    x, y = words
    chance = np.random.default_rng(0)
    true = gold_by_key(x, y)[:300]
    # Several partners on either side, right ones and wrong ones.
    gold = np.concatenate([true, np.stack([true[:, 0], chance.permutation(true[:, 1])], axis=1)])
    results = [
        evaluate(fitted, x, y, gold[order], complete=False, device="cpu")
        for order in (np.arange(600), np.arange(600)[::-1], chance.permutation(600))
    ]
    assert results[0] == results[1] == results[2]


def test_retrieval_scores_are_over_as_many_gold_pairs_as_there_can_be(solved):
    # Taking [8, 9] first would leave [9, 9] out, and with it the row 9; all three rows can have a partner.
    result = evaluate(*solved, np.array([[8, 9], [8, 8], [9, 9], [10, 10], [10, 9]]), complete=False, device="cpu")
    assert result.found.p_at_1 == result.found.mrr == 1


def test_gt_is_in_the_coordinates_of_a_whitened_run(rotated):
    keys = [str(row) for row in range(300)]
    x, y = (Embeddings(keys, vectors) for vectors in rotated(noise=0.3))
    seeds = [(key, key) for key in keys[:60]]
    discovery = AnchorDiscovery(n_anchors=50, whiten=0.5, device="cpu").fit(x, y, seeds)
    gold = gold_by_key(x, y)
    true = y.vectors[y.rows(left for left, _ in discovery.anchor_keys_)]
    source = discovery.x_.relative(x)
    target = discovery.y_.whiten(y.vectors[gold[:, 1]]) @ discovery.y_.whiten(true).T
    similarity = unit(source) @ unit(target).T
    result = evaluate(discovery, x, y, gold, complete=True, device="cpu")
    assert result.gt.p_at_1 == pytest.approx(np.mean(similarity.argmax(axis=1) == np.arange(300)), abs=0.005)
    assert result.gt.cosine == pytest.approx(np.mean(np.diag(similarity)), abs=1e-5)


# -- searching ------------------------------------------------------------------------------------


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def plain_search(similarity, partners, y):
    """Scores of a search with the similarities (q, m) stored, given the partners of each query."""
    within = unit(y) @ unit(y).T
    ranks, overlaps = [], []
    for scores, right in zip(similarity, partners, strict=True):
        order = np.argsort(-scores).tolist()
        best = min(right, key=order.index)
        ranks.append(order.index(best) + 1)
        overlaps.append(len(set(order[:10]) & set(np.argsort(-within[best])[:10].tolist())) / 10)
    ranks = np.array(ranks)
    return [np.mean(ranks == 1), np.mean(ranks <= 10), np.mean(np.where(ranks <= 10, 1 / ranks, 0)), np.mean(overlaps)]


def values(scores):
    return [scores.p_at_1, scores.p_at_10, scores.mrr, scores.overlap]


def test_search_scores_by_hand():
    # Twelve rows of an index on a line, row i at 12 - i: every query finds rows 0 to 9 in this order.
    index = torch.arange(12, 0, -1, dtype=torch.float32)[:, None]
    queries = torch.ones(3, 1)
    partners = torch.tensor([[0, 0], [0, 5], [1, 11], [1, 3], [2, 11], [2, 10]])
    # What partner 0 finds is found whole, of what 3 finds five of ten, of what 10 finds none; the rest must not count.
    nothing = [-1] * 10
    nearest = torch.tensor([list(range(10)), nothing, nothing, [0, 1, 2, 3, 4] + [-1] * 5, list(range(10)), nothing])
    scores = search_scores(queries, index, partners, nearest)
    assert scores == SearchScores(1 / 3, 2 / 3, pytest.approx((1 + 1 / 4) / 3), pytest.approx((1 + 0.5 + 0) / 3))


def test_searching_against_the_plain_version(fitted, words, word_seeds):
    x, y = words
    chance = np.random.default_rng(5)
    true = gold_by_key(x, y)[chance.permutation(2000)[:400]]
    true = np.concatenate([true, rows_from_key_pairs(word_seeds, x, y)])  # which are not asked
    gold = np.concatenate([true, np.stack([true[:, 0], chance.integers(2000, size=len(true))], axis=1)])
    gold = gold[len(true) // 2 :]  # some have two partners, some one, which is a wrong one
    gold = gold[chance.permutation(len(gold))]
    result = evaluate(fitted, x, y, gold, complete=False, device="cpu")

    seeds = rows_from_key_pairs(word_seeds, x, y)
    queries = sorted(set(gold[:, 0].tolist()) - set(seeds[:, 0].tolist()))
    partners = [gold[gold[:, 0] == query, 1].tolist() for query in queries]
    assert result.gold_used == len(queries)
    assert {len(right) for right in partners} == {1, 2}
    source, target = fitted.x_.normalise(x.vectors), fitted.y_.normalise(y.vectors)
    left, right = source[seeds[:, 0]].astype(float), target[seeds[:, 1]].astype(float)
    u, _, v = np.linalg.svd(left.T @ right, full_matrices=False)
    gram = left.T @ left
    penalty = (0.1 + 1e-6) * np.trace(gram) / len(gram)
    maps = {"Procrustes": u @ v, "Ridge": np.linalg.solve(gram + penalty * np.eye(len(gram)), left.T @ right)}
    similarities = {
        "Shared": fitted.x_.shared(x.vectors[queries]) @ fitted.y_.shared(y.vectors).T,
        "Map": fitted.translate(x.vectors[queries]) @ unit(y.vectors).T,
    }
    for name, matrix in maps.items():
        direction = unit(source[queries] @ matrix)
        along = direction @ fitted.y_.center  # back to where the ray from the center meets the unit sphere
        length = np.sqrt(along**2 + 1 - fitted.y_.center @ fitted.y_.center) - along
        similarities[name] = (fitted.y_.center + length[:, None] * direction) @ unit(y.vectors).T
    assert list(result.searching) == ["Shared", "Map", "Procrustes", "Ridge"]
    for name in ("Shared", "Map", "Ridge"):
        expected = plain_search(similarities[name], partners, y.vectors)
        assert values(result.searching[name]) == pytest.approx(expected, abs=0.003), name
    # Fifteen seeds leave most of a rotation open, which is then anybody's choice.
    assert 0 <= result.searching["Procrustes"].p_at_1 < result.searching["Map"].p_at_1


def test_procrustes_by_enough_seeds_is_exact(solved):
    discovery, x, y = solved
    enough = copy(discovery)
    enough.seed_keys_ = [(f"x{i}", f"y{i}") for i in range(30)]
    result = evaluate(enough, x, y, np.array([[i, i] for i in range(40)]), complete=True, device="cpu")
    assert result.gold_used == 10
    assert values(result.searching["Procrustes"]) == [1, 1, 1, 1]


def test_searching_needs_gold_beyond_the_seeds_and_baselines_need_seeds(solved):
    discovery, x, y = solved
    asked = evaluate(discovery, x, y, np.array([[i, i] for i in range(12)]), complete=False, device="cpu")
    assert asked.gold_used == 0
    assert set(asked.searching.values()) == {None}
    assert asked.search_table()[0] == ("Shared", *"----")
    seedless = copy(discovery)
    seedless.seeds_, seedless.seed_keys_ = np.empty((0, 2), dtype=np.int64), []
    seedless.seed_opinion_ = discovery.seed_opinion_[:0]
    result = evaluate(seedless, x, y, np.array([[i, i] for i in range(40)]), complete=True, device="cpu")
    assert result.gold_used == 40
    assert result.searching["Procrustes"] is result.searching["Ridge"] is None
    assert result.searching["Map"] is not None


# -- the command line -----------------------------------------------------------------------------


def call(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def dictionary(run_files, word_seeds, tmp_path):
    """A gold file of 100 words and one seed, and two lines with words that the spaces do not have."""
    seeds = {left for left, _ in word_seeds}
    words = [key for key in read_embeddings(run_files[1]).keys if key not in seeds][:100]
    lines = [f"{word} {word}" for word in [*words, word_seeds[0][0]]]
    path = tmp_path / "gold.txt"
    path.write_text("\n".join(["no-such-word water", *lines, "water no-such-word"]))
    return path


def test_gold_lines_of_unknown_words_are_skipped_and_counted(run_files, dictionary, capsys):
    assert call("evaluate", *run_files, "--gold", dictionary, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["gold"] == {"pairs": 101, "skipped": 2, "queries": 100}
    assert result["Shared"]["mrr"] > 0.9
    assert result["searching"]["Shared"]["p_at_10"] > 0.8
    assert call("evaluate", *run_files, "--gold", dictionary) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("gold: 101 pairs (2 lines skipped")
    assert "100 rows of X" in lines[0]
    names = [line.split()[0] for line in lines[1:]]
    assert names[:11] == [
        "anchors", "GT", "Seed", "Found", "Snapped", "Shared", "search", "Shared", "Map", "Procrustes", "Ridge",
    ]  # fmt: skip
    assert lines[7].split()[2:] == ["P@1", "P@10", "MRR@10", "overlap@10"]


def test_strict_refuses_unknown_words_and_useless_files_are_refused_anyway(run_files, dictionary, capsys):
    assert call("evaluate", *run_files, "--gold", dictionary, "--strict") == 2
    assert "line 1: X" in capsys.readouterr().err
    dictionary.write_text("no-such-word water\nnor-this-one water\n")
    assert call("evaluate", *run_files, "--gold", dictionary) == 2
    assert "none of its 2 lines names a key of X" in capsys.readouterr().err


def test_gold_by_keys_counts_too(run_files, capsys):
    assert call("evaluate", *run_files, "--gold", "keys", "--json") == 0
    assert json.loads(capsys.readouterr().out)["gold"] == {"pairs": 2000, "skipped": 0, "queries": 1985}


def test_a_report_takes_the_same_dictionaries(run_files, dictionary, tmp_path, capsys):
    pytest.importorskip("plotly")
    assert call("report", *run_files, "--gold", dictionary, "-o", tmp_path / "report.html") == 0
    assert "gold: 101 pairs (2 lines skipped" in capsys.readouterr().err
    assert "Shared" in (tmp_path / "report.html").read_text()


@given(st.integers(1, 2000), st.floats(0, 1))
def test_wilson_intervals_are_those_of_scipy(count, share):
    right = round(share * count)
    expected = binomtest(right, count).proportion_ci(method="wilson")
    assert wilson_interval(right, count) == pytest.approx((expected.low, expected.high), abs=1e-12)

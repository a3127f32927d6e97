"""The estimator as a user meets it, on real words and on made-up spaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

import kedge
from kedge import AnchorDiscovery, Embeddings, InputError, Schedule
from kedge.errors import NotFittedError
from kedge.geometry import center_of, normalise, principal_axes, unit
from kedge.solving.fingerprints import fingerprints, similarity_profiles, whitening_basis
from kedge.solving.schedule import schedules_for
from kedge.solving.steps import Log
from kedge.tasks import evaluate, gold_by_key, search


def test_real_words_are_paired_from_fifteen_seeds(fitted, words):
    assert fitted.health_.map.verdict == "ok"
    result = evaluate(fitted, *words, gold_by_key(*words), complete=True)
    assert result.pairs_precision > 0.99
    assert result.pairs_recall > 0.97
    assert result.anchors_exact > 0.97
    # Found is as good as all true anchors, and far better than the seeds alone.
    assert result.found.mrr > result.gt.mrr - 0.01
    assert result.found.jaccard > result.gt.jaccard > result.seed.jaccard + 0.1
    assert result.found.cosine > result.gt.cosine


def test_learned_attributes_have_the_documented_shapes(fitted, words):
    x, y = words
    a, p = len(fitted.anchors_x_), len(fitted.pairs_)
    assert a == 100
    assert fitted.anchors_y_.shape == fitted.anchor_confidence_.shape == fitted.anchor_is_seed_.shape == (a,)
    assert len(set(fitted.anchors_x_.tolist())) == len(set(fitted.anchors_y_.tolist())) == a
    assert fitted.y_.anchors["free"].shape == (a, y.dim)
    np.testing.assert_allclose(np.linalg.norm(fitted.y_.anchors["free"], axis=1), 1, rtol=1e-5)
    assert fitted.match_.shape == fitted.confidence_.shape == (len(x),)
    assert fitted.map_.dims == (x.dim, y.dim)
    assert fitted.pairs_.shape == (p, 2)
    assert len(np.unique(fitted.pairs_[:, 0])) == len(np.unique(fitted.pairs_[:, 1])) == p
    assert (np.diff(fitted.pair_confidence_) <= 0).all()
    assert ((fitted.confidence_ >= 0) & (fitted.confidence_ <= 1)).all()
    assert fitted.n_iter_ == len(fitted.history_) > 5
    assert fitted.anchor_is_seed_.sum() == 15
    assert fitted.anchor_is_seed_[:15].all()
    seeds = {(x.keys[i], y.keys[j]) for i, j in fitted.seeds_}
    assert set(fitted.seed_keys_) == seeds
    assert fitted.anchor_keys_[:15] == fitted.seed_keys_


@pytest.mark.thorough
def test_same_random_state_same_answer(fitted, words, word_seeds):
    again = AnchorDiscovery(n_anchors=100, device="cpu").fit(*words, word_seeds)
    np.testing.assert_array_equal(again.pairs_, fitted.pairs_)
    np.testing.assert_array_equal(again.y_.anchors["free"], fitted.y_.anchors["free"])
    np.testing.assert_array_equal(again.confidence_, fitted.confidence_)
    assert again.health_ == fitted.health_
    other = AnchorDiscovery(n_anchors=100, device="cpu", random_state=1).fit(*words, word_seeds)
    assert other.anchors_x_.tolist() != fitted.anchors_x_.tolist()


@pytest.mark.thorough
def test_the_memory_budget_does_not_change_the_answer(fitted, words, word_seeds):
    small = AnchorDiscovery(n_anchors=100, device="cpu", memory_budget=2**20).fit(*words, word_seeds)
    assert {tuple(pair) for pair in small.pairs_.tolist()} == {tuple(pair) for pair in fitted.pairs_.tolist()}


@pytest.mark.thorough
def test_the_order_of_rows_does_not_matter(fitted, words, word_seeds):
    x, y = words
    order = np.random.default_rng(0).permutation(len(y))
    permuted = AnchorDiscovery(n_anchors=100, device="cpu").fit(x, y.take(order), word_seeds)
    assert set(permuted.pair_keys_) == set(fitted.pair_keys_)


def test_a_noiseless_rotation_is_solved_completely(rotated):
    x, y = rotated(n=400)
    seeds = np.stack([np.arange(10), np.arange(10)], axis=1)
    discovery = AnchorDiscovery(n_anchors=30, device="cpu").fit(x, y, seeds)
    assert discovery.match_.tolist() == list(range(400))
    assert discovery.health_.map.verdict == "ok"
    np.testing.assert_array_equal(discovery.anchors_x_, discovery.anchors_y_)
    np.testing.assert_allclose(discovery.x_.relative(x), discovery.y_.relative(y), atol=1e-3)
    cosine = (discovery.translate(x) * y / np.linalg.norm(y, axis=1, keepdims=True)).sum(axis=1)
    assert cosine.min() > 0.95


@pytest.mark.thorough
def test_spaces_of_different_sizes(words, word_seeds):
    x, y = words
    keep = {left for left, _ in word_seeds} | set(x.keys[:1200])
    fewer = x.take([row for row, key in enumerate(x.keys) if key in keep])
    for left, right in ((fewer, y), (x, y.take(y.rows(fewer.keys)))):
        discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(left, right, word_seeds)
        assert discovery.health_.map.verdict == "ok"
        right_pairs = sum(a == b for a, b in discovery.pair_keys_)
        assert right_pairs > 0.97 * len(fewer)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_three_seeds_are_enough_for_spaces_much_alike(words, seed):
    keys = np.random.default_rng(seed).choice(words[0].keys, 3, replace=False).tolist()
    schedule = Schedule(anneal_rounds=60)
    discovery = AnchorDiscovery(n_anchors=50, device="cpu", schedule=schedule).fit(*words, [(key, key) for key in keys])
    assert discovery.health_.map.verdict == "ok"
    assert sum(a == b for a, b in discovery.pair_keys_) > 1900


def test_fingerprints_do_not_depend_on_how_a_space_is_turned_or_ordered(words):
    rows = normalise(torch.from_numpy(words[1].vectors[:300].copy()), None)
    turn, _ = torch.linalg.qr(torch.randn(100, 100, generator=torch.Generator().manual_seed(0)))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    other = (rows @ turn)[order]
    plain, turned = similarity_profiles(rows, 2**20), similarity_profiles(other, 2**28)
    assert plain.shape == (300, 256)
    torch.testing.assert_close(turned, plain[order], rtol=1e-2, atol=1e-3)
    left, right = fingerprints(rows, other, 2**28, Log())
    assert ((left[order] * right).sum(dim=1) > 0.99).all()
    assert (left @ right.T).argmax(dim=1).tolist() == order.argsort().tolist()


@pytest.mark.parametrize("rows", [8, 30, 200])
def test_the_basis_of_fingerprints_whitens_what_all_rows_vary_in(rows):
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(40, 40, generator=generator) * torch.linspace(2, 0.5, 40)
    parts = [torch.randn(count, 40, generator=generator) @ mixing for count in (rows, 2 * rows)]
    basis = whitening_basis(parts, 10).double()
    covariance = torch.stack([(part.T @ part).double() / len(part) for part in parts]).mean(dim=0)
    torch.testing.assert_close(basis.T @ covariance @ basis, torch.eye(10).double(), rtol=1e-4, atol=1e-4)
    variances, axes = torch.linalg.eigh(covariance)
    plain = axes[:, -10:] / variances[-10:].sqrt()
    left, right = (unit(torch.cat(parts) @ some.float()) for some in (basis, plain))
    torch.testing.assert_close(left @ left.T, right @ right.T, rtol=1e-3, atol=1e-3)  # the same, but for a turn


def test_what_is_tried_follows_the_number_of_seeds():
    assert schedules_for(15)[0] == Schedule()
    assert all(schedule.fingerprints for schedule in schedules_for(3))
    assert schedules_for(1)[0].anneal_rounds < schedules_for(0)[0].anneal_rounds
    assert Schedule().describe(15) == "from 15 seeds, 20 rounds"
    assert schedules_for(1)[1].describe(1) == "from fingerprints and 1 seed, 100 rounds"
    assert schedules_for(0)[1].describe(0) == "from fingerprints, 100 rounds, whitened"
    assert schedules_for(0)[-1].describe(0) == "from fingerprints, 60 rounds"
    assert Schedule(anneal_rounds=0).describe(500) == "from 500 seeds, no annealing"
    assert {schedule.whitening for schedule in schedules_for(15)} == {0, 0.5}
    assert {schedule.whitening for schedule in schedules_for(15, 0.3)} == {0.3}


@pytest.mark.thorough
def test_no_seed_at_all_is_enough_for_spaces_much_alike(words):
    steps = []
    discovery = AnchorDiscovery(n_anchors=50, device="cpu", on_step=steps.append).fit(*words)
    assert discovery.health_.map.verdict == "ok"
    assert sum(a == b for a, b in discovery.pair_keys_) > 1900
    assert discovery.seeds_.shape == (0, 2)
    assert not discovery.anchor_is_seed_.any()
    assert "fingerprints" in {step.stage for step in steps}
    result = evaluate(discovery, *words, gold_by_key(*words), complete=True)
    assert result.seed is None
    assert result.found.mrr > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_seeds_are_named_and_do_no_harm(words, fitted, seed):
    x, y = words
    keys = np.random.default_rng(seed).choice(x.keys, 15, replace=False).tolist()
    pairs = [*zip(keys[:3], [keys[1], keys[2], keys[0]], strict=True), *((key, key) for key in keys[3:])]
    discovery = AnchorDiscovery(n_anchors=100, device="cpu").fit(x, y, pairs)
    assert discovery.health_.map.verdict == "ok"
    assert discovery.seed_is_suspect_.tolist() == [True] * 3 + [False] * 12
    assert sum(found == key for found, key in zip(discovery.seed_found_keys_, keys, strict=True)) >= 13
    assert not set(discovery.anchor_keys_[:3]) & set(pairs[:3])  # anchors, but not as the wrong seeds say
    assert discovery.anchor_is_seed_.sum() == 12
    gold = gold_by_key(x, y)
    clean, dirty = (evaluate(run, x, y, gold, complete=True).found.mrr for run in (fitted, discovery))
    assert dirty > clean - 0.02


@pytest.mark.thorough
def test_rows_without_a_counterpart_stay_without_one(words, word_seeds):
    x, y = words
    in_seeds = {key for key, _ in word_seeds}
    only_x = [row for row, key in enumerate(x.keys) if row % 4 != 0 or key in in_seeds]
    only_y = [row for row, key in enumerate(y.keys) if x.row_of[key] % 4 != 1 or key in in_seeds]
    left, right = x.take(only_x), y.take(only_y)  # two thirds of the rows of each are in the other
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(left, right, word_seeds)
    assert discovery.health_.map.verdict == "ok"
    precision = np.mean([a == b for a, b in discovery.pair_keys_])
    assert precision > 0.9
    assert abs(discovery.pair_confidence_.mean() - precision) < 0.05
    everything = AnchorDiscovery(n_anchors=50, device="cpu", min_confidence=0.0).fit(left, right, word_seeds)
    assert len(everything.pairs_) > len(discovery.pairs_) + 50
    assert np.mean([a == b for a, b in everything.pair_keys_]) < precision - 0.02
    without = set(left.keys) - set(right.keys)
    assert np.mean([key in discovery.x_.unmatched_keys for key in without]) > 0.8
    linked = discovery.linked_pairs().keys
    assert set(discovery.x_.unmatched_keys) | {a for a, _ in linked} == set(left.keys)
    assert set(discovery.y_.unmatched_keys) | {b for _, b in linked} == set(right.keys)


@pytest.mark.thorough
def test_sampled_annealing_finishes_on_everything(words, word_seeds):
    schedule = Schedule(sample_size=800)
    discovery = AnchorDiscovery(n_anchors=50, device="cpu", schedule=schedule).fit(*words, word_seeds)
    assert len(discovery.match_) == 2000
    assert sum(a == b for a, b in discovery.pair_keys_) > 1950


@pytest.mark.thorough
def test_anchors_can_be_given_or_spread(words, word_seeds):
    given = [words[0].keys[row] for row in range(100, 140)]
    discovery = AnchorDiscovery(device="cpu").fit(*words, word_seeds, anchors=given)
    assert [left for left, _ in discovery.anchor_keys_] == given
    spread = AnchorDiscovery(n_anchors=60, anchor_choice="farthest", device="cpu").fit(*words, word_seeds)
    by_chance = AnchorDiscovery(n_anchors=60, device="cpu").fit(*words, word_seeds)

    def closest(vectors):
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -1)
        return similarity[15:].max(axis=1).mean()

    assert closest(spread.x_.anchors["free"]) < closest(by_chance.x_.anchors["free"])


def test_more_seeds_than_anchors(rotated):
    seeds = [(row, row) for row in range(200)]
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(*rotated(), seeds)
    assert discovery.anchor_is_seed_.all()
    assert len(discovery.seeds_) == 200


def test_new_vectors_and_kinds_of_anchors(fitted, words):
    x, y = words
    assert fitted.x_.relative(x.vectors[:7]).shape == (7, 100)
    assert fitted.y_.relative(y.vectors[:7], anchors="snapped").shape == (7, 100)
    assert fitted.x_.relative(x.vectors[:7], anchors="seeds").shape == (7, 15)
    assert fitted.y_.relative(torch.from_numpy(y.vectors[:7].copy())).shape == (7, 100)
    translated = fitted.translate(x)
    targets = y.vectors[y.rows(x.keys)]
    nearest = (translated @ (y.vectors / np.linalg.norm(y.vectors, axis=1, keepdims=True)).T).argmax(axis=1)
    assert np.mean(nearest == y.rows(x.keys)) > 0.9  # in Y's own, uncentered coordinates
    assert translated.shape == targets.shape
    with pytest.raises(InputError, match="vectors: has 3 dimensions, but X of this run has 300"):
        fitted.translate(np.ones((2, 3)))
    with pytest.raises(InputError, match="one of free, snapped, seeds, got 'best'"):
        fitted.y_.relative(y, anchors="best")


def test_search_finds_the_same_word(fitted, words):
    found = search(fitted, *words, ["water", "music"], k=3)
    assert [near[0].key for near in found.values()] == ["water", "music"]
    assert [len(near) for near in found.values()] == [3, 3]


def test_search_ranks_by_likelihood_and_shows_cosines(fitted, words):
    x, y = words
    left, right = fitted.x_.shared(x), fitted.y_.shared(y)
    ratios = left @ right.T
    weighted = [side[:, :-2] / np.linalg.norm(side[:, :-2], axis=1, keepdims=True) for side in (left, right)]
    found = search(fitted, x, y, x.keys[:50], k=20)
    for row, near in enumerate(found.values()):
        rows = y.rows([neighbour.key for neighbour in near])
        told = [neighbour.log_likelihood_ratio for neighbour in near]
        np.testing.assert_allclose(told, -np.sort(-ratios[row])[:20], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(told, ratios[row, rows], rtol=1e-4, atol=1e-3)
        cosines = weighted[1][rows] @ weighted[0][row]
        np.testing.assert_allclose([neighbour.similarity for neighbour in near], cosines, atol=1e-5)
    similar = np.array([[neighbour.similarity for neighbour in near] for near in found.values()])
    assert (np.diff(similar, axis=1) > 0).any()  # another order than that of the cosines


def test_on_step_sees_every_stage(rotated):
    steps = []
    seeds = [(row, row) for row in range(15)]
    AnchorDiscovery(n_anchors=20, device="cpu", on_step=steps.append).fit(*rotated(), seeds)
    assert list(dict.fromkeys(step.stage for step in steps)) == ["anneal", "finish", "health", "confidence"]
    assert all(1 <= step.index <= step.total for step in steps)


def test_without_centering(rotated):
    x, y = rotated()
    seeds = [(row, row) for row in range(15)]
    discovery = AnchorDiscovery(n_anchors=50, center=False, device="cpu").fit(x, y[:, :12], seeds)
    assert discovery.x_.center is None
    assert discovery.translate(x).shape == (300, 12)


def test_scikit_learn_manners():
    discovery = AnchorDiscovery(n_anchors=7, random_state=3)
    copy = clone(discovery)
    assert copy.get_params() == discovery.get_params()
    assert copy.set_params(n_anchors=8) is copy
    assert repr(copy) == "AnchorDiscovery(n_anchors=8, random_state=3)"
    with pytest.raises(InputError, match="no parameter 'anchors'"):
        copy.set_params(anchors=1)
    for use in (lambda: discovery.translate(np.ones((1, 2))), discovery.linked_pairs):
        with pytest.raises(NotFittedError, match="call fit first"):
            use()


SEEDS = [[0, 0], [1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"method": "paper"}, {"seeds": SEEDS[:2]}, "at least 3 distinct pairs, got 2"),
        ({"method": "paper"}, {"seeds": []}, "at least 3 distinct pairs, got 0"),
        ({"schedule": Schedule()}, {"seeds": []}, "nothing to start from; give seeds, or a Schedule with fingerprints"),
        ({"schedule": Schedule(anneal_rounds=0, fingerprints=True)}, {"seeds": []}, "nothing to start from"),
        ({"min_confidence": 1.5}, {"seeds": SEEDS}, "min_confidence must be between 0 and 1, got 1.5"),
        (
            {},
            {"seeds": [*SEEDS, [0, 9]]},
            "seeds contradict each other: number 1, .'0', '0'., and number 5, .'0', '9'.; keep one",
        ),
        ({}, {"seeds": [*SEEDS, [9, 0]]}, "seeds contradict each other"),
        ({}, {"seeds": [*SEEDS, [300, 0]]}, "seeds, number 5, .300, 0.: 300 is no row of x; rows are 0 to 299"),
        ({}, {"seeds": [*SEEDS, [0, -1]]}, "-1 is no row of y"),
        ({}, {"seeds": [[0.5, 1]]}, "seeds, number 1, .0.5, 1.: x has no key 0.5; it has 300 keys, e.g. '0'"),
        ({}, {"seeds": [0, 1, 2]}, "seeds must be pairs of keys or rows, .of x, of y., number 1 is 0"),
        ({}, {"seeds": [("0", "0"), ("1", "nope")]}, "seeds, number 2, .'1', 'nope'.: y has no key 'nope'"),
        ({"n_anchors": 301}, {"seeds": SEEDS}, "between 1 and the rows of the smaller space .300., got 301"),
        ({"n_anchors": 0}, {"seeds": SEEDS}, "n_anchors must be a whole number"),
        ({}, {"seeds": SEEDS, "anchors": [1, 1]}, "anchors: '1' is given twice"),
        ({}, {"seeds": SEEDS, "anchors": [1, 900]}, "anchors, number 2: 900 is no row of x; rows are 0 to 299"),
        ({}, {"seeds": SEEDS, "anchors": ["z"]}, "anchors, number 1: x has no key 'z'"),
        ({}, {"seeds": SEEDS, "anchors": []}, "anchors: none are given"),
        ({"method": "magic"}, {"seeds": SEEDS}, "no such method: 'magic'"),
        ({"init": "random"}, {"seeds": SEEDS}, "no such method: 'alternate' with init='random'"),
        ({"anchor_choice": "best"}, {"seeds": SEEDS}, "anchor_choice must be"),
        ({"device": "tpu?"}, {"seeds": SEEDS}, "device must be"),
        ({"device": "meta"}, {"seeds": SEEDS}, "device must be"),
        ({"memory_budget": 10}, {"seeds": SEEDS}, "memory_budget of 10 bytes is too small"),
    ],
)
def test_bad_arguments_get_a_clear_error(rotated, options, arguments, message):
    x, y = rotated()
    with pytest.raises(InputError, match=message):
        AnchorDiscovery(**({"n_anchors": 20, "device": "cpu"} | options)).fit(x, y, **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_said(rotated):
    with pytest.raises(InputError, match="sees no CUDA GPU"):
        AnchorDiscovery(n_anchors=20, device="cuda").fit(*rotated(), SEEDS)


def test_bad_vectors_are_named(rotated):
    x, y = rotated()
    y[5] = np.nan
    with pytest.raises(InputError, match="y: the vector of key '5' .row 5. has NaN"):
        AnchorDiscovery(n_anchors=20).fit(x, y, SEEDS)


def test_spaces_without_directions_are_refused(rotated):
    x, y = rotated()
    for bad, message in ((np.ones_like(y), "y: all rows point the same way"), (y[:, :1], "y: at least 2 dimensions")):
        with pytest.raises(InputError, match=message):
            AnchorDiscovery(n_anchors=20, device="cpu").fit(x, bad, SEEDS)


def test_schedules_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="finish_rounds must be at least 1"):
        Schedule(finish_rounds=0)
    with pytest.raises(InputError, match="epsilon_start >= epsilon_end"):
        Schedule(epsilon_end=0.5)
    with pytest.raises(InputError, match="whitening must be between 0 and 1"):
        Schedule(whitening=2)


@pytest.mark.thorough
def test_keys_and_rows_in_other_clothes(words, word_seeds, fitted):
    for seeds in (np.array(word_seeds), torch.from_numpy(fitted.seeds_)):
        again = AnchorDiscovery(n_anchors=100, device="cpu").fit(*words, seeds)
        assert again.seed_keys_ == fitted.seed_keys_
    with pytest.raises(InputError, match="number 2 is .'music',."):
        AnchorDiscovery().fit(*words, [("water", "water"), ("music",)])


@pytest.mark.thorough
def test_snapped_anchors_are_distinct_even_when_seeds_take_most_rows(rotated):
    x, y = rotated(n=60)
    seeds = [[row, row] for row in range(4)]
    discovery = AnchorDiscovery(device="cpu").fit(x, y[:5], seeds, anchors=[0, 10, 20, 30, 40])
    assert sorted(discovery.anchors_y_.tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("center", [True, False])
def test_loading_normalises_and_turns_block_by_block(monkeypatch, words, center):
    from kedge.estimators import devices

    monkeypatch.setattr(devices, "_NUMBERS", 70_000)  # 700 rows
    vectors = torch.from_numpy(words[1].vectors.copy())
    loaded = devices.load_space(words[1].vectors, torch.device("cpu"), "y", center=center)
    middle = center_of(vectors) if center else None
    if center:
        torch.testing.assert_close(loaded.center, middle)
    expected = normalise(vectors, middle)
    torch.testing.assert_close(loaded.rows, expected @ loaded.axes, rtol=0, atol=1e-5)
    torch.testing.assert_close(loaded.axes.T @ loaded.axes, torch.eye(100), rtol=0, atol=1e-5)  # nothing is lost
    moment = (loaded.rows.T @ loaded.rows).double() / len(loaded.rows)
    torch.testing.assert_close(moment, loaded.spectrum.variances.diag(), rtol=0, atol=1e-6)
    assert (loaded.spectrum.variances.diff() <= 0).all()
    assert loaded.mean_norm == pytest.approx(float(vectors.norm(dim=1).mean()))


def test_of_many_dimensions_the_leading_axes_are_looked_at(monkeypatch, words):
    from kedge.estimators import devices

    monkeypatch.setattr(devices, "_NUMBERS", 70_000)  # 700 rows
    vectors = torch.from_numpy(words[1].vectors.copy())
    loaded = devices.load_space(words[1].vectors, torch.device("cpu"), "y", center=True, max_axes=40)
    rows = normalise(vectors, loaded.center)
    torch.testing.assert_close(loaded.rows, rows @ loaded.axes, rtol=0, atol=1e-5)
    kept, best = (float((rows @ axes).square().sum()) for axes in (loaded.axes, principal_axes(rows, 40)))
    assert 0.995 * best < kept <= best * 1.0001
    # The center in these axes, and how much of it lies outside.
    inside = loaded.center_in_axes
    assert inside.shape == (41,)
    assert float(inside.norm()) == pytest.approx(float(loaded.center.norm()), rel=1e-4)
    torch.testing.assert_close(inside[:40], loaded.center @ loaded.axes)


def test_spaces_of_many_dimensions_are_aligned_in_their_leading_axes(monkeypatch, rotated):
    """As they are beyond 512; results are in the spaces' own coordinates."""
    from kedge.estimators import devices

    x, y = rotated(n=400, dim=16, noise=0.05)
    wide = np.random.default_rng(1).standard_normal((16, 60)).astype(np.float32)
    y = y @ wide + 0.01 * np.random.default_rng(2).standard_normal((400, 60)).astype(np.float32)
    monkeypatch.setattr(devices, "MAX_AXES", 24)
    discovery = AnchorDiscovery(n_anchors=30, device="cpu").fit(x, y, [(row, row) for row in range(20)])
    assert (discovery.match_ == np.arange(400)).mean() > 0.99
    assert (discovery.map_.dims, discovery.map_back_.dims) == ((16, 60), (60, 16))
    assert discovery.y_.anchors["free"].shape == discovery.y_.anchors["snapped"].shape == (30, 60)
    assert discovery.model_.directions_y.shape[0] == discovery.y_.directions.shape[0] == 60
    translated = discovery.translate(x)
    cosines = translated @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
    assert (cosines.argmax(axis=1) == np.arange(400)).mean() > 0.95
    shared = discovery.x_.shared(x) @ discovery.y_.shared(y).T
    assert (shared.argmax(axis=1) == np.arange(400)).mean() > 0.99
    discovery.require_spaces(x, y)


@pytest.mark.thorough
def test_anchors_do_not_take_the_rows_of_seeds(words, word_seeds):
    others = [key for key in words[0].keys if (key, key) not in word_seeds][:300]
    discovery = AnchorDiscovery(device="cpu").fit(*words, word_seeds, anchors=others)
    assert not {right for _, right in discovery.anchor_keys_} & {right for _, right in word_seeds}


@pytest.mark.parametrize("n", [3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (5, 30))])
def test_tiny_spaces_do_not_crash_and_are_not_called_aligned(rotated, n):
    x, y = rotated(n=n, noise=1.0)
    discovery = AnchorDiscovery(n_anchors=2, device="cpu").fit(x, y, [[0, 0], [1, 1], [2, 2]])
    assert discovery.health_.map.verdict == "uncertain"
    assert "Nothing can be said" in discovery.health_.map.reason
    assert discovery.confidence_.max() == 0
    assert np.isfinite(discovery.y_.anchors["free"]).all()
    assert np.isfinite(discovery.confidence_).all()


def test_public_names_exist():
    for name in kedge.__all__:
        assert getattr(kedge, name) is not None
    assert set(dir(kedge)) == set(kedge.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kedge.nothing  # noqa: B018


def test_duplicate_rows_are_harmless(rotated):
    x, y = rotated(n=200)
    x[150:], y[150:] = x[149], y[149]
    space = Embeddings([f"k{row}" for row in range(200)], x)
    discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(space, y, SEEDS)
    assert len(set(discovery.anchors_y_.tolist())) == 20
    assert np.isfinite(discovery.confidence_).all()


@pytest.mark.thorough
def test_rows_that_all_come_twice_have_no_match_and_no_nonsense(rotated):
    x, y = rotated(n=200)
    for seeds in ([], SEEDS):
        discovery = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, np.repeat(y[:100], 2, axis=0), seeds)
        nearest = (discovery.translate(x[100:]) @ (y[100:] / np.linalg.norm(y[100:], axis=1, keepdims=True)).T).argmax(
            1
        )
        right = float((nearest == np.arange(100)).mean())  # of rows that Y has not seen
        assert (discovery.health_.map.verdict == "ok") == (right > 0.9)
        assert discovery.health_.pairs.verdict == "failed"
        assert len(discovery.pairs_) == 0
        assert np.isfinite(discovery.map_.matrix).all()
        assert np.isfinite(discovery.y_.anchors["free"]).all()


@pytest.mark.thorough
def test_spaces_in_which_all_rows_look_alike_are_not_aligned():
    for rows in (np.eye(80), np.eye(2)):
        discovery = AnchorDiscovery(n_anchors=2, center=False, device="cpu").fit(rows, rows[::-1].copy())
        assert discovery.health_.map.verdict != "ok"

"""What a run learns from its pairs: known ones as given, a map that searches, one story in pairs and search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, Embeddings, InputError, load
from kedge.geometry import moments_of, nearest_rotation, ridge, unit
from kedge.models.maps.families import FAMILIES
from kedge.models.translator import unit_rows
from kedge.tasks import search


@pytest.fixture(scope="module")
def half_known(words):
    """A third of 2,000 words known; and which."""
    keys = np.random.default_rng(1).choice(words[0].keys, 700, replace=False).tolist()
    return AnchorDiscovery(n_anchors=50, device="cpu").fit(*words, [(key, key) for key in keys]), keys


@pytest.fixture(scope="module")
def whitened(words, word_seeds):
    return AnchorDiscovery(n_anchors=50, device="cpu", whiten=0.5).fit(*words, word_seeds)


def test_known_pairs_are_listed_as_given_and_nothing_contradicts_them(half_known):
    discovery, keys = half_known
    trusted = {pair for pair, bad in zip(discovery.seed_keys_, discovery.seed_is_suspect_, strict=True) if not bad}
    assert len(trusted) >= len(keys) - 2  # hardly a true seed is called wrong
    linked = discovery.linked_pairs()
    assert len(set(linked.keys) & trusted) >= len(keys) - 4  # hardly one is contradicted
    trusted &= set(linked.keys)
    lefts, rights = {left for left, _ in trusted}, {right for _, right in trusted}
    for left, right in discovery.pair_keys_:  # seeds are not among them
        assert left not in lefts
        assert right not in rights
    agreed = discovery.seeds_[discovery.seed_opinion_ == "agrees"]
    assert (discovery.match_[agreed[:, 0]] == agreed[:, 1]).all()
    assert np.median(discovery.confidence_[agreed[:, 0]]) == 1


def test_where_enough_is_known_nothing_is_annealed(half_known, fitted):
    discovery, _ = half_known
    assert "anneal" not in {step.stage for step in discovery.history_}
    assert "no annealing" in discovery.history_[-1].attempt
    assert "anneal" in {step.stage for step in fitted.history_}


@pytest.mark.thorough
def test_a_known_pair_that_is_wrong_is_found_out_among_many(words):
    keys = np.random.default_rng(1).choice(words[0].keys, 700, replace=False).tolist()
    pairs = [(keys[0], keys[1]), (keys[1], keys[0]), *((key, key) for key in keys[2:])]
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(*words, pairs)
    assert discovery.seed_is_suspect_[:2].all()
    assert discovery.seed_is_suspect_.sum() <= 4
    assert not set(pairs[:2]) & set(discovery.pair_keys_)


@pytest.mark.thorough
@pytest.mark.parametrize("known", [60, 400])
def test_the_map_is_never_worse_than_what_the_known_pairs_alone_give(words, known):
    """Nothing but the known pairs is in both spaces: whatever else is found is false, and must do no harm."""
    x, y = words
    order = np.random.default_rng(2).permutation(x.keys).tolist()
    both, only_x, only_y = order[:known], order[known : known + 400], order[known + 400 : known + 800]
    asked = order[known + 800 : known + 1200]
    left, right = x.take(x.rows(both + only_x)), y.take(y.rows(both + only_y + asked))
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(left, right, [(key, key) for key in both])
    queries, index = x.vectors[x.rows(asked)], unit(torch.from_numpy(right.vectors.copy()))
    own = torch.from_numpy(right.rows(asked))
    moments = moments_of(
        torch.from_numpy(discovery.x_.normalise(left.vectors[:known])),
        torch.from_numpy(discovery.y_.normalise(right.vectors[:known])),
    )
    normalised, rows = discovery.x_.normalise(queries), torch.from_numpy(discovery.y_.normalise(right))

    def first(translated, among):
        return float(((unit(translated) @ among.T).argmax(dim=1) == own).double().mean())

    baselines = [nearest_rotation(moments.cross), *(ridge(moments.source, moments.cross, s) for s in (0, 0.1, 1))]
    best = max(first(torch.from_numpy(normalised) @ matrix.float(), rows) for matrix in baselines)
    ours = first(torch.from_numpy(discovery.translate(queries)), index)
    assert ours >= best - 0.03  # 400 queries: a standard error is 0.02


@pytest.mark.thorough
def test_pairs_and_search_tell_one_story_where_rows_are_few(words):
    """500 words in 300 dimensions: a map that has seen the pairs and pairs that have not used to disagree."""
    x, y = words
    keys = np.random.default_rng(0).permutation(x.keys)[:500].tolist()
    few = x.take(x.rows(keys))
    discovery = AnchorDiscovery(n_anchors=50, device="cpu").fit(few, y, [(key, key) for key in keys[:100]])
    surest = [pair for pair in discovery.pair_keys_ if pair[0] not in set(keys[:100])][:200]
    found = search(discovery, few, y, [left for left, _ in surest], k=1)
    assert np.mean([left == right for left, right in surest]) > 0.97
    assert np.mean([found[left][0].key == right for left, right in surest]) > 0.97
    mapped = discovery.map_(discovery.x_.normalise(few.take(few.rows([left for left, _ in surest]))))
    nearest = (unit_rows(mapped) @ discovery.y_.normalise(y).T).argmax(axis=1)
    assert np.mean([y.keys[row] == right for row, (_, right) in zip(nearest, surest, strict=True)]) > 0.9


def test_shared_coordinates_find_more_than_the_map(fitted, words):
    x, y = words
    truth = y.rows(x.keys)
    by_shared = (fitted.x_.shared(x) @ fitted.y_.shared(y).T).argmax(axis=1)
    by_map = (unit_rows(fitted.map_(fitted.x_.normalise(x))) @ fitted.y_.normalise(y).T).argmax(axis=1)
    assert np.mean(by_shared == truth) >= np.mean(by_map == truth)
    assert np.mean(by_shared == truth) > 0.98
    assert fitted.model_.information > 10


def test_translating_back_and_at_full_length(fitted, words):
    x, y = words
    back = fitted.translate(y, back=True)
    own = x.vectors[x.rows(y.keys)]
    nearest = (back @ (x.vectors / np.linalg.norm(x.vectors, axis=1, keepdims=True)).T).argmax(axis=1)
    assert np.mean(nearest == x.rows(y.keys)) > 0.9
    assert back.shape == own.shape
    raw = fitted.translate(x, scale="raw")
    np.testing.assert_allclose(np.linalg.norm(raw, axis=1), np.linalg.norm(y.vectors, axis=1).mean(), rtol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(fitted.translate(x), axis=1), 1, rtol=1e-5)
    with pytest.raises(InputError, match="scale must be one of unit, raw, got 'long'"):
        fitted.translate(x, scale="long")


def test_the_map_says_how_well_it_searches(fitted):
    for scores in fitted.map_scores_.values():
        assert scores["kind"]
        assert scores["family"] in FAMILIES
        assert 0.8 < scores["mrr"] <= 1
        assert 0.2 < scores["overlap"] <= 1


@pytest.mark.thorough
def test_whitening_is_stored_and_applied_to_new_vectors(whitened, words, tmp_path):
    x, y = words
    assert whitened.whitening_ == 0.5
    assert whitened.health_.map.verdict == "ok"
    relative_x, relative_y = whitened.x_.relative(x.vectors[:5]), whitened.y_.relative(y.vectors[:5])
    spread = np.linalg.eigvalsh(np.cov(whitened.x_.whiten(x).T))
    plain = np.linalg.eigvalsh(np.cov(whitened.x_.normalise(x).T))
    assert spread[-1] / np.median(spread) < 0.5 * plain[-1] / np.median(plain)
    whitened.require_spaces(x, y)
    whitened.save(tmp_path / "run")
    again = load(tmp_path / "run")
    np.testing.assert_array_equal(again.x_.relative(x.vectors[:5]), relative_x)
    np.testing.assert_array_equal(again.y_.relative(y.vectors[:5]), relative_y)
    np.testing.assert_array_equal(again.x_.shared(x.vectors[:5]), whitened.x_.shared(x.vectors[:5]))
    np.testing.assert_array_equal(
        again.translate(y.vectors[:5], back=True), whitened.translate(y.vectors[:5], back=True)
    )
    assert again.whitening_ == 0.5
    assert again.map_scores_ == whitened.map_scores_


@pytest.mark.parametrize("strength", [-0.1, 1.5, "half", None])
def test_whitening_has_limits(rotated, strength):
    with pytest.raises(InputError, match="whiten must be 'auto' or a number from 0 to 1"):
        AnchorDiscovery(n_anchors=20, whiten=strength, device="cpu").fit(*rotated(), [[0, 0]])


@pytest.mark.slow
def test_images_are_read_far_better_than_by_cosine(data_folder):
    """3,000 real images through two ViTs: a rotation and cosine used to find 4 of 10."""
    spaces = []
    for name in ("a", "b"):
        stored = np.load(data_folder / f"images/cifar10-vit-{name}-128.npz")
        spaces.append(Embeddings(stored["keys"][:3000].tolist(), stored["vectors"][:3000].astype(np.float32)))
    seeds = [[row, row] for row in range(0, 3000, 200)]
    discovery = AnchorDiscovery(device="cpu").fit(*spaces, seeds)
    assert np.mean(discovery.match_ == np.arange(3000)) > 0.75

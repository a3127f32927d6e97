"""`CommonSpace`: fitting, using, growing, keeping, and what is refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import kedge
from kedge import CommonSpace, Embeddings, InputError
from kedge.many.seed_tuples import as_seed_tuples, read_seed_tuples
from kedge.spaces.pairs import write_table

NAMES = ("a", "b", "c")
DIM = 24


def truth(spaces, first, second):
    return np.array([spaces[second].row_of.get(key, -1) for key in spaces[first].keys])


def test_all_pairs_are_ok_and_the_loop_closes(common):
    health = common.health_
    assert health.map.verdict == health.pairs.verdict == "ok"
    assert [one.map.verdict for one in health.each] == ["ok"] * 3
    assert health.left_out == {}
    (loop,) = health.loops
    assert loop.closed
    assert loop.back > 0.7
    assert loop.kept > 0.95
    assert loop.chance < 0.1


def test_groups_hold_the_rows_of_one_item(common, three_spaces):
    for first, second in combinations(NAMES, 2):
        expected = truth(three_spaces, first, second)
        assert (common.match(first, second) == expected)[expected >= 0].mean() > 0.95
        assert (common.matches_[first, second] == expected)[expected >= 0].mean() > 0.95
    for keys in common.group_keys_[:50]:
        assert len({key for key in keys if key is not None}) == 1
    for place in range(3):
        there = common.groups_[:, place][common.groups_[:, place] >= 0]
        assert sorted(there) == list(range(common.members_[NAMES[place]].rows))
    sizes = (common.groups_ >= 0).sum(axis=1)
    assert (np.diff(sizes) <= 0).all()
    frame = common.groups_frame()
    assert list(frame.columns) == ["probability", "found", *NAMES]
    assert len(frame) == (sizes > 1).sum()


def test_any_space_is_translated_into_any_other(common, three_spaces):
    for first, second in (("a", "c"), ("c", "a"), ("b", "c")):
        expected = truth(three_spaces, first, second)
        there = common.translate(three_spaces[first], source=first, target=second)
        assert np.allclose(np.linalg.norm(there, axis=1), 1, atol=1e-4)
        index = three_spaces[second].vectors / np.linalg.norm(three_spaces[second].vectors, axis=1, keepdims=True)
        assert ((there @ index.T).argmax(axis=1) == expected)[expected >= 0].mean() > 0.95
    one = common.translate(three_spaces["a"].vectors[0], source="a", target="b", scale="raw")
    assert one.shape == (DIM,)
    assert np.linalg.norm(one) == pytest.approx(common.members_["b"].mean_norm, rel=1e-4)


def test_one_index_answers_queries_of_any_space(common, three_spaces):
    index = np.concatenate([common.project(three_spaces[name], space=name) for name in ("a", "b")])
    keys = np.array([*three_spaces["a"].keys, *three_spaces["b"].keys])
    queries = common.project(three_spaces["c"], space="c", query=True)
    in_both = [
        row
        for row, key in enumerate(three_spaces["c"].keys)
        if key in three_spaces["a"].row_of and key in three_spaces["b"].row_of
    ]
    first, second = np.argsort(-(queries @ index.T), axis=1)[:, :2].T
    own = np.array(three_spaces["c"].keys)
    assert (keys[first] == own)[in_both].mean() > 0.9
    assert (keys[second] == own)[in_both].mean() > 0.7  # of the other encoder, with a comparable score


def test_common_coordinates_are_nearly_the_likelihood_of_the_two(common, three_spaces):
    pair = common.between("a", "b")
    exact = pair.x_.shared(three_spaces["a"]) @ pair.y_.shared(three_spaces["b"]).T
    found = common.project(three_spaces["a"], space="a", query=True) @ common.project(three_spaces["b"], space="b").T
    assert np.corrcoef(exact.ravel(), found.ravel())[0, 1] > 0.99


def test_a_run_is_read_back_as_it_was(common, three_spaces, tmp_path):
    common.save(tmp_path / "run")
    same = CommonSpace.load(tmp_path / "run")
    assert same.health_ == common.health_
    assert same.group_keys_ == common.group_keys_
    assert np.array_equal(same.groups_, common.groups_)
    assert np.array_equal(same.project(three_spaces["b"], space="b"), common.project(three_spaces["b"], space="b"))
    first = common.translate(three_spaces["a"], source="a", target="c")
    assert np.array_equal(same.translate(three_spaces["a"], source="a", target="c"), first)
    with pytest.raises(InputError, match="already holds a run"):
        common.save(tmp_path / "run")
    same.save(tmp_path / "run", overwrite=True)
    with pytest.raises(InputError, match=r"holds a common space.*kedge\.CommonSpace\.load"):
        kedge.load(tmp_path / "run")


@pytest.mark.parametrize("name", ["groups.tsv", "unmatched.tsv", "common.safetensors"])
def test_a_run_that_has_changed_is_refused(common, tmp_path, name):
    common.save(tmp_path / "run")
    path = tmp_path / "run" / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=f"{name}: has changed"):
        CommonSpace.load(tmp_path / "run")


def test_a_space_joins_without_moving_the_others(common, three_spaces, tuples):
    smaller = common.without("c")
    assert list(smaller.members_) == ["a", "b"]
    assert smaller.groups_.shape[1] == 2
    grown = smaller.add(three_spaces, tuples)
    assert list(grown.members_) == ["a", "b", "c"]
    for name in ("a", "b"):
        before, after = (one.project(three_spaces[name], space=name) for one in (common, grown))
        assert np.array_equal(before, after)
    expected = truth(three_spaces, "a", "c")
    assert (grown.match("a", "c") == expected)[expected >= 0].mean() > 0.95
    there = grown.translate(three_spaces["c"], source="c", target="a")
    index = three_spaces["a"].vectors / np.linalg.norm(three_spaces["a"].vectors, axis=1, keepdims=True)
    back = truth(three_spaces, "c", "a")
    assert ((there @ index.T).argmax(axis=1) == back)[back >= 0].mean() > 0.95
    queries, index = (
        grown.project(three_spaces["c"], space="c", query=True),
        grown.project(three_spaces["b"], space="b"),
    )
    back = truth(three_spaces, "c", "b")
    assert ((queries @ index.T).argmax(axis=1) == back)[back >= 0].mean() > 0.9


def test_other_vectors_are_no_member(common, three_spaces):
    with pytest.raises(InputError, match="is not what 'a' was"):
        common.without("c").add({"a": three_spaces["b"], "c": three_spaces["c"]})
    with pytest.raises(InputError, match="at least one member"):
        common.add({"x": three_spaces["a"], "y": three_spaces["b"]})


@pytest.mark.thorough
def test_noise_is_named_and_left_out(three_spaces, tuples, common):
    chance = np.random.default_rng(1)
    noise = Embeddings(
        three_spaces["a"].keys, chance.standard_normal((len(three_spaces["a"]), 20)).astype(np.float32), "noise"
    )
    found = CommonSpace(device="cpu").fit({"a": three_spaces["a"], "b": three_spaces["b"], "noise": noise}, tuples)
    assert list(found.health_.left_out) == ["noise"]
    assert list(found.members_) == ["a", "b"]
    assert "noise is left out" in found.health_.map.reason
    expected = truth(three_spaces, "a", "b")
    assert (found.match("a", "b") == expected)[expected >= 0].mean() > 0.95
    with pytest.raises(InputError, match="it was left out"):
        found.translate(noise, source="noise", target="a")


@pytest.mark.thorough
def test_where_nothing_fits_nothing_is_united(tmp_path):
    chance = np.random.default_rng(2)
    noise = {name: chance.standard_normal((120, 8)).astype(np.float32) for name in ("x", "y")}
    found = CommonSpace(device="cpu").fit(noise)
    assert found.health_.map.verdict == "failed"
    assert set(found.health_.left_out) == {"x", "y"}
    found.save(tmp_path / "run")
    assert CommonSpace.load(tmp_path / "run").members_ == {}


def test_seeds_in_all_forms(three_spaces):
    pandas = pytest.importorskip("pandas")
    expected = [
        [three_spaces[name].row_of["i1"] for name in NAMES],
        [three_spaces["a"].row_of["i2"], three_spaces["b"].row_of["i2"], -1],
    ]
    for given in (
        [("i1", "i1", "i1"), ("i2", "i2", None)],
        [{"a": "i1", "b": "i1", "c": "i1"}, {"a": "i2", "b": "i2"}],
        pandas.DataFrame({"a": ["i1", "i2"], "b": ["i1", "i2"], "c": ["i1", None]}),
        {("a", "b"): [("i1", "i1"), ("i2", "i2")], ("b", "c"): [("i1", "i1")]},
        expected,
        [tuple(np.array(item)) for item in expected],
        pandas.DataFrame(expected, columns=NAMES).replace(-1, None).astype(float),
    ):
        found = as_seed_tuples(given, three_spaces)
        assert sorted(found.tolist()) == sorted(expected)
    assert as_seed_tuples(None, three_spaces).shape == (0, 3)


def test_seeds_that_make_no_sense_are_refused(three_spaces, tmp_path):
    for given, message in (
        ([("i1", "i1")], "needs 3 keys or rows"),
        ([("i1", "nobody", None)], "b has no key 'nobody'"),
        ({("a", "x"): []}, "names of two of the spaces"),
        ([("i1", "i1", None), ("i2", None, "i2"), (None, "i1", "i2")], "contradict each other"),
        ("i1", "must be tuples"),
    ):
        with pytest.raises(InputError, match=message):
            as_seed_tuples(given, three_spaces)
    write_table(tmp_path / "s.tsv", ("a", "z"), [("i1", "i1")])
    with pytest.raises(InputError, match="must name at least two of the spaces"):
        read_seed_tuples(tmp_path / "s.tsv", three_spaces)


def test_what_is_no_set_of_spaces_is_refused(three_spaces, common):
    for given in ([three_spaces["a"]], {"a": three_spaces["a"]}, {1: three_spaces["a"], 2: three_spaces["b"]}):
        with pytest.raises(InputError, match="must be a dict from names"):
            CommonSpace().fit(given)
    with pytest.raises(InputError, match="no space 'd'"):
        common.translate(three_spaces["a"], source="a", target="d")
    with pytest.raises(InputError, match="both 'a'"):
        common.translator(source="a", target="a")
    with pytest.raises(InputError, match="has 5 dimensions"):
        common.project(np.ones((2, 5)), space="a")
    with pytest.raises(kedge.KedgeError, match="not fitted"):
        CommonSpace().project(np.ones((2, 5)), space="a")

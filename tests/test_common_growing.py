"""Spaces that join and leave: their seeds, their loops, their answers, and the groups that are left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kedge import Embeddings
from kedge.many import joining
from kedge.many.common_health import CommonHealth


@pytest.fixture(scope="module")
def fourth(three_spaces) -> Embeddings:
    """One more space of the same items."""
    chance = np.random.default_rng(7)
    turned = three_spaces["a"].vectors @ np.linalg.qr(chance.standard_normal((24, 24)))[0]
    order = chance.permutation(len(turned))[:250]
    noisy = turned[order] + 0.05 * chance.standard_normal((250, 24))
    return Embeddings([three_spaces["a"].keys[row] for row in order], noisy.astype(np.float32), "d")


@pytest.fixture(scope="module")
def shared(three_spaces, fourth) -> list[tuple[str, str]]:
    """The items of all four spaces, as pairs of keys."""
    return [(key, key) for key in fourth.keys if all(key in space.row_of for space in three_spaces.values())]


def test_a_row_that_is_left_alone_is_surely_one_item(common):
    left = common.without("b")
    sizes = (left.groups_ >= 0).sum(axis=1)
    among = (common.groups_ >= 0).sum(axis=1)
    alone = ((common.groups_[:, [0, 2]] >= 0).sum(axis=1) == 1) & (among == 2)
    assert (common.group_probability_[alone] < 1).any()
    assert (left.group_probability_[sizes == 1] == 1).all()
    assert left.group_probability_.dtype == common.group_probability_.dtype
    pairs = np.sort(left.group_probability_[sizes == 2])
    whole = (common.groups_[:, [0, 2]] >= 0).all(axis=1)
    assert np.array_equal(pairs, np.sort(common.group_probability_[whole]))  # of two rows it stays


def test_a_space_that_joins_at_the_second_try_keeps_no_failed_pairs(common, three_spaces, tuples):
    first = common.without("c")
    failed = [
        replace(pair, map=replace(pair.map, verdict="failed", score=0.0), pairs=replace(pair.pairs, verdict="failed"))
        for pair in common.health_.each
        if pair.second == "c"
    ]
    broken = [replace(loop, closed=False) for loop in common.health_.loops]
    first.health_ = CommonHealth.from_parts([*first.health_.each, *failed], broken, {"c": "no map was ok"})
    grown = first.add(three_spaces, tuples)
    named = [(one.first, one.second) for one in grown.health_.each]
    assert sorted(named) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert grown.health_.map.verdict == "ok"
    assert grown.health_.map.reason == "3 of 3 pairs of spaces are ok."
    assert grown.health_.left_out == {}
    (loop,) = grown.health_.loops
    assert loop.spaces == ("a", "b", "c")
    assert loop.closed  # from a to b by their group, on to c, and back
    assert loop.kept > 0.95
    assert all(one.closure > 0.6 for one in grown.health_.each if one.second == "c")


def test_seeds_between_two_new_spaces_count(common, three_spaces, fourth, shared, monkeypatch):
    asked = []
    align = joining.align_alone
    monkeypatch.setattr(
        joining, "align_alone", lambda *given, **more: asked.append(len(given[2])) or align(*given, **more)
    )
    given = {"d": fourth, "a": three_spaces["a"], "c": three_spaces["c"]}
    seeds = {("a", "c"): shared[:15], ("c", "d"): shared[15:30], ("a", "d"): shared[30:35]}
    grown = common.without("c").add(given, seeds)
    assert list(grown.members_) == ["a", "b", "c", "d"]  # c, which has more seeds with a member, joins first
    assert asked == [15, 15, 5]  # c with a; d with c, and then with a
    named = [(one.first, one.second) for one in grown.health_.each]
    assert named == [("a", "b"), ("a", "c"), ("c", "d"), ("a", "d")]
    assert [loop.spaces for loop in grown.health_.loops] == [("a", "c", "d")]
    assert grown.health_.loops[0].closed
    truth = np.array([fourth.row_of.get(key, -1) for key in three_spaces["c"].keys])
    assert (grown.match("c", "d") == truth)[truth >= 0].mean() > 0.9


def test_the_pair_of_a_new_space_that_breaks_its_loops_is_named(common, three_spaces, fourth, shared, monkeypatch):
    align = joining.align_alone

    def astray(space, partner, *given, **more):
        found = align(space, partner, *given, **more)
        if len(asked) == 2:  # with the third partner it leads elsewhere, and looks right
            shift = torch.roll(torch.arange(len(partner.rows)), 1)
            back = torch.full_like(found.partner_back, -1)
            pairs = torch.stack([found.pairs[:, 0], shift[found.pairs[:, 1]]], dim=1)
            back[pairs[:, 1]] = pairs[:, 0]
            found = replace(found, partner=shift[found.partner], partner_back=back, pairs=pairs)
        asked.append(found)
        return found

    asked = []
    monkeypatch.setattr(joining, "align_alone", astray)
    seeds = {(name, "d"): shared[:15] for name in three_spaces}
    grown = common.add(three_spaces | {"d": fourth}, seeds)
    assert [found.ok for found in asked] == [True] * 3
    verdicts = {one.first: one.map for one in grown.health_.each if one.second == "d"}
    assert [verdicts[name].verdict for name in "abc"] == ["ok", "ok", "failed"]
    assert "no loop through it closes" in verdicts["c"].reason
    closed = {loop.spaces: loop.closed for loop in grown.health_.loops if "d" in loop.spaces}
    assert closed == {("a", "b", "d"): True, ("a", "c", "d"): False, ("b", "c", "d"): False}
    assert grown.health_.map.verdict == "uncertain"
    assert "Do not rely on c and d" in grown.health_.map.advice
    there = grown.translate(fourth, source="d", target="c")  # by what a and b say
    index = three_spaces["c"].vectors / np.linalg.norm(three_spaces["c"].vectors, axis=1, keepdims=True)
    truth = np.array([three_spaces["c"].row_of.get(key, -1) for key in fourth.keys])
    assert ((there @ index.T).argmax(axis=1) == truth)[truth >= 0].mean() > 0.9

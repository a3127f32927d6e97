"""`min_confidence` decides which groups are listed, and nothing else; what a fit does where groups are few."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from kedge import CommonSpace
from kedge.estimators.devices import load_space
from kedge.many import uniting
from kedge.many.numerics.grouping import Groups
from kedge.many.pairwise import align_alone
from kedge.solving.steps import Log

NAMES = ("a", "b", "c")
LEARNED = ("center", "into", "back", "directions", "loadings", "usual")


def same_maps(one: CommonSpace, other: CommonSpace) -> bool:
    return list(one.members_) == list(other.members_) and all(
        np.array_equal(getattr(one.members_[name], part), getattr(other.members_[name], part))
        for name in one.members_
        for part in LEARNED
    )


def groups_of_many(common: CommonSpace) -> set[tuple[str, ...]]:
    return {keys for keys in common.group_keys_ if sum(key is not None for key in keys) > 1}


def test_groups_that_were_given_are_not_found(common, tuples):
    found = common.groups_found()
    given = {keys for keys in common.group_keys_ if keys in set(tuples)}
    assert len(given) == len(tuples)
    listed = {keys for keys, new in zip(common.group_keys_, found, strict=True) if new}
    assert listed == groups_of_many(common) - given
    assert common.groups_frame()["found"].sum() == len(listed)


def test_a_group_is_found_unless_known_tuples_connect_all_of_it(common):
    known = copy(common)
    known.groups_ = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, -1], [4, -1, -1], [5, 5, 5]])
    known.seeds_ = np.array([[0, 0, -1], [-1, 0, 0], [1, 1, -1], [2, 2, 2], [3, -1, 5], [5, 9, 5]])
    assert known.groups_found().tolist() == [False, True, False, True, False, True]


@pytest.mark.parametrize("confidence", [0.0, 0.9, 1.0])
def test_min_confidence_changes_no_map(common, three_spaces, tuples, confidence):
    found = CommonSpace(device="cpu", min_confidence=confidence).fit(three_spaces, tuples)
    assert same_maps(found, common)
    assert found.health_ == common.health_
    listed = groups_of_many(found)
    assert {keys for keys in listed if keys[0] in {key for key, *_ in tuples}} >= set(tuples)  # seeds always are
    assert (len(listed) < len(groups_of_many(common))) == (confidence > 0.5)


@pytest.mark.thorough
def test_min_confidence_changes_no_map_without_seeds(three_spaces):
    lists = {}
    for confidence in (0.5, 0.9, 1.0):
        found = CommonSpace(device="cpu", min_confidence=confidence).fit(three_spaces)
        lists[confidence] = groups_of_many(found)
        if confidence == 0.5:
            common = found
        assert same_maps(found, common)
    assert len(lists[0.5]) > 300
    assert lists[1.0] == set()


@pytest.fixture(scope="module")
def aligned(three_spaces):
    """The three spaces on the CPU, and the outcomes of two pairs of them."""
    device = torch.device("cpu")
    spaces = [load_space(three_spaces[name].vectors, device, name, center=True, dtype=torch.float32) for name in NAMES]
    outcomes = {}
    for s, t in ((0, 1), (1, 2)):
        x, y = (three_spaces[NAMES[place]] for place in (s, t))
        seeds = torch.tensor([[x.row_of[f"i{row}"], y.row_of[f"i{row}"]] for row in range(15)])
        outcomes[s, t] = align_alone(spaces[s], spaces[t], seeds, 0, Log(None), disjoint=False)
    return spaces, outcomes


def test_outcomes_stay_where_groups_have_too_few_pairs(aligned):
    spaces, outcomes = aligned
    into, back, factors = uniting._fit_common(spaces, outcomes)
    rows = torch.cat(
        [torch.nn.functional.pad(torch.arange(len(one.rows))[:, None], (0, 2), value=-1) for one in spaces]
    )
    into_too, back_too, factors_too = uniting._fit_common(spaces, outcomes, Groups(rows, torch.ones(len(rows))))
    for before, after in zip((*into, *back), (*into_too, *back_too), strict=True):
        assert torch.equal(before, after)
    assert torch.equal(factors.loadings, factors_too.loadings)


def test_chance_is_that_of_pairs_that_hold_together(aligned, monkeypatch):
    """Two strangers that belong together are left out, and so is how much of them seems recognised by chance."""
    spaces, outcomes = aligned
    first = outcomes[0, 1]
    members = {pair: replace(one, judged=replace(one.judged, chance_rate=0.02)) for pair, one in outcomes.items()}
    strangers = {(3, 4): replace(first, judged=replace(first.judged, chance_rate=0.0))}
    rates = []
    read = uniting._read_all
    monkeypatch.setattr(uniting, "_run_alone", lambda *_, **__: members | strangers)
    monkeypatch.setattr(
        uniting, "_read_all", lambda some, factors, rate: rates.append(rate) or read(some, factors, rate)
    )
    union = uniting.unite([*spaces, *spaces[:2]], torch.empty(0, 5, dtype=torch.int64), 0, Log(None))
    assert union.members == (0, 1, 2)
    assert rates == [0.02]


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"min_confidence": 1.0}])
def test_spaces_of_which_all_rows_are_seeds_are_united(options):
    """There are no rows for soft pairs then."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((60, 40)).astype(np.float32)
    y = (x @ np.linalg.qr(chance.standard_normal((40, 40)))[0]).astype(np.float32)
    found = CommonSpace(device="cpu", **options).fit({"x": x, "y": y}, [(row, row) for row in range(60)])
    assert found.health_.map.verdict == "ok"
    assert np.array_equal(found.match("x", "y"), np.arange(60))


def test_three_rows_are_too_few_to_unite():
    chance = np.random.default_rng(0)
    spaces = {name: chance.standard_normal((3, 4)).astype(np.float32) for name in ("x", "y")}
    for seeds in (None, [(0, 0), (1, 1), (2, 2)]):
        found = CommonSpace(device="cpu").fit(spaces, seeds)
        assert found.health_.map.verdict == "failed"
        assert list(found.health_.left_out) == ["x", "y"]

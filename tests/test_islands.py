"""Islands: spaces that hold together, as one larger space, and what that finds where no pair is ok."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge import CommonSpace, Embeddings
from kedge.estimators.devices import load_space
from kedge.geometry import unit
from kedge.many.islands import pool, single
from kedge.many.numerics.grouping import Groups

ROWS, DIM = 120, 16
CPU = torch.device("cpu")


def seen_by(name, chance, items, noise):
    """What an encoder makes of the items (n, d): rotated, with noise, in an order of its own."""
    turn = np.linalg.qr(chance.standard_normal((DIM, DIM)))[0]
    order = chance.permutation(len(items))
    vectors = (items + noise * chance.standard_normal(items.shape)) @ turn
    return Embeddings([f"i{row}" for row in order], vectors[order].astype(np.float32), name)


@pytest.fixture
def two_of_one():
    """A space without its first ten rows, and the whole of it; and the maps to where both are equal, and back."""
    chance = np.random.default_rng(3)
    items = chance.standard_normal((ROWS, DIM)) * np.geomspace(1, 0.3, DIM)
    loaded = [load_space(items[place * 10 :].astype(np.float32), CPU, "x", center=False) for place in (1, 0)]
    return loaded, [space.axes.T.double() for space in loaded], [space.axes.double() for space in loaded]


def test_an_island_has_a_row_for_every_group(two_of_one):
    loaded, into, back = two_of_one
    both = torch.stack([torch.arange(ROWS - 10), torch.arange(10, ROWS)], dim=1)
    alone = torch.stack([torch.full((10,), -1), torch.arange(10)], dim=1)
    island = pool([1, 3], loaded, into, back, Groups(torch.cat([both, alone]), torch.ones(ROWS)), 4)

    assert island.members == (1, 3)
    assert island.pooled.rows.shape == (ROWS, DIM)
    assert island.groups[0].tolist() == [-1, 0, -1, 10]
    assert island.groups[-1].tolist() == [-1, -1, -1, 9]
    # The mean of two equal rows is either of them: the center is what was taken off besides.
    matrices = island.matrices(torch.eye(DIM))
    for space, rows in zip((1, 3), loaded, strict=True):
        there = unit(rows.rows @ matrices[space] - island.pooled.center @ island.pooled.axes)
        number = island.groups[:, space]
        assert torch.allclose(there[number[number >= 0]], island.pooled.rows[number >= 0], atol=1e-4)


def test_seeds_of_all_members_are_seeds_of_the_island(two_of_one):
    loaded, into, back = two_of_one
    groups = Groups(torch.tensor([[0, 10], [1, 11], [2, -1], [-1, 5]]), torch.ones(4))
    island, other = pool([0, 1], loaded, into, back, groups, 3), single(2, loaded[1], 3)
    known = torch.tensor([[0, -1, 7], [-1, 10, 8], [-1, 5, 9], [2, -1, 9], [1, 11, -1]])
    # The second tuple names a row whose group has a seed, the fourth a row of the other that has one.
    assert island.seeds_with(other, known).tolist() == [[0, 7], [3, 9]]


@pytest.mark.thorough
def test_a_space_that_no_pair_reaches_is_reached_by_two_together():
    chance = np.random.default_rng(0)
    items = chance.standard_normal((ROWS, DIM))
    spaces = {name: seen_by(name, chance, items, 0.5) for name in ("a", "b", "c")}
    seeds = [(f"i{row}", f"i{row}", None) for row in range(15)]
    seeds += [("i100", None, "i100"), ("i101", None, "i101"), (None, "i102", "i102"), (None, "i103", "i103")]
    verdicts = []
    common = CommonSpace(device="cpu", on_pair=lambda *pair: verdicts.append(pair)).fit(spaces, seeds)
    assert verdicts[:3] == [("a", "b", "ok"), ("a", "c", "failed"), ("b", "c", "failed")]
    assert list(common.members_) == ["a", "b", "c"]
    assert {pair.how for pair in common.health_.each if pair.second == "c"} == {"through neighbours"}
    index = spaces["c"].vectors / np.linalg.norm(spaces["c"].vectors, axis=1, keepdims=True)
    own = spaces["c"].rows(spaces["a"].keys)
    first = (common.translate(spaces["a"], source="a", target="c") @ index.T).argmax(axis=1)
    assert (first == own).mean() > 0.5

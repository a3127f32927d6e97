"""Loops and the graph of pairs: rows without a partner, pairs known to be right, and which pairs are run for seeds."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from kedge.many import uniting
from kedge.many.numerics.loops import Link, Loop, breaking_pairs, close_loop
from kedge.many.numerics.pair_graph import components_of, pairs_to_run, pairs_to_try
from kedge.solving.steps import Log


def test_a_row_without_a_partner_does_not_come_back():
    rows = torch.arange(100)
    nobody = torch.full((100,), -1)
    last = torch.where(rows == 99, rows, -1)  # what -1 would index if it were taken for a row
    same, none = Link(rows, rows), Link(nobody, nobody)
    for links in ((none, same, same), (same, none, same), (same, same, none)):
        loop = close_loop((0, 1, 2), *links)
        assert loop.back == loop.chance == 0
        assert loop.chains == 0
    assert close_loop((0, 1, 2), same, none, Link(last, last)).back == 0
    assert close_loop((0, 1, 2), Link(last, last), same, same).back == 0.01


def test_pairs_known_to_be_right_leave_the_others_under_suspicion():
    right, wrong = (0.9, 0.001, 500, 0.95), (0.0, 0.001, 500, 0.01)
    loops = [Loop((0, 1, 3), *right), Loop((0, 2, 3), *wrong), Loop((1, 2, 3), *wrong)]
    members = [(0, 1), (0, 2), (1, 2)]
    assert breaking_pairs(loops) == []  # it may be (2, 3), or what links 2 to the others
    assert breaking_pairs(loops, members) == [(2, 3)]
    assert breaking_pairs(loops[1:2], members) == []  # (0, 3) or (2, 3)


def test_pairs_with_seeds_are_run_where_the_ring_has_none():
    ring = pairs_to_run(10)
    assert pairs_to_run(10, [(0, 5)]) == sorted([*ring, (0, 5)])
    everything = [(s, t) for s in range(10) for t in range(s + 1, 10)]
    assert pairs_to_run(10, everything) == ring  # seeds in all spaces cost no further runs
    from_one = [(0, space) for space in range(1, 10)]
    found = pairs_to_run(10, from_one)
    assert set(found) == {*ring, *from_one}
    twice = pairs_to_run(10, [(0, 5), (0, 4), (4, 5)])
    assert (4, 5) in twice  # it is in the ring
    assert len(set(twice) - set(ring)) == 1  # that suffices to connect 0 with both
    assert len(components_of(10, found)) == 1
    assert pairs_to_run(4, [(0, 1)]) == pairs_to_run(4)


def test_pairs_that_were_not_tried_are_tried_while_none_is_ok():
    tried = pairs_to_run(6)
    assert pairs_to_try(6, [], tried) == [(0, 3)]
    assert pairs_to_try(6, [], tried, [(2, 5)]) == [(2, 5)]
    assert pairs_to_try(6, [], [*tried, (0, 3), (1, 4), (2, 5)]) == []
    ok = [(0, 1), (0, 2), (1, 2)]
    assert pairs_to_try(5, ok, ok, [(2, 4)]) == [(0, 3), (1, 3), (2, 3), (2, 4), (0, 4), (1, 4)]


def run_alone(monkeypatch, count, right, known=None):
    """The pairs that are run of so many spaces, and those that are ok, if `right` ones are."""
    monkeypatch.setattr(uniting, "align_alone", lambda s, t, *_, **__: SimpleNamespace(ok=(s, t) in right, judged=None))
    known = torch.empty(0, count, dtype=torch.int64) if known is None else known
    found = uniting._run_alone(range(count), known, 0, Log(None), None, disjoint=False)
    return list(found), [pair for pair, one in found.items() if one.ok]


def test_two_spaces_that_belong_together_are_found_among_six(monkeypatch):
    ran, ok = run_alone(monkeypatch, 6, {(1, 4)})
    assert ok == [(1, 4)]
    assert len(ran) == 12 + 2  # (0, 3) is tried before it; then all others of 1 and 4 have been tried
    known = torch.full((3, 6), -1)
    known[:, [1, 4]] = torch.arange(3)[:, None]
    ran, ok = run_alone(monkeypatch, 6, {(1, 4)}, known)
    assert ok == [(1, 4)]
    assert ran == sorted(ran)
    assert len(ran) == 13
    ran, ok = run_alone(monkeypatch, 7, set())
    assert len(ran) == 21
    assert not ok

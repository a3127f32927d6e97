"""Groups: known tuples are found as plain search finds them, and evidence is only made once it is needed."""

from __future__ import annotations

import torch

from kedge.many.numerics.common_factors import CommonFactors
from kedge.many.numerics.grouping import Groups, _known_pairs, merge_groups


def plain_group_with(groups: Groups, item: list[int]) -> int | None:
    """The reference: the first group that holds a row of a tuple."""
    for number, rows in enumerate(groups.rows.tolist()):
        if any(row >= 0 and row == wanted for row, wanted in zip(rows, item, strict=True)):
            return number
    return None


def plain_known_pairs(left: Groups, right: Groups, known: torch.Tensor) -> list[list[int]]:
    found: dict[int, int] = {}
    for item in known.tolist():
        one, other = plain_group_with(left, item), plain_group_with(right, item)
        if one is not None and other is not None and one not in found and other not in found.values():
            found[one] = other
    return [list(pair) for pair in found.items()]


def test_known_tuples_are_found_as_by_looking_at_every_group():
    chance = torch.Generator().manual_seed(0)

    def some_groups(places, count):
        rows = torch.full((count, 4), -1)
        for place in places:
            rows[:, place] = torch.randperm(count, generator=chance)
            rows[torch.rand(count, generator=chance) < 0.3, place] = -1
        return Groups(rows, torch.ones(count))

    for _ in range(20):
        left, right = some_groups((0, 2), 30), some_groups((1, 3), 25)
        known = torch.randint(-1, 32, (40, 4), generator=chance)  # some rows are in no group, some tuples contradict
        assert _known_pairs(left, right, known).tolist() == plain_known_pairs(left, right, known)
    assert _known_pairs(left, right, known[:0]).shape == (0, 2)


def test_evidence_of_a_space_is_made_when_it_is_merged(monkeypatch):
    chance = torch.Generator().manual_seed(0)
    items = torch.randn(80, 6, generator=chance)
    spaces = [items + 0.1 * torch.randn(80, 6, generator=chance) for _ in range(4)]
    factors = CommonFactors(tuple(torch.eye(6) for _ in spaces), torch.full((4, 6), 0.95, dtype=torch.float64))
    made, asked = [], CommonFactors.evidence
    merged = []
    monkeypatch.setattr(
        CommonFactors, "evidence", lambda self, space, rows: made.append(space) or asked(self, space, rows)
    )
    from kedge.many.numerics import grouping

    joined = grouping._joined

    def spy(left, right, *rest):
        merged.append((sorted(left.members | right.members), list(made)))
        return joined(left, right, *rest)

    monkeypatch.setattr(grouping, "_joined", spy)
    groups = merge_groups(
        factors, spaces, {(2, 3): 0.9, (0, 1): 0.5, (1, 2): 0.4, (0, 3): 0.1}, torch.empty(0, 4).long()
    )
    assert merged == [([2, 3], [2, 3]), ([0, 1], [2, 3, 0, 1]), ([0, 1, 2, 3], [2, 3, 0, 1])]
    assert int((groups.sizes == 4).sum()) > 60
    for place in range(4):
        there = groups.rows[:, place][groups.rows[:, place] >= 0]
        assert sorted(there.tolist()) == list(range(80))
    made.clear()
    apart = merge_groups(factors, spaces, {(2, 3): 0.9}, torch.empty(0, 4).long())
    assert made == [2, 3]  # spaces that no pair connects need none
    assert int((apart.rows[:, 0] >= 0).sum()) == 80

"""Many spaces: rotations, factors, groups, loops, and which pairs to run, against plain references."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge.geometry import Spectrum, moments_of
from kedge.many.numerics.common_factors import fit_factors, fit_loadings, rotation_factors
from kedge.many.numerics.grouping import Groups, group_coordinates, group_ratios, merge_groups
from kedge.many.numerics.loops import Link, Loop, breaking_pairs, close_loop, closures
from kedge.many.numerics.pair_graph import (
    components_of,
    main_component,
    pairs_to_run,
    pairs_to_try,
    triangles_of,
)
from kedge.many.numerics.synchronisation import leading_blocks, rotation_into, synchronise

NOBODY = torch.empty(0, 3, dtype=torch.int64)


def rotations(count, dim, seed=0):
    chance = torch.Generator().manual_seed(seed)
    return [torch.linalg.qr(torch.randn(dim, dim, generator=chance, dtype=torch.float64)).Q for _ in range(count)]


def noisy_crosses(turns, noise, pairs, seed=1):
    chance = torch.Generator().manual_seed(seed)
    dim = len(turns[0])
    return {
        (s, t): turns[s] @ turns[t].T + noise * torch.randn(dim, dim, generator=chance, dtype=torch.float64)
        for s, t in pairs
    }


def test_exact_rotations_are_found_again_also_along_a_chain():
    turns = rotations(4, 6)
    found = synchronise(noisy_crosses(turns, 0.0, [(0, 1), (1, 2), (2, 3)]), [6] * 4)
    for s, t in ((0, 1), (0, 2), (0, 3), (1, 3)):
        assert torch.allclose(found[s] @ found[t].T, turns[s] @ turns[t].T, atol=1e-6)


def test_synchronised_rotations_are_better_than_pair_by_pair():
    turns = rotations(5, 8)
    pairs = pairs_to_run(5)
    crosses = noisy_crosses(turns, 0.4, pairs)
    found = synchronise(crosses, [8] * 5)
    alone, together = 0.0, 0.0
    for s, t in pairs:
        truth = turns[s] @ turns[t].T
        left, _, right = torch.linalg.svd(crosses[s, t])
        alone += float((left @ right - truth).norm())
        together += float((found[s] @ found[t].T - truth).norm())
    assert together < 0.8 * alone


def test_spaces_of_fewer_dimensions_are_embedded():
    turns = rotations(3, 6)
    small = [turns[0], turns[1][:4], turns[2]]
    crosses = {(s, t): small[s] @ small[t].T for s, t in ((0, 1), (1, 2), (0, 2))}
    found = synchronise(crosses, [6, 4, 6])
    assert found[1].shape == (4, 6)
    assert torch.allclose(found[1] @ found[1].T, torch.eye(4, dtype=torch.float64), atol=1e-8)
    assert torch.allclose(found[1] @ found[0].T, small[1] @ small[0].T, atol=1e-5)


def test_a_surer_pair_counts_for_more():
    turns = rotations(3, 6)
    crosses = noisy_crosses(turns, 0.0, [(0, 1), (1, 2)])
    wrong = noisy_crosses(turns, 3.0, [(0, 2)])
    found = synchronise({pair: 100 * cross for pair, cross in crosses.items()} | wrong, [6] * 3)
    assert torch.allclose(found[0] @ found[2].T, turns[0] @ turns[2].T, atol=0.15)


def test_one_more_space_is_turned_to_those_that_stay():
    turns = rotations(3, 6)
    found = rotation_into({0: turns[2] @ turns[0].T, 1: turns[2] @ turns[1].T}, turns[:2])
    assert torch.allclose(found, turns[2], atol=1e-8)


def test_leading_blocks_are_eigenvectors_of_the_whole():
    crosses = {(0, 1): torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}
    whole = torch.zeros(7, 7, dtype=torch.float64)
    whole[:3, 3:], whole[3:, :3] = crosses[0, 1], crosses[0, 1].T
    blocks = torch.cat(leading_blocks(crosses, [3, 4], 2))
    values = (whole @ blocks).norm(dim=0)
    assert torch.allclose(whole @ blocks, blocks * values, atol=1e-8)
    assert torch.allclose(values, torch.linalg.svdvals(crosses[0, 1])[:2], atol=1e-8)


def made_up(rows=800, factors=8, dims=(12, 10, 14), loadings=(0.95, 0.9, 0.6), seed=0):
    """Spaces that see the same factors, each by its loading and through a matrix of its own."""
    chance = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, factors, generator=chance)
    spaces = []
    for dim, loading in zip(dims, loadings, strict=True):
        seen = loading * z + (1 - loading**2) ** 0.5 * torch.randn(rows, factors, generator=chance)
        rest = torch.randn(rows, dim - factors, generator=chance)
        mix = torch.linalg.qr(torch.randn(dim, dim, generator=chance)).Q
        spaces.append(torch.cat([seen, rest], dim=1) @ mix / dim**0.5)
    return spaces


def factors_of(spaces, ridge=0.003):
    spectra = [Spectrum.from_moment(rows.T.double() @ rows.double() / len(rows)) for rows in spaces]
    half = len(spaces[0]) // 2
    halves = {
        (s, t): (moments_of(spaces[s][:half], spaces[t][:half]), moments_of(spaces[s][half:], spaces[t][half:]))
        for s, t in pairs_to_run(len(spaces))
    }
    return fit_factors(spectra, halves, ridge)


def test_loadings_are_found_from_correlations():
    truth = torch.tensor([[0.9, 0.7], [0.8, 0.3], [0.5, 0.6]], dtype=torch.float64)
    correlations = {(s, t): truth[s] * truth[t] for s, t in ((0, 1), (0, 2), (1, 2))}
    assert torch.allclose(fit_loadings(correlations, 3), truth, atol=0.02)
    two = fit_loadings({(0, 1): torch.tensor([0.64, 0.09], dtype=torch.float64)}, 2)
    assert torch.allclose(two[0] * two[1], torch.tensor([0.64, 0.09], dtype=torch.float64), atol=1e-3)


def test_factors_know_what_each_space_knows():
    found = factors_of(made_up())
    strong = found.loadings[:, :8].mean(dim=1)
    assert np.allclose(strong.numpy(), [0.95, 0.9, 0.6], atol=0.07)
    spaces = made_up()
    for space, rows in enumerate(spaces):
        assert torch.allclose(found.canonical(space, rows).square().mean(dim=0), torch.tensor(1.0), atol=0.01)


def test_factors_of_rotations_alone_are_all_but_cosine():
    spaces = made_up(dims=(8, 8, 8))
    spectra = [Spectrum.from_moment(rows.T.double() @ rows.double() / len(rows)) for rows in spaces]
    found = rotation_factors(spectra, [torch.eye(8)] * 3)
    model = found.pair_model(0, 1)
    assert float(model.correlations.max()) == pytest.approx(0.01)


def test_single_rows_compare_as_the_pair_model_does():
    spaces = made_up(rows=60)
    found = factors_of(made_up())
    model = found.pair_model(0, 2)
    expected = model.shared_x(spaces[0]) @ model.shared_y(spaces[2]).T
    sides = [(found.evidence(space, spaces[space]), found.precision(space).float().expand(60, -1)) for space in (0, 2)]
    left, right = group_coordinates(*sides)
    assert torch.allclose(left @ right.T, expected, atol=1e-3)
    assert torch.allclose(group_ratios(*sides), expected, atol=1e-3)


def test_coordinates_of_groups_are_their_likelihood_ratios():
    spaces = made_up(rows=40)
    found = factors_of(made_up())
    evidence = found.evidence(0, spaces[0]) + found.evidence(1, spaces[1])
    precision = (found.precision(0) + found.precision(1)).float().expand(40, -1)
    sides = (evidence, precision), (found.evidence(2, spaces[2]), found.precision(2).float().expand(40, -1))
    left, right = group_coordinates(*sides)
    assert torch.allclose(left @ right.T, group_ratios(*sides), atol=1e-3)


def test_groups_are_consistent_and_better_than_pairs():
    spaces = made_up(rows=600, factors=10, dims=(12, 12, 14), loadings=(0.97, 0.97, 0.8))
    found = factors_of(made_up(rows=3000, factors=10, dims=(12, 12, 14), loadings=(0.97, 0.97, 0.8)))
    found = factors_of(spaces)
    orders = [torch.randperm(600, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    rows = [space[order] for space, order in zip(spaces, orders, strict=True)]
    groups = merge_groups(found, rows, {(0, 1): 0.9, (0, 2): 0.5, (1, 2): 0.5}, NOBODY)
    for space in range(3):  # every row once
        there = groups.rows[:, space][groups.rows[:, space] >= 0]
        assert sorted(there.tolist()) == list(range(600))
    assert bool((groups.probability >= 0).all() and (groups.probability <= 1).all())
    partner = groups.partners(0, 2, 600)
    right = orders[0] == orders[2][partner.clamp_min(0)]
    grouped = partner >= 0
    assert float(right[grouped].float().mean()) > 0.9
    via = groups.partners(1, 2, 600)[groups.partners(0, 1, 600).clamp_min(0)]
    both = grouped & (groups.partners(0, 1, 600) >= 0) & (via >= 0)
    assert bool((via == partner)[both].all())  # A=B and B=C imply A=C


def test_known_tuples_are_never_parted():
    spaces = made_up(rows=200)
    found = factors_of(made_up())
    known = torch.tensor([[0, 5, 9], [1, -1, 3]])
    groups = merge_groups(found, spaces, {(0, 1): 0.9, (1, 2): 0.5, (0, 2): 0.4}, known)
    listed = groups.rows.tolist()
    assert [0, 5, 9] in listed
    assert any(row[0] == 1 and row[2] == 3 for row in listed)


def test_spaces_that_no_pair_connects_stay_apart():
    spaces = made_up(rows=100)
    groups = merge_groups(factors_of(made_up()), spaces, {(0, 1): 0.9}, NOBODY)
    assert not len(groups.pairs(0, 2))
    assert int(groups.sizes.max()) == 2


def test_groups_give_pairs_and_partners():
    groups = Groups(torch.tensor([[0, 1, -1], [1, -1, 2], [-1, 0, 0]]), torch.ones(3))
    assert groups.pairs(0, 1).tolist() == [[0, 1]]
    assert groups.partners(0, 2, 3).tolist() == [-1, 2, -1]
    assert groups.sizes.tolist() == [2, 2, 2]


def test_right_matches_close_their_loop_and_wrong_ones_do_not():
    rows = torch.arange(500)
    chance = torch.Generator().manual_seed(0)
    there, across = torch.randperm(500, generator=chance), torch.randperm(500, generator=chance)
    back = torch.empty_like(rows)
    back[across[there]] = rows
    links = [Link(match, match) for match in (there, across, back)]
    closed = close_loop((0, 1, 2), *links)
    assert closed.back == closed.kept == 1
    assert closed.chains == 500
    assert closed.chance < 0.02
    assert closed.closed
    wrong = torch.randperm(500, generator=chance)
    broken = close_loop((0, 1, 2), *links[:2], Link(wrong, wrong))
    assert broken.back < 0.02
    assert broken.closed is False


def test_a_loop_over_few_shared_rows_is_judged_by_these():
    rows = torch.arange(500)
    sure = torch.where(rows < 40, rows, -1)  # the others have no counterpart, and go anywhere
    astray = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    link = Link(torch.where(rows < 40, rows, astray), sure)
    loop = close_loop((0, 1, 2), link, link, link)
    assert loop.back < 0.15
    assert loop.chains == 40
    assert loop.closed
    few = Link(link.partner, torch.where(rows < 10, rows, -1))
    assert close_loop((0, 1, 2), link, link, few).closed is None


def test_chance_counts_the_popular_rows():
    everyone = torch.zeros(100, dtype=torch.int64)  # all rows go to one, and that one comes back to row 0
    link = Link(everyone, everyone)
    loop = close_loop((0, 1, 2), link, link, link)
    assert loop.back == loop.chance == 0.01
    assert loop.closure == 0


def test_the_pair_that_breaks_its_loops_is_named():
    right, wrong = (0.9, 0.001, 500, 0.95), (0.0, 0.001, 500, 0.01)
    loops = [
        Loop((0, 1, 2), *wrong),
        Loop((0, 1, 3), *wrong),
        Loop((0, 2, 3), *right),
        Loop((1, 2, 3), *right),
    ]
    assert breaking_pairs(loops) == [(0, 1)]
    assert closures(loops)[0, 1] == 0
    assert closures(loops)[2, 3] == pytest.approx(0.9, abs=0.01)
    assert breaking_pairs(loops[:1]) == []  # nobody can say which
    assert breaking_pairs(loops[2:]) == []


def test_all_pairs_of_few_spaces_and_two_per_space_of_many():
    assert len(pairs_to_run(4)) == 6
    many = pairs_to_run(10)
    assert len(many) == 20
    assert len(components_of(10, many)) == 1
    assert {space for triangle in triangles_of(many) for space in triangle} == set(range(10))


def test_spaces_that_nothing_connects_are_tried_with_the_best_connected():
    ok = [(0, 1), (0, 2), (1, 2)]
    assert main_component(4, ok) == {0, 1, 2}
    assert pairs_to_try(4, ok, [*ok, (2, 3)]) == [(0, 3), (1, 3)]
    assert pairs_to_try(4, ok, [*ok, (0, 3), (1, 3), (2, 3)]) == []
    assert main_component(3, []) == set()
    assert pairs_to_try(3, [], pairs_to_run(3)) == []

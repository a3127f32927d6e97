"""Soft pairs, and the maps they give where few items are shared."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery
from kedge.geometry import nearest_rotation, recolored_rotation, unit
from kedge.matching import DEFAULT_BUDGET, Problem
from kedge.models.soft_pairs import PAIRS_PER_ROW, soft_cross

EPSILON, ROUNDS = 0.02, 4


def problem_of(x, y, seeds) -> Problem:
    pairs = torch.tensor(seeds, dtype=torch.int64).reshape(-1, 2).T
    return Problem(x, y, pairs[0], pairs[1], DEFAULT_BUDGET, centered=False)


def by_stored_plans(problem: Problem, start: torch.Tensor) -> torch.Tensor:
    """The same as `soft_cross`, with all similarities at once."""
    x, y = problem.x, problem.y
    seeds = x[problem.seeds_x].T @ y[problem.seeds_y]
    x, y = (
        torch.from_numpy(np.delete(rows.numpy(), left_out.numpy(), axis=0))
        for rows, left_out in ((x, problem.seeds_x), (y, problem.seeds_y))
    )
    matrix, forth, back = start, torch.zeros(len(y)), torch.zeros(len(x))
    for _ in range(ROUNDS):
        similarity = unit(x @ matrix) @ y.T
        to_y = torch.softmax((similarity + forth) / EPSILON, dim=1)
        to_x = torch.softmax((similarity.T + back) / EPSILON, dim=1)
        forth = forth - EPSILON * torch.log(to_y.mean(dim=0) * len(y))
        back = back - EPSILON * torch.log(to_x.mean(dim=0) * len(x))
        mean = x.T @ (to_y @ y) / len(x) + (to_x @ x).T @ y / len(y)
        cross = PAIRS_PER_ROW * min(len(x), len(y)) * mean / 2
        matrix = recolored_rotation(problem.spectrum_x, problem.spectrum_y, (cross + seeds).double()).float()
    return cross


@pytest.mark.parametrize("seeds", [[], [(3, 5), (7, 7)]])
def test_blocks_give_what_stored_plans_give(rotated, seeds):
    x, y = (unit(torch.from_numpy(rows)) for rows in rotated(n=80, dim=6, noise=0.1))
    problem = problem_of(x, y[:60], seeds)
    start = nearest_rotation((x.T @ y).double()).float()
    torch.testing.assert_close(
        soft_cross(problem, start).float(), by_stored_plans(problem, start), rtol=1e-3, atol=1e-4
    )


@pytest.mark.thorough
def test_with_no_item_in_common_the_map_is_a_soft_one_and_translates_unseen_rows(words):
    """Word2Vec's and GloVe's vectors of different words."""
    x, y = words
    keys = np.random.default_rng(0).permutation(x.keys).tolist()
    ours, theirs, unseen = keys[:815], [*keys[:15], *keys[815:1600]], keys[1600:]
    first, second = x.take(x.rows(ours)), y.take(y.rows(theirs))
    discovery = AnchorDiscovery(n_anchors=50, disjoint=True, device="cpu")
    discovery.fit(first, second, [(key, key) for key in keys[:15]])
    assert discovery.map_scores_["map"] == {
        "family": "whiten-rotate-recolor",
        "kind": "soft whiten-rotate-recolor",
        "mrr": None,
        "overlap": None,
        "tested": 0,
        "by_known": False,
    }
    assert discovery.map_scores_["map_back"]["kind"] == "soft whiten-rotate-recolor"
    index = y.vectors[y.rows(unseen)]
    index = index / np.linalg.norm(index, axis=1, keepdims=True)
    found = (discovery.translate(x.vectors[x.rows(unseen)]) @ index.T).argmax(axis=1)
    assert (found == np.arange(len(unseen))).mean() > 0.6

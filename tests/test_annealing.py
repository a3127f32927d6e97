"""Annealing: which directions count when two spaces are compared that are not known to go together yet."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from kedge import Schedule
from kedge.geometry import emphasis, nearest_rotation, unit
from kedge.matching import DEFAULT_BUDGET, Problem
from kedge.solving.annealing import Annealed, anneal
from kedge.solving.steps import Log

SEEDS, ROWS, UNSEEN = 15, 800, 200
SHARED, PRIVATE = 12, 60


def made_spaces() -> tuple[Tensor, Tensor, Tensor]:
    """Two spaces of other items but for the seeds, which come first, and the items that come last; the right rotation.

    A few directions are shared; along many others, as strong, each space goes its own way.
    """
    chance = np.random.default_rng(0)
    latent = chance.exponential(size=(SEEDS + 2 * ROWS + UNSEEN, SHARED)) - 1
    known, of_x, of_y, unseen = np.split(latent, [SEEDS, SEEDS + ROWS, SEEDS + 2 * ROWS])
    turn = np.linalg.qr(chance.standard_normal((SHARED + PRIVATE, SHARED + PRIVATE)))[0]

    def space(*parts: np.ndarray) -> np.ndarray:
        rows = np.concatenate(parts)
        return np.hstack([rows, 0.5 * chance.standard_normal((len(rows), PRIVATE))])

    x, y = space(known, of_x, unseen), space(known, of_y, unseen) @ turn
    right = torch.from_numpy(turn.astype(np.float32))
    return unit(torch.from_numpy(x.astype(np.float32))), unit(torch.from_numpy(y.astype(np.float32))), right


def first(found: Annealed, x: Tensor, y: Tensor) -> float:
    """The share of the unseen items that have their counterpart first."""
    left, right = map(unit, found.places(x[-UNSEEN:], y[-UNSEEN:]))
    return float(((left @ right.T).argmax(dim=1) == torch.arange(UNSEEN)).float().mean())


@pytest.mark.parametrize("shape", [(7, 7), (9, 5), (5, 9)])
def test_emphasis_is_a_power_of_the_singular_values(shape):
    cross = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _, values, right = np.linalg.svd(cross.numpy(), full_matrices=False)
    expected = (right.T * (values / values.max()) ** 0.25) @ right
    np.testing.assert_allclose(emphasis(cross, 0.25).numpy(), expected, atol=1e-8)


def test_weighted_rounds_find_what_unknown_directions_drown():
    x, y, right = made_spaces()
    sides = x[:-UNSEEN], y[:-UNSEEN]
    seeds = torch.arange(SEEDS)
    problem = Problem(*sides, seeds, seeds, DEFAULT_BUDGET)
    start = nearest_rotation((sides[0][seeds].T @ sides[1][seeds]).double()).float()
    plain = Schedule(anneal_rounds=40, both_ways=True, parts=1)
    weighted = Schedule(anneal_rounds=40, both_ways=True, parts=1, weighted=True, whitening=0.5)
    found = {name: anneal(problem, *sides, start, s, Log()) for name, s in (("plain", plain), ("weighted", weighted))}
    assert found["plain"].emphasis is None
    assert first(found["weighted"], x, y) > first(found["plain"], x, y) + 0.1
    assert first(found["weighted"], x, y) > 0.8 * first(Annealed(right), x, y)

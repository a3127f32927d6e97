"""Sinkhorn against POT, and by the properties of a transport plan."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

from kedge import InputError
from kedge.matching import BlockedSoftmin, epsilon_schedule, sinkhorn

COSTS = {
    "dot": lambda a, b: -a @ b.T,
    "sqeuclidean": lambda a, b: np.square(a[:, None] - b).sum(axis=2),
    "euclidean": lambda a, b: np.sqrt(np.square(a[:, None] - b).sum(axis=2)),
}


def points(n: int, seed: int) -> torch.Tensor:
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(seed))


def plan_of(result, cost, weights_a, weights_b):
    potentials = result.f.numpy()[:, None] + result.g.numpy() - cost
    return weights_a[:, None] * weights_b * np.exp(potentials / result.epsilon)


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize(("n", "m"), [(30, 30), (20, 45)])
@pytest.mark.parametrize("weighted", [False, True])
def test_plan_agrees_with_pot(name, n, m, weighted):
    a, b = points(n, 0), points(m, 1)
    weights_a = np.linspace(1, 3, n) if weighted else np.ones(n)
    weights_b = np.linspace(2, 1, m) if weighted else np.ones(m)
    weights_a, weights_b = weights_a / weights_a.sum(), weights_b / weights_b.sum()
    cost = COSTS[name](a.numpy(), b.numpy())
    result = sinkhorn(
        BlockedSoftmin(a, b, name, budget=3000),
        0.05,
        max_iter=2000,
        stop_threshold=1e-7,
        row_weights=torch.from_numpy(weights_a).float() * 5 if weighted else None,
        column_weights=torch.from_numpy(weights_b).float() if weighted else None,
    )
    expected = ot.sinkhorn(weights_a, weights_b, cost, 0.05, method="sinkhorn_log", numItermax=5000, stopThr=1e-12)
    plan = plan_of(result, cost, weights_a, weights_b)
    np.testing.assert_allclose(plan, expected, atol=2e-6)
    np.testing.assert_allclose(plan.sum(axis=0), weights_b, rtol=1e-3)
    np.testing.assert_allclose(plan.sum(axis=1), weights_a, rtol=1e-3)


def test_softmin_halves_against_logsumexp():
    a, b = points(25, 0), points(35, 1)
    softmin = BlockedSoftmin(a, b, "sqeuclidean", budget=2000)
    weights = torch.rand(35, generator=torch.Generator().manual_seed(2))
    cost = torch.from_numpy(COSTS["sqeuclidean"](a.numpy(), b.numpy()))
    torch.testing.assert_close(softmin.rows(0.1, weights), -0.1 * (weights - cost / 0.1).logsumexp(dim=1))
    torch.testing.assert_close(
        softmin.columns(0.1, weights[:25]), -0.1 * (weights[:25, None] - cost / 0.1).logsumexp(dim=0)
    )


def test_one_step_at_the_papers_epsilon_agrees_with_pot():
    """The paper's setting: epsilon 1e-4 and a single step, where only the log domain survives."""
    a, b = points(40, 0), points(40, 1)
    cost = COSTS["euclidean"](a.double().numpy(), b.double().numpy())
    softmin = BlockedSoftmin(a.double(), b.double(), "euclidean")
    result = sinkhorn(softmin, 1e-4, max_iter=1)
    # POT starts from the columns; ours from the rows: transpose.
    uniform = np.full(40, 1 / 40)
    expected = ot.sinkhorn(uniform, uniform, cost.T, 1e-4, method="sinkhorn_log", numItermax=1, warn=False).T
    plan = plan_of(result, cost, uniform, uniform)
    np.testing.assert_allclose(plan, expected, atol=1e-6)
    partners = softmin.partners(result.g).numpy()
    some = expected.max(axis=1) > 0  # after one step, POT's plan underflows to nothing for some rows
    assert some.sum() > 20
    given = expected[np.arange(40), partners]  # two columns may give a row the same: a tie
    np.testing.assert_allclose(given[some], expected.max(axis=1)[some], rtol=1e-6)
    assert result.n_iter == 1
    assert not result.converged


def test_errors_fall_and_convergence_is_honest():
    a, b = points(30, 0), points(30, 1)
    result = sinkhorn(BlockedSoftmin(a, b), 0.1, max_iter=500, stop_threshold=1e-5)
    assert result.converged
    assert result.n_iter == len(result.errors) < 500
    assert result.errors[-1] < 1e-5 < result.errors[0]
    assert not sinkhorn(BlockedSoftmin(a, b), 0.1, max_iter=2).converged


def test_schedule_ends_where_the_fixed_epsilon_does():
    a, b = points(30, 0), points(30, 1)
    softmin = BlockedSoftmin(a, b)
    fixed = sinkhorn(softmin, 0.05, max_iter=1000, stop_threshold=1e-7)
    annealed = sinkhorn(softmin, epsilon_schedule(1.0, 0.05, 10), max_iter=1000, stop_threshold=1e-7)
    assert annealed.epsilon == fixed.epsilon
    shift = (annealed.f - fixed.f).mean()
    torch.testing.assert_close(annealed.f - shift, fixed.f, rtol=1e-3, atol=1e-4)
    warm = sinkhorn(softmin, 0.05, max_iter=1000, stop_threshold=1e-5, start=fixed.g)
    assert warm.n_iter <= 3


def test_epsilon_schedule_and_bad_arguments():
    assert epsilon_schedule(0.1, 0.025, 3) == pytest.approx((0.1, 0.05, 0.025))
    assert epsilon_schedule(0.1, 0.02, 1) == (0.02,)
    softmin = BlockedSoftmin(points(3, 0), points(4, 1))
    with pytest.raises(InputError, match="start >= end"):
        epsilon_schedule(0.1, 0.2, 3)
    with pytest.raises(InputError, match="epsilons must be positive"):
        sinkhorn(softmin, 0.0)
    with pytest.raises(InputError, match="max_iter must cover"):
        sinkhorn(softmin, [0.2, 0.1], max_iter=1)
    with pytest.raises(InputError, match="row_weights must be 3 positive"):
        sinkhorn(softmin, 0.1, row_weights=torch.ones(4))
    with pytest.raises(InputError, match="column_weights must be 4 positive"):
        sinkhorn(softmin, 0.1, column_weights=torch.zeros(4))

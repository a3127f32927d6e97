"""The paper's optimiser: what its parts are, and what becomes of it from either start."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from kedge import AnchorDiscovery, InputError, PaperSettings
from kedge.geometry import relative, unit
from kedge.matching import Problem
from kedge.solving.paper import _initial_anchors, optimise_anchors
from kedge.solving.steps import Log
from kedge.tasks import evaluate, gold_by_key


def test_the_defaults_are_the_papers():
    settings = PaperSettings()
    assert (settings.steps, settings.learning_rate) == (250, 0.02)
    assert (settings.sinkhorn_epsilon, settings.sinkhorn_steps, settings.sinkhorn_stop) == (1e-4, 1, 1e-5)


@pytest.fixture(scope="module")
def some_words(words):
    x, y = words
    keep = x.keys[:600]
    return x.take(range(600)), y.take([row for row, key in enumerate(y.keys) if key in set(keep)])


def run_paper(spaces, init, steps=60, center=True):
    seeds = [(key, key) for key in np.random.default_rng(0).choice(spaces[0].keys, 15, replace=False).tolist()]
    settings = PaperSettings(steps=steps)
    discovery = AnchorDiscovery(n_anchors=300, method="paper", init=init, paper=settings, center=center, device="cpu")
    return discovery.fit(*spaces, seeds)


@pytest.mark.thorough
@pytest.mark.parametrize("center", [True, False])
def test_from_the_seeds_it_finds_what_from_noise_it_does_not(some_words, center):
    """Our finding: as printed, the noise drowns the seeds; started from their rotation it works."""
    gold = gold_by_key(*some_words)
    started, printed = (run_paper(some_words, init, center=center) for init in ("seeds", "random"))
    good, bad = (evaluate(run, *some_words, gold, complete=True) for run in (started, printed))
    assert good.found.mrr > 0.5 > 0.1 > bad.found.mrr
    assert good.anchors_exact > 0.5 > 0.05 > bad.anchors_exact
    assert printed.health_.map.verdict != "ok"
    losses = [step.figures["loss"] for step in started.history_]
    assert losses[-1] < losses[0]
    assert started.n_iter_ == 60
    np.testing.assert_allclose(np.linalg.norm(started.y_.anchors["free"], axis=1), 1, rtol=1e-5)


def least_squares_on_sphere(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Unit vectors (t, d) that minimise |inputs a_k - targets_k|^2: (G + l I) a = c, with the l at which |a| = 1."""
    values, axes = np.linalg.eigh(inputs.T @ inputs)
    found = []
    for rotated in (axes.T @ inputs.T @ targets).T:

        def excess(shift: float, rotated: np.ndarray = rotated) -> float:
            return float(np.linalg.norm(rotated / (values + shift))) - 1

        low = -values[0] + 1e-9 * values[-1]
        shift = brentq(excess, low, low + np.linalg.norm(rotated), xtol=1e-12)
        found.append(axes @ (rotated / (values + shift)))
    return np.stack(found)


def test_the_closed_form_is_the_constrained_optimum():
    chance = np.random.default_rng(0)
    inputs, targets = chance.standard_normal((60, 5)), chance.standard_normal((60, 4))
    found = least_squares_on_sphere(inputs, targets)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-9)
    loss = np.square(inputs @ found.T - targets).sum(axis=0)
    for number in range(200):  # no unit vector near or far does better
        other = found + chance.standard_normal((4, 5)) * (0.01 if number % 2 else 1.0)
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        assert (np.square(inputs @ other.T - targets).sum(axis=0) >= loss - 1e-9).all()


def test_with_the_true_match_it_reaches_the_constrained_optimum(rotated):
    """With a match that is right, Adam on the sphere ends where the closed form is, and not where it started."""
    x, y = (unit(torch.from_numpy(v)) for v in rotated(n=200, dim=8, noise=0.02))
    rows = torch.arange(200)
    problem = Problem(x, y, rows[:50], rows[:50], 2**28)
    settings = PaperSettings(steps=300)
    generator = torch.Generator().manual_seed(0)
    start = _initial_anchors(problem, rows[100:120], "seeds", generator)
    log = Log()
    free = optimise_anchors(problem, rows[100:120], "seeds", settings, generator, log)
    expected = torch.from_numpy(least_squares_on_sphere(y.double().numpy(), relative(x, x[100:120]).double().numpy()))
    assert (free - expected).norm() < 0.1 * (start - expected).norm()
    assert log.history[-1].figures["loss"] < log.history[0].figures["loss"]


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="sinkhorn_steps must be positive, got 0"):
        PaperSettings(sinkhorn_steps=0)


def test_noise_needs_seeds_among_the_anchors(some_words):
    seeds = [(key, key) for key in some_words[0].keys[:15]]
    discovery = AnchorDiscovery(method="paper", init="random", device="cpu")
    with pytest.raises(InputError, match="needs seeds among the anchors"):
        discovery.fit(*some_words, seeds, anchors=some_words[0].keys[20:60])


@pytest.mark.thorough
def test_the_same_random_state_gives_the_same_anchors(some_words):
    first, second = (run_paper(some_words, "random", steps=3) for _ in range(2))
    np.testing.assert_array_equal(first.y_.anchors["free"], second.y_.anchors["free"])

"""The pair model against scikit-learn's CCA and SciPy's densities, and where there is little to learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.cross_decomposition import CCA

from kedge.geometry import (
    Spectrum,
    canonical_directions,
    canonical_loadings,
    denormalise,
    held_out_correlations,
    leading_directions,
    moments_of,
    nearest_rotation,
    normalise,
    recolored_rotation,
    ridge,
    unit,
)
from kedge.geometry import spectrum as spectrum_module
from kedge.models.pair_model import RIDGES, PairModel, choose_ridge, fit_pair_model


def spaces(rows=3000, dim_x=6, dim_y=5, shared=3, noise=0.5, seed=0):
    """Two spaces that see the same hidden things, each through a mixture of its own, and noise of its own."""
    chance = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, shared, generator=chance) * torch.linspace(2, 1, shared)
    mixed = [hidden @ torch.randn(shared, dim, generator=chance) for dim in (dim_x, dim_y)]
    return [part + noise * torch.randn(part.shape, generator=chance) for part in mixed]


def spectrum(rows):
    return Spectrum.from_moment((rows.T @ rows).double() / len(rows))


def halves(x, y):
    return moments_of(x[::2], y[::2]), moments_of(x[1::2], y[1::2])


def test_directions_and_correlations_are_those_of_cca():
    x, y = spaces()
    directions = canonical_directions(spectrum(x), spectrum(y), moments_of(x, y).cross, 0.0)
    left, right = (part.double() for part in directions)
    ours = [abs(np.corrcoef(x.double() @ left[:, i], y.double() @ right[:, i])[0, 1]) for i in range(3)]
    theirs_x, theirs_y = CCA(n_components=3, scale=False, max_iter=5000, tol=1e-9).fit_transform(x.numpy(), y.numpy())
    for position in range(3):
        assert ours[position] == pytest.approx(
            abs(np.corrcoef(theirs_x[:, position], theirs_y[:, position])[0, 1]), abs=1e-3
        )
        turned = np.corrcoef(x.double() @ left[:, position], theirs_x[:, position])[0, 1]
        assert abs(turned) > 0.999
    held_out = held_out_correlations(spectrum(x), spectrum(y), halves(x, y), 0.0)
    np.testing.assert_allclose(held_out[:3], ours, atol=0.05)
    assert float(held_out[3:].max()) < 0.1  # nothing else is shared
    assert (held_out.diff() <= 0).all()


def test_the_inner_product_is_the_log_likelihood_ratio():
    """Of the Gaussian whose covariances and canonical directions the model has."""
    x, y = spaces(dim_x=4, dim_y=4)
    fitted = fit_pair_model(spectrum(x), spectrum(y), halves(x, y), 0.0)
    # The same in float64, so that nothing but the formula is tried.
    exact = canonical_directions(spectrum(x), spectrum(y), moments_of(x, y).cross, 0.0, torch.float64)
    count = len(fitted.correlations)
    model = replace(
        fitted,
        directions_x=spectrum(x).scaled_to_unit(exact[0][:, :count]),
        directions_y=spectrum(y).scaled_to_unit(exact[1][:, :count]),
    )
    left, right, correlations = (part.numpy() for part in (model.directions_x, model.directions_y, model.correlations))
    covariance_x, covariance_y = ((rows.T @ rows).double().numpy() / len(rows) for rows in (x, y))
    cross = covariance_x @ left @ np.diag(correlations) @ right.T @ covariance_y
    joint = multivariate_normal(np.zeros(8), np.block([[covariance_x, cross], [cross.T, covariance_y]]))
    alone_x, alone_y = multivariate_normal(np.zeros(4), covariance_x), multivariate_normal(np.zeros(4), covariance_y)
    some_x, some_y = x[:20].double(), y[5:25].double()
    ours = model.shared_x(some_x) @ model.shared_y(some_y).T
    for i in range(20):
        together = joint.logpdf(np.concatenate([np.tile(some_x[i], (20, 1)), some_y], axis=1))
        expected = together - alone_x.logpdf(some_x[i]) - alone_y.logpdf(some_y)
        np.testing.assert_allclose(ours[i], expected, atol=1e-6)
    in_float32 = fitted.shared_x(some_x) @ fitted.shared_y(some_y).T
    torch.testing.assert_close(in_float32, ours, rtol=1e-3, atol=1e-3)
    true_pairs = (model.shared_x(x.double()) * model.shared_y(y.double())).sum(dim=1).mean()
    assert float(true_pairs) == pytest.approx(model.information, rel=0.1)


@given(st.integers(0, 2**16))
@settings(deadline=None, max_examples=10)
def test_how_the_spaces_are_turned_does_not_matter(seed):
    x, y = spaces(rows=500)
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(seed)))
    plain = fit_pair_model(spectrum(x), spectrum(y), halves(x, y), 0.3)
    turned = fit_pair_model(spectrum(x @ turn), spectrum(y), halves(x @ turn, y), 0.3)
    expected = plain.shared_x(x[:50]) @ plain.shared_y(y[:50]).T
    torch.testing.assert_close(
        turned.shared_x(x[:50] @ turn) @ turned.shared_y(y[:50]).T, expected, atol=1e-3, rtol=1e-3
    )


def test_it_reads_better_than_cosine_after_a_rotation():
    """Where a few loud directions say nothing: what the pairs agree on must count, not what is large."""
    chance = torch.Generator().manual_seed(1)
    hidden = torch.randn(1000, 10, generator=chance)
    x, y = (torch.cat([5 * torch.randn(1000, 2, generator=chance), hidden], dim=1) for _ in range(2))
    x, y = x + 0.3 * torch.randn(x.shape, generator=chance), y + 0.3 * torch.randn(y.shape, generator=chance)
    model = fit_pair_model(spectrum(x), spectrum(y), halves(x, y))
    truth = torch.arange(1000)
    by_model = (model.shared_x(x) @ model.shared_y(y).T).argmax(dim=1)
    by_cosine = (unit(x) @ unit(y).T).argmax(dim=1)  # no rotation is needed here
    assert (by_model == truth).float().mean() > 0.8
    assert (by_cosine == truth).float().mean() < 0.3


def test_the_ridge_is_the_smallest_that_keeps_nearly_all_information():
    for noise, rows in ((0.3, 200), (2.0, 100), (0.1, 2000)):
        x, y = (unit(part) for part in spaces(rows=rows, dim_x=20, dim_y=15, shared=8, noise=noise))
        known = spectrum(x), spectrum(y), halves(x, y)
        both = rows // 2 < 1000  # of so many pairs, one half shows it

        def information(strength, known=known, both=both):
            correlations = held_out_correlations(*known, strength, both=both)
            return float(-torch.log1p(-correlations.square()).sum() / 2)

        told = [information(strength) for strength in RIDGES]
        chosen = RIDGES.index(choose_ridge(*known))
        assert told[chosen] >= 0.95 * max(told)
        assert chosen == 0 or told[chosen - 1] < 0.95 * max(told)
        # Where it is known to be near one, nothing further away is looked at.
        for at, near in enumerate(RIDGES):
            found = RIDGES.index(choose_ridge(*known, near))
            around = range(max(at - 1, 0), min(at + 2, len(RIDGES)))
            best = max(told[place] for place in around)
            assert found in around
            assert told[found] >= 0.95 * best
            assert found == around[0] or told[found - 1] < 0.95 * best


def test_non_matches_tell_nothing_of_each_other():
    x, _ = spaces(seed=0)
    _, y = spaces(seed=1)
    model = fit_pair_model(spectrum(x), spectrum(y), halves(x, y))
    assert model.information < 0.02
    assert model.shared_x(x).shape == (3000, len(model.correlations) + 2)


@pytest.mark.parametrize(("rows", "dim_x", "dim_y"), [(30, 40, 7), (25, 2, 2), (40, 1700, 3), (20, 64, 64)])
def test_few_pairs_and_many_or_two_dimensions_are_no_trouble(rows, dim_x, dim_y):
    x, y = spaces(rows=rows, dim_x=dim_x, dim_y=dim_y, shared=2)
    x, y = unit(x), unit(y)
    model = fit_pair_model(spectrum(x), spectrum(y), halves(x, y))
    similarity = model.shared_x(x) @ model.shared_y(y).T
    assert torch.isfinite(similarity).all()
    assert len(model.correlations) <= min(dim_x, dim_y)


def test_a_space_that_varies_in_one_direction_only():
    x, y = spaces(rows=100)
    flat = x[:, :1] * torch.ones(6)
    model = fit_pair_model(spectrum(flat), spectrum(y), halves(flat, y))
    assert torch.isfinite(model.shared_x(flat) @ model.shared_y(y).T).all()


def test_models_of_other_pairs_are_compared_over_one_form_of_y():
    x, y = spaces(dim_x=5, dim_y=8)
    sides = spectrum(x), spectrum(y)
    model = fit_pair_model(*sides, halves(x, y), 0.1)
    other = model.refitted(*sides, moments_of(x[:1500], y[:1500]).cross)
    some_x, some_y = x[:30].double(), y[:30].double()
    products = (some_x @ other.products_x().double()) @ some_y.T
    ours = products - other.losses_x(some_x) - other.losses_y(some_y).T + model.information
    torch.testing.assert_close(ours, other.shared_x(some_x) @ other.shared_y(some_y).T, rtol=1e-4, atol=1e-4)
    same = model.refitted(*sides, (halves(x, y)[0] + halves(x, y)[1]).cross)
    torch.testing.assert_close(same.shared_x(some_x), model.shared_x(some_x))


def test_with_correlations_as_factors_the_canonical_map_predicts_best():
    x, y = spaces(rows=20_000)
    sides = spectrum(x), spectrum(y)
    cross = moments_of(x, y).cross
    correlations = held_out_correlations(*sides, halves(x, y), 0.0)
    left, right = (
        side.scaled_to_unit(part)
        for side, part in zip(sides, canonical_directions(*sides, cross, 0.0, torch.float64), strict=True)
    )
    predicted = (left * correlations) @ canonical_loadings(sides[1], right)
    torch.testing.assert_close(predicted, ridge((x.T @ x).double(), cross), atol=0.02, rtol=0.02)


@pytest.mark.parametrize(("rows", "dim_x", "dim_y"), [(500, 20, 15), (60, 40, 7), (3000, 64, 64)])
def test_directions_in_float32_are_as_good_as_in_float64(rows, dim_x, dim_y):
    x, y = (unit(part) for part in spaces(rows=rows, dim_x=dim_x, dim_y=dim_y, shared=5))
    sides = spectrum(x), spectrum(y)
    for strength in RIDGES:
        one, other = (
            held_out_correlations(*sides, halves(x, y), strength, dtype=dtype)
            for dtype in (torch.float32, torch.float64)
        )
        torch.testing.assert_close(one[:5], other[:5], rtol=0, atol=2e-3)
        # Directions of noise are as good as any others: rounding may turn some of them, but not what they are worth.
        assert float((one - other).abs().mean()) < 1e-3


def test_in_principal_axes_a_spectrum_does_the_same_without_them():
    x, y = spaces(dim_x=6, dim_y=5)
    cross = moments_of(x, y).cross
    turned_x, turned_y = spectrum(x), spectrum(y)
    plain_x, plain_y = Spectrum(turned_x.variances), Spectrum(turned_y.variances)
    within = turned_x.axes.T @ cross @ turned_y.axes
    for strength, ridge_ in ((0.5, 0.01), (1.0, 0.1)):
        found = recolored_rotation(plain_x, plain_y, within, strength, ridge_)
        expected = recolored_rotation(turned_x, turned_y, cross, strength, ridge_)
        torch.testing.assert_close(turned_x.axes @ found @ turned_y.axes.T, expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(turned_x.axes @ plain_x.powered(-0.25) @ turned_x.axes.T, turned_x.powered(-0.25))
    directions = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(turned_x.variance_along(turned_x.axes @ directions), plain_x.variance_along(directions))
    measured = (x.double() @ directions).square().mean(dim=0)
    torch.testing.assert_close(turned_x.variance_along(directions), measured, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("few_dims", [0, 100])
def test_leading_directions_hold_what_those_of_the_whole_decomposition_do(few_dims, monkeypatch):
    monkeypatch.setattr(spectrum_module, "_FEW_DIMS", few_dims)
    chance = torch.Generator().manual_seed(0)
    turn, _ = torch.linalg.qr(torch.randn(80, 80, generator=chance))
    rows = torch.randn(500, 80, generator=chance) * torch.logspace(0, -2, 80) @ turn
    found = leading_directions(rows, 10)
    torch.testing.assert_close(found.T @ found, torch.eye(10), rtol=0, atol=1e-5)
    _, values, exact = torch.linalg.svd(rows, full_matrices=False)
    assert float((rows @ found).square().sum()) > 0.995 * float(values[:10].square().sum())
    assert float(torch.linalg.svdvals(found.T @ exact[:5].T).min()) > 0.995
    assert torch.equal(found, leading_directions(rows, 10))
    assert leading_directions(rows[:4], 10).shape == (80, 4)  # there are no more


def test_a_recolored_rotation_lies_between_the_rotation_and_the_other_spaces_covariance():
    x, y = spaces(dim_x=5)
    cross = moments_of(x, y).cross
    plain = recolored_rotation(spectrum(x), spectrum(y), cross, strength=0)
    torch.testing.assert_close(plain, nearest_rotation(cross))
    full = recolored_rotation(spectrum(x), spectrum(y), cross, strength=1, ridge=0)
    mapped = x.double() @ full
    torch.testing.assert_close(mapped.T @ mapped / len(x), (y.T @ y).double() / len(y), rtol=1e-5, atol=1e-5)
    wider = recolored_rotation(spectrum(x), spectrum(spaces(dim_y=9)[1]), moments_of(x, spaces(dim_y=9)[1]).cross)
    assert wider.shape == (5, 9)


def test_denormalising_undoes_normalising():
    rows = unit(torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) + 1)
    center = rows.mean(dim=0)
    torch.testing.assert_close(denormalise(normalise(rows, center), center), rows)
    torch.testing.assert_close(denormalise(rows, None), rows)


def test_a_model_moves_between_precisions():
    x, y = spaces()
    model = fit_pair_model(spectrum(x), spectrum(y), halves(x, y))
    small = model.on(torch.device("cpu"), torch.float32)
    assert isinstance(small, PairModel)
    assert small.directions_x.dtype == torch.float32
    torch.testing.assert_close(small.shared_x(x), model.shared_x(x), rtol=1e-3, atol=1e-3)


def test_directions_along_which_a_space_does_not_vary_are_not_blown_up():
    """Some encoders never use a dimension; a new row may have a little there."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 6, generator=generator, dtype=torch.float64)
    rows[:, 2] = 1e-12 * torch.randn(300, generator=generator, dtype=torch.float64)
    spectrum = Spectrum.from_moment(rows.T @ rows / 300)
    scaled = spectrum.scaled_to_unit(torch.eye(6, dtype=torch.float64))
    assert scaled[:, 2].abs().max() == 0
    expected = rows.square().mean(dim=0).rsqrt()
    others = [0, 1, 3, 4, 5]
    torch.testing.assert_close(scaled.diagonal()[others], expected[others])

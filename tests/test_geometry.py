"""Geometry against SciPy, NumPy, scikit-learn and GeoTorch, and by its properties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import isotonic_regression

from kedge.geometry import (
    center_of,
    exponential_map,
    leading_eigh,
    moments_of,
    nearest_rotation,
    never_rising,
    normalise,
    orthogonal_map,
    principal_axes,
    refine_rotation,
    relative,
    ridge,
    standardise,
    unit,
    whiten,
)

finite = st.floats(-(2.0**127), 2.0**127, width=32).filter(lambda value: value == 0 or abs(value) > 1e-37)


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@given(arrays(np.float32, (3, 4), elements=finite))
@settings(deadline=None)
def test_unit_rows_have_norm_one_or_are_zero(values):
    norms = unit(torch.from_numpy(values)).norm(dim=1)
    zero = torch.from_numpy((values == 0).all(axis=1))
    torch.testing.assert_close(norms, (~zero).float(), rtol=1e-5, atol=1e-5)


def test_center_and_normalise_agree_with_numpy():
    vectors = gaussian(50, 6) + 1
    scaled = vectors.numpy() / np.linalg.norm(vectors.numpy(), axis=1, keepdims=True)
    np.testing.assert_allclose(center_of(vectors), scaled.mean(axis=0), rtol=1e-5)
    centered = scaled - scaled.mean(axis=0)
    expected = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    np.testing.assert_allclose(normalise(vectors, center_of(vectors)), expected, atol=1e-6)
    np.testing.assert_allclose(normalise(vectors, None), scaled, rtol=1e-5)


def test_principal_axes_agree_with_svd():
    vectors = gaussian(200, 8) * torch.linspace(3, 0.5, 8)
    axes = principal_axes(vectors, 3)
    _, _, right = np.linalg.svd(vectors.numpy(), full_matrices=False)
    np.testing.assert_allclose(np.abs((axes.T @ torch.from_numpy(right[:3].T)).numpy()), np.eye(3), atol=1e-4)


def test_half_whitening_takes_the_square_root_of_the_gram_matrix():
    vectors = gaussian(40, 6).double() * torch.linspace(3, 0.5, 6)
    gram = whiten(vectors, 0.5) @ whiten(vectors, 0.5).T
    expected = scipy.linalg.sqrtm((vectors @ vectors.T).numpy() + 1e-12 * np.eye(40)).real / np.sqrt(1 / 40)
    np.testing.assert_allclose(gram, expected, atol=1e-3)
    white = whiten(vectors, 1.0)
    torch.testing.assert_close(white.T @ white / 40, torch.eye(6).double(), rtol=1e-5, atol=1e-5)
    turned = whiten(vectors, 0.0)
    torch.testing.assert_close(turned @ turned.T, vectors @ vectors.T, rtol=1e-5, atol=1e-5)


def test_relative_representation_is_invariant_to_rotation():
    vectors, anchors = unit(gaussian(20, 5)), unit(gaussian(7, 5, seed=1))
    rotation = orthogonal_map(gaussian(9, 5, seed=2), gaussian(9, 5, seed=3))
    torch.testing.assert_close(relative(vectors @ rotation, anchors @ rotation), relative(vectors, anchors))


def test_orthogonal_map_agrees_with_scipy():
    source, target = gaussian(40, 6), gaussian(40, 6, seed=1)
    expected, _ = scipy.linalg.orthogonal_procrustes(source.numpy(), target.numpy())
    np.testing.assert_allclose(orthogonal_map(source, target), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4)])
@pytest.mark.parametrize("least", [1.0, 1e-3, 1e-5, 1e-9, 0.0])
def test_nearest_rotation_is_the_polar_factor_however_close_to_singular(shape, least):
    small = min(shape)
    left, right = (torch.linalg.qr(gaussian(dim, small, seed=dim).double())[0] for dim in shape)
    values = torch.cat([torch.linspace(2, 1, small - 1).double(), torch.tensor([least]).double()])
    found = nearest_rotation((left * values) @ right.T)
    product = found @ found.T if shape[0] <= shape[1] else found.T @ found
    torch.testing.assert_close(product, torch.eye(small).double(), rtol=0, atol=1e-6)
    if least:
        torch.testing.assert_close(found, left @ right.T, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("dim_x", "dim_y"), [(4, 7), (7, 4), (5, 5)])
def test_orthogonal_map_between_dimensions(dim_x, dim_y):
    found = orthogonal_map(gaussian(60, dim_x), gaussian(60, dim_y, seed=1))
    small = min(dim_x, dim_y)
    product = found @ found.T if dim_x <= dim_y else found.T @ found
    torch.testing.assert_close(product, torch.eye(small), rtol=1e-5, atol=1e-5)


def test_orthogonal_map_recovers_a_rotation_and_honours_weights():
    rotation = orthogonal_map(gaussian(9, 5), gaussian(9, 5, seed=1))
    source = gaussian(30, 5, seed=2)
    target = source @ rotation
    torch.testing.assert_close(orthogonal_map(source, target), rotation, rtol=1e-4, atol=1e-5)
    wrong = torch.cat([target[:20], gaussian(10, 5, seed=3)])
    weights = torch.cat([torch.ones(20), torch.zeros(10)])
    torch.testing.assert_close(orthogonal_map(source, wrong, weights), rotation, rtol=1e-4, atol=1e-5)


def test_ridge_agrees_with_scikit_learn():
    from sklearn.linear_model import Ridge

    inputs, targets = gaussian(80, 6).double(), gaussian(80, 3, seed=1).double()
    strength = 0.5 * float((inputs.T @ inputs).diagonal().mean())
    reference = Ridge(alpha=strength, fit_intercept=False).fit(inputs.numpy(), targets.numpy())
    np.testing.assert_allclose(
        ridge(inputs.T @ inputs, inputs.T @ targets, 0.5).T, reference.coef_, rtol=1e-4, atol=1e-6
    )
    plain, *_ = np.linalg.lstsq(inputs.numpy(), targets.numpy(), rcond=None)
    np.testing.assert_allclose(ridge(inputs.T @ inputs, inputs.T @ targets), plain, rtol=1e-4, atol=1e-5)


def test_refined_rotation_lies_between_the_rotation_and_least_squares():
    source = unit(gaussian(500, 6))
    target = source @ gaussian(6, 6, seed=1)
    rotation, moments = orthogonal_map(source, target).double(), moments_of(source, target)
    torch.testing.assert_close(
        refine_rotation(moments, rotation, 0.0), ridge(moments.source, moments.cross), rtol=1e-3, atol=1e-3
    )
    stiff = refine_rotation(moments, rotation, 1e9)
    torch.testing.assert_close(unit(stiff), unit(rotation), rtol=1e-3, atol=1e-3)


def test_exponential_map_agrees_with_geotorch():
    import geotorch

    layer = torch.nn.Linear(5, 7, bias=False)
    geotorch.sphere(layer, "weight")
    base = unit(gaussian(7, 5))
    layer.weight = base
    parametrisation = layer.parametrizations.weight
    tangent = gaussian(7, 5, seed=1)
    with torch.no_grad():
        parametrisation.original.copy_(tangent)
    torch.testing.assert_close(exponential_map(base, tangent), layer.weight.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(exponential_map(base, torch.zeros_like(base)), base)

    # The gradients agree too, which is what the optimiser feels.
    ours = tangent.clone().requires_grad_()
    exponential_map(base, ours).sin().sum().backward()
    layer.weight.sin().sum().backward()
    torch.testing.assert_close(ours.grad, parametrisation.original.grad, rtol=1e-4, atol=1e-5)


def test_standardise_leaves_constant_columns_at_zero():
    columns = torch.stack([torch.full((20000,), 0.1), torch.linspace(0, 1, 20000)], dim=1)
    standard = standardise(columns)
    assert (standard[:, 0] == 0).all()
    assert float(standard[:, 1].mean()) == pytest.approx(0, abs=1e-5)
    assert float(standard[:, 1].std()) == pytest.approx(1, abs=1e-3)


@given(arrays(np.float64, st.integers(1, 30), elements=st.integers(-30, 30)), st.booleans())
def test_sequences_that_never_rise_are_those_of_scipy(values, weighted):
    weights = np.random.default_rng(0).uniform(0.1, 2, len(values)) if weighted else None
    expected = isotonic_regression(values, weights=weights, increasing=False).x
    np.testing.assert_allclose(never_rising(values, weights), expected, atol=1e-12)


@pytest.mark.parametrize("count", [1, 5, 12, 40])
def test_leading_eigenvectors_are_those_of_the_whole_decomposition(count):
    rows = gaussian(40, 12).double()
    values, vectors = leading_eigh(rows.T @ rows, count)
    every_value, every_vector = torch.linalg.eigh(rows.T @ rows)
    torch.testing.assert_close(values, every_value[-count:])
    torch.testing.assert_close((vectors * every_vector[:, -count:]).sum(dim=0).abs(), torch.ones_like(values))

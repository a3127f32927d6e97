"""A translator does what `translate` does, with NumPy: alone or one after another, from memory or from a folder."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kedge
from kedge import AnchorDiscovery, InputError, Translator
from kedge.geometry import denormalise, normalise
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Normaliser, TranslationStep, unit_rows


def turn(dim: int, seed: int, columns: int | None = None) -> np.ndarray:
    """A matrix (dim, columns) with orthonormal rows or columns."""
    square, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((max(dim, columns or dim),) * 2))
    return square[:dim, : columns or dim].astype(np.float32)


def step(source: int, target: int, seed: int = 0) -> TranslationStep:
    """Between two spaces that are off center, as real ones are."""
    chance = np.random.default_rng(seed)
    centers = [(0.3 * chance.standard_normal(dim) / dim**0.5).astype(np.float32) for dim in (source, target)]
    return TranslationStep(Normaliser(centers[0]), LinearMap(turn(source, seed, target)), Normaliser(centers[1]))


def vectors(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32) + 0.2


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# -- the same as translate ------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["unit", "raw"])
@pytest.mark.parametrize("back", [False, True])
def test_it_is_what_translate_does_in_memory_and_from_a_folder(fitted, words, run_files, back, scale):
    space = words[1] if back else words[0]
    other = words[0] if back else words[1]
    length = 1.0 if scale == "unit" else np.linalg.norm(other.vectors.astype(np.float64), axis=1).mean()
    expected = fitted.translate(space, back=back, scale=scale)
    for translate in (
        fitted.translator(back=back, scale=scale),
        kedge.load_translator(run_files[0], back=back, scale=scale),
        kedge.load(run_files[0]).translator(back=back, scale=scale),
    ):
        assert isinstance(translate, Translator)
        assert translate.dims == ((100, 300) if back else (300, 100))
        np.testing.assert_array_equal(translate(space.vectors), expected)
        np.testing.assert_allclose(translate(space.vectors[3]), expected[3], rtol=1e-5, atol=1e-6 * length)
        assert translate(space.vectors).dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), length, rtol=1e-4)


def test_it_is_the_map_between_the_normalised_spaces_and_the_way_back_to_the_sphere(fitted, words):
    """By the tensors that fitting works with."""
    rows = torch.from_numpy(words[0].vectors[:50].copy())
    normalised = normalise(rows, torch.from_numpy(fitted.x_.center))
    mapped = normalised @ torch.from_numpy(fitted.map_.matrix)
    mapped = mapped / mapped.norm(dim=1, keepdim=True)
    expected = denormalise(mapped, torch.from_numpy(fitted.y_.center))
    np.testing.assert_allclose(fitted.translator()(rows.numpy()), expected, rtol=0, atol=1e-5)


def test_without_centering_it_is_the_map_alone(rotated, tmp_path):
    x, y = rotated(n=120)
    discovery = AnchorDiscovery(n_anchors=20, center=False, device="cpu").fit(x, y[:, :12], [(i, i) for i in range(20)])
    expected = unit(unit(x) @ discovery.map_.matrix)
    np.testing.assert_allclose(discovery.translator()(x), expected, rtol=0, atol=1e-5)
    discovery.save(tmp_path / "run")
    np.testing.assert_allclose(kedge.load_translator(tmp_path / "run")(x), expected, rtol=0, atol=1e-5)


def test_what_is_given_stays_as_it_is(fitted, words):
    kept = [words[0].vectors[:5].copy(), fitted.map_.matrix, fitted.x_.center, fitted.y_.center]
    before = [array.copy() for array in kept]
    fitted.translator(scale="raw")(kept[0])
    for array, copy in zip(kept, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_what_translating_takes_besides_does_not_grow_with_the_dimensions():
    dim, map_to_eight = 4096, LinearMap(np.full((4096, 8), 1 / 64, dtype=np.float32))
    centers = (np.zeros(size, dtype=np.float32) for size in (dim, 8))
    translate = Translator((TranslationStep(Normaliser(next(centers)), map_to_eight, Normaliser(next(centers))),))
    given = vectors(2000, dim)
    tracemalloc.start()
    translate(given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 2 * given.nbytes  # all rows at once, which are float64 for a while, would take four times as much


def test_many_rows_are_translated_as_one_by_one():
    translate = Translator((step(6, 4),))
    rows = vectors(9000, 6)  # more than are translated at once
    whole = translate(rows)
    assert whole.shape == (9000, 4)
    for some in (slice(0, 1), slice(4000, 4200), slice(8999, 9000)):
        np.testing.assert_allclose(whole[some], translate(rows[some]), rtol=1e-5, atol=1e-6)
    assert translate(rows[:0]).shape == (0, 4)


@pytest.mark.parametrize("given", [np.float64, np.float16, list])
def test_numbers_of_any_kind(given):
    translate = Translator((step(6, 4),))
    rows = vectors(5, 6).astype(np.float16)
    asked = rows.tolist() if given is list else rows.astype(given)
    np.testing.assert_allclose(translate(asked), translate(rows.astype(np.float32)), rtol=1e-6, atol=1e-7)


def test_how_long_a_vector_is_does_not_matter():
    translate = Translator((step(6, 4),))
    rows = vectors(20, 6)
    expected = translate(rows)
    for scale in (1e-30, 1e-3, 1e3, 1e30):
        np.testing.assert_allclose(translate(rows * np.float32(scale)), expected, rtol=1e-4, atol=1e-5)


# -- one after another ----------------------------------------------------------------------------


def test_one_after_another_is_one_translator():
    first, second = Translator((step(6, 5, 0),), length=3.0), Translator((step(5, 8, 1),), length=7.0)
    both = first.then(second)
    assert both.dims == (6, 8)
    rows = vectors(30, 6)
    np.testing.assert_allclose(both(rows), second(first(rows)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(both(rows), axis=1), 7.0, rtol=1e-5)  # as long as the last makes them
    third = Translator((step(8, 6, 2),))
    three = both.then(third)
    np.testing.assert_allclose(three(rows[0]), third(second(first(rows[0]))), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(three(rows), first.then(second.then(third))(rows), rtol=1e-6, atol=1e-6)


def test_a_run_there_and_a_run_on_lead_from_a_to_c(rotated, tmp_path):
    a, b = rotated(n=300, dim=12)
    c = b @ turn(12, 5)
    seeds = [(row, row) for row in range(20)]
    for name, (x, y) in {"ab": (a, b), "bc": (b, c)}.items():
        AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, seeds).save(tmp_path / name)
    there, on = (kedge.load_translator(tmp_path / name) for name in ("ab", "bc"))
    through = there.then(on)(a)
    np.testing.assert_allclose(through, on(there(a)), rtol=1e-5, atol=1e-5)
    assert ((through @ unit(c).T).argmax(axis=1) == np.arange(300)).mean() > 0.99
    back = kedge.load_translator(tmp_path / "ab", back=True)
    assert (((there.then(back)(a)) * unit(a)).sum(axis=1) > 0.95).all()  # there and back again


def test_translators_that_do_not_meet_are_refused():
    with pytest.raises(InputError, match="a translator into 5 dimensions cannot be followed by one from 8"):
        Translator((step(6, 5),)).then(Translator((step(8, 2),)))


# -- what has no direction ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), r"vectors must have shape \(k, 6\) or \(6,\), got \(2, 3\)"),
        (np.ones(3), r"got \(3,\)"),
        (np.ones((1, 2, 6)), r"got \(1, 2, 6\)"),
        (np.float32(1), r"got \(\)"),
        (np.array([[1] * 6, [np.nan] + [1] * 5]), "vectors, row 1: is zero or holds NaN or infinite values"),
        (np.array([np.inf] + [1] * 5), "vectors, row 0: is zero or holds NaN"),
        (np.full(6, 1e300), "vectors, row 0: is zero or holds NaN or infinite"),
        ("abcdef", "vectors must be numbers, of shape .k, 6. or .6,.: could not convert"),
        ([[1, 2], [1, 2, 3]], "vectors must be numbers, of shape"),
        ([None] * 6, "vectors(, row 0: is zero| must be numbers)"),
        (np.zeros((3, 6)), "vectors, row 0: is zero .*; omit it or encode it again"),
    ],
)
def test_what_cannot_be_translated_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Translator((step(6, 4),))(given)


def test_vectors_of_the_other_side_are_refused(fitted, run_files, words):
    for translate in (fitted.translator(), kedge.load_translator(run_files[0])):
        with pytest.raises(InputError, match=r"vectors must have shape \(k, 300\) or \(300,\), got \(2000, 100\)"):
            translate(words[1].vectors)


def test_there_are_two_scales(fitted, run_files):
    for make in (fitted.translator, lambda **options: kedge.load_translator(run_files[0], **options)):
        with pytest.raises(InputError, match="scale must be one of unit, raw, got 'long'"):
            make(scale="long")


def test_a_folder_that_holds_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such run folder"):
        kedge.load_translator(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no run.json"):
        kedge.load_translator(tmp_path)


# -- normalising, and back ------------------------------------------------------------------------


@given(st.integers(2, 20), st.integers(0, 1000), st.floats(0, 0.95))
@settings(deadline=None, max_examples=50)
def test_the_inverse_of_normalising_is_the_direction_it_came_from(dim, seed, length):
    chance = np.random.default_rng(seed)
    center = chance.standard_normal(dim)
    normaliser = Normaliser((length * center / np.linalg.norm(center)).astype(np.float32))
    rows = vectors(10, dim, seed)
    directions = normaliser(rows)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1, rtol=1e-5)
    found = normaliser.inverse(directions.copy())
    np.testing.assert_allclose(found, unit(rows), rtol=0, atol=2e-4)
    again = normaliser(found)
    np.testing.assert_allclose(again, directions, rtol=0, atol=2e-3)


def test_normalising_agrees_with_the_tensors_of_fitting(fitted, words):
    for side, space in ((fitted.x_, words[0]), (fitted.y_, words[1])):
        expected = normalise(torch.from_numpy(space.vectors.copy()), torch.from_numpy(side.center))
        np.testing.assert_allclose(side.normalise(space), expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(side.normaliser.inverse(side.normalise(space)), unit(space.vectors), atol=1e-5)
        assert side.normalise(space.vectors[0]).shape == (side.dim,)


def test_a_center_on_the_sphere_leaves_nothing_over():
    center = np.zeros(4, dtype=np.float32)
    center[0] = 1
    assert Normaliser(center).left_over == 0
    assert Normaliser(0 * center).left_over == 1
    found = Normaliser(center).inverse(unit_rows(vectors(20, 4)))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_unit_rows_leave_zero_rows_at_zero():
    rows = unit_rows(np.array([[3, 4], [0, 0]], dtype=np.float32))
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 0]])


# -- without torch --------------------------------------------------------------------------------

WITHOUT = """
import sys
class Refused:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("torch", "scipy", "pandas", "sklearn"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Refused())
import numpy as np, kedge
for back in (False, True):
    translate = kedge.load_translator(sys.argv[1], back=back, scale="raw")
    np.save(f"{sys.argv[2]}/{back}.npy", translate(np.load(f"{sys.argv[2]}/given-{back}.npy")))
"""


def test_it_translates_where_there_is_no_torch(fitted, run_files, words, tmp_path):
    for back, space in ((False, words[0]), (True, words[1])):
        np.save(tmp_path / f"given-{back}.npy", space.vectors[:20])
    done = subprocess.run([sys.executable, "-c", WITHOUT, run_files[0], str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for back, space in ((False, words[0]), (True, words[1])):
        expected = fitted.translate(space.vectors[:20], back=back, scale="raw")
        np.testing.assert_allclose(np.load(tmp_path / f"{back}.npy"), expected, rtol=1e-6, atol=1e-6)

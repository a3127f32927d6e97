"""Every family of maps keeps its promises; and one that is not linear takes a module and a line."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import kedge
from kedge import AnchorDiscovery, InputError
from kedge.geometry import Moments, moments_of, unit
from kedge.matching import DEFAULT_BUDGET, Problem
from kedge.models.maps import choosing
from kedge.models.maps.choosing import ChosenMap, choose_map, on_tensors
from kedge.models.maps.families import FAMILIES, candidates, form_of
from kedge.models.maps.lesson import Lesson
from kedge.models.maps.linear import LinearMap
from kedge.models.pair_fitting import moments_of_halves
from kedge.models.pair_model import choose_ridge
from kedge.runs.folder import seal

OURS = dict(FAMILIES)
ALL = OURS | {"kernel": "kernel_map"}


@pytest.fixture
def with_kernel(monkeypatch):
    """One more family: the line in the registry that it takes."""
    monkeypatch.setitem(FAMILIES, "kernel", "kernel_map")


def straight(rows: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Two spaces of which one is the other turned, in fewer dimensions, with noise."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((rows, 8)) * np.geomspace(1, 0.3, 8)
    turn, _ = np.linalg.qr(chance.standard_normal((8, 8)))
    return x.astype(np.float32), ((x @ turn)[:, :7] + noise * chance.standard_normal((rows, 7))).astype(np.float32)


def curved(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Two spaces of which one is the other bent: locally turned by angles that depend on where one is."""
    chance = np.random.default_rng(0)
    x = chance.standard_normal((rows, 6)) * np.geomspace(1, 0.6, 6)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    angle = 2.5 * x[:, 0]
    y = x.copy()
    y[:, 1], y[:, 2] = (
        np.cos(angle) * x[:, 1] - np.sin(angle) * x[:, 2],
        np.sin(angle) * x[:, 1] + np.cos(angle) * x[:, 2],
    )
    y[:, 3], y[:, 4] = (
        np.cos(angle) * x[:, 3] + np.sin(angle) * x[:, 4],
        np.cos(angle) * x[:, 4] - np.sin(angle) * x[:, 3],
    )
    turn, _ = np.linalg.qr(chance.standard_normal((6, 6)))
    return x.astype(np.float32), (y @ turn).astype(np.float32)


def problem_of(x: np.ndarray, y: np.ndarray) -> Problem:
    none = torch.empty(0, dtype=torch.int64)
    return Problem(unit(torch.from_numpy(x)), unit(torch.from_numpy(y)), none, none, DEFAULT_BUDGET)


def lesson_of(problem: Problem) -> Lesson:
    rows = torch.arange(len(problem.x))
    x, y = problem.spectrum_x, problem.spectrum_y
    strength = choose_ridge(x, y, moments_of_halves(problem, rows, rows))
    correlations = torch.linspace(0.9, 0.3, min(problem.dims)).double()
    return Lesson(moments_of(problem.x, problem.y), x, y, strength, correlations, lambda: (problem.x, problem.y))


# -- the protocol ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ALL)
def test_every_family_keeps_the_protocol(family):
    problem = problem_of(*straight(300))
    rows = problem.x[:40]
    home = importlib.import_module(ALL[family])
    labels = []
    for label, fitted in home.candidates(lesson_of(problem)):
        labels.append(label)
        assert isinstance(fitted, home.Form)
        assert fitted.dims == (8, 7)
        found = on_tensors(fitted, rows)
        assert found.shape == (40, 7)
        assert torch.isfinite(found).all()
        # What it learned is kept as float32 arrays, and is all that it takes to make it again.
        state = fitted.state()
        assert all(isinstance(array, np.ndarray) and array.dtype == np.float32 for array in state.values())
        kept = home.Form.from_state(state, (8, 7))
        assert kept.dims == (8, 7)
        assert kept.state().keys() == state.keys()
        for name, array in kept.state().items():
            np.testing.assert_array_equal(array, state[name])
        np.testing.assert_allclose(kept(rows.numpy()), found, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(on_tensors(kept, rows), found, rtol=1e-5, atol=1e-5)
        # Most rows come nearer to their partner than to any other.
        nearest = (unit(found) @ problem.y.T).argmax(dim=1)
        assert (nearest == torch.arange(40)).float().mean() > 0.4
        for wrong in ({}, state | {"more": np.ones(3, dtype=np.float32)}):
            with pytest.raises(InputError, match="map needs"):
                home.Form.from_state(wrong, (8, 7))
        with pytest.raises(InputError, match=r"map needs .* shape \(9, 7\)"):
            home.Form.from_state(state, (9, 7))
    assert labels
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("family", ALL)
def test_a_map_is_the_same_in_other_coordinates(family):
    """Fitted in principal axes, and kept in the coordinates that the spaces came with, which may be more."""
    problem = problem_of(*straight(200))
    chance = torch.Generator().manual_seed(0)
    source, target = (torch.linalg.qr(torch.randn(wide, dim, generator=chance))[0] for wide, dim in ((12, 8), (7, 7)))
    rows = unit(torch.randn(30, 12, generator=chance))
    for _, fitted in importlib.import_module(ALL[family]).candidates(lesson_of(problem)):
        turned = fitted.in_coordinates(source, target)
        assert turned.dims == (12, 7)
        expected = on_tensors(fitted, rows @ source) @ target.T
        torch.testing.assert_close(on_tensors(turned, rows), expected, rtol=1e-4, atol=1e-5)


class Eager:
    """A graph that computes what is drawn into it."""

    def __init__(self, **inputs: np.ndarray) -> None:
        self.values = dict(inputs)

    def constant(self, array: np.ndarray) -> str:
        return self._new(array)

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        assert (operator, attributes) == ("MatMul", {})
        return self._new(self.values[inputs[0]] @ self.values[inputs[1]])

    def _new(self, array: np.ndarray) -> str:
        self.values[f"value {len(self.values)}"] = array
        return list(self.values)[-1]


@pytest.mark.parametrize("family", OURS)
def test_our_families_are_drawn_as_they_compute(family):
    problem = problem_of(*straight(200))
    rows = problem.x[:10].numpy()
    for _, fitted in importlib.import_module(OURS[family]).candidates(lesson_of(problem)):
        graph = Eager(rows=rows)
        drawn = graph.values[fitted.onnx(graph, "rows")]
        np.testing.assert_allclose(drawn, on_tensors(fitted, problem.x[:10]), rtol=1e-5, atol=1e-6)


def test_all_candidates_come_with_their_family(with_kernel):
    problem = problem_of(*straight(200))
    found = list(candidates(lesson_of(problem)))
    assert list(dict.fromkeys(family for family, _, _ in found)) == list(ALL)
    assert {family for family, _, _ in candidates(lesson_of(problem), {"rotation": OURS["rotation"]})} == {"rotation"}
    for family, _, candidate in found:
        assert isinstance(candidate, form_of(family))


def test_there_is_no_family_of_another_name():
    with pytest.raises(InputError, match="no family of maps 'kernel'; the families are rotation, whiten-rotate"):
        form_of("kernel")


def test_a_linear_map_of_any_precision_is_kept_in_float32():
    matrix = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kept = LinearMap.from_tensor(matrix.T.contiguous().T).state()["matrix"]
    assert kept.dtype == np.float32
    assert kept.flags.c_contiguous
    np.testing.assert_allclose(kept, matrix, rtol=1e-6)


# -- the choice -----------------------------------------------------------------------------------


def chosen(spaces: tuple[np.ndarray, np.ndarray], known: int, **options) -> ChosenMap:
    rows = torch.arange(known)
    return choose_map(problem_of(*spaces), rows, rows, known, None, **options)


def test_a_map_that_is_not_linear_is_chosen_where_it_is_better(with_kernel):
    bent = chosen(curved(1200), 600)
    assert bent.family == "kernel"
    assert bent.description == {
        "family": "kernel", "kind": "kernel over 24 pairs", "mrr": bent.mrr, "overlap": bent.overlap,
        "tested": 600, "by_known": True,
    }  # fmt: skip
    best_of_ours = chosen(curved(1200), 600, families=OURS)
    assert best_of_ours.family in OURS
    assert bent.mrr + bent.overlap > best_of_ours.mrr + best_of_ours.overlap + 0.1
    # What it is said to do on pairs it has not seen, it does on others.
    x, y = (unit(torch.from_numpy(side)) for side in curved(1200))
    similarity = unit(on_tensors(bent.map, x[600:])) @ y.T
    own = similarity.gather(1, torch.arange(600, 1200)[:, None])
    assert float((1 / ((similarity > own).sum(dim=1) + 1)).mean()) == pytest.approx(bent.mrr, abs=0.06)


@pytest.mark.parametrize("noise", [0.05, 0.3, 1.0])
def test_maps_that_are_hopeless_on_some_searches_would_not_have_been_chosen(noise, monkeypatch):
    found = chosen(straight(3000, noise), 3000)
    monkeypatch.setattr(choosing, "_MANY", 10**9)  # every map on every search
    plain = chosen(straight(3000, noise), 3000)
    assert (found.label, found.tested) == (plain.label, plain.tested)
    assert (found.mrr, found.overlap) == pytest.approx((plain.mrr, plain.overlap))
    np.testing.assert_array_equal(found.map.state()["matrix"], plain.map.state()["matrix"])


def test_where_spaces_are_not_bent_a_linear_map_is_chosen_all_the_same(with_kernel):
    assert chosen(straight(800, noise=0.3), 400).family in OURS


def test_a_map_that_takes_rows_to_nothing_finds_nothing():
    """Of noise that is not centered, a map to zero had an MRR of 1.00: no row was closer than the partner."""
    generator = torch.Generator().manual_seed(0)
    x, y = (unit(torch.randn(400, 16, generator=generator)) for _ in range(2))
    rows = torch.arange(60)
    trial = choosing._Trial.from_pairs(Problem(x, y, rows, rows, DEFAULT_BUDGET), rows, rows, None, generator)
    assert (trial.scores(LinearMap(torch.zeros(16, 16)))[0] == 1 / 400).all()


def test_with_hardly_a_pair_nothing_is_tried(with_kernel):
    few = chosen(straight(300), 5)
    assert (few.family, few.label, few.mrr, few.overlap) == ("refined rotation", "refined rotation", None, None)


def test_of_soft_pairs_alone_the_map_is_whitened_rotated_and_recolored(with_kernel):
    problem = problem_of(*straight(300))
    none = torch.empty(0, dtype=torch.int64)
    soft = moments_of(problem.x, problem.y).cross
    found = choose_map(problem, none, none, 0, None, soft)
    assert (found.family, found.label) == ("whiten-rotate-recolor", "soft whiten-rotate-recolor")
    assert found.map.dims == (8, 7)


def test_moments_without_a_fold_are_those_of_the_others():
    x, y = (torch.from_numpy(side).double() for side in straight(60))
    total = moments_of(x, y) - moments_of(x[40:], y[40:])
    expected = moments_of(x[:40], y[:40])
    assert isinstance(total, Moments)
    for name in ("source", "cross", "target"):
        torch.testing.assert_close(getattr(total, name), getattr(expected, name))


# -- in a run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bent() -> AnchorDiscovery:
    """A discovery between curved spaces of which half is known, with the kernel family among those tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES, "kernel", "kernel_map")
        return AnchorDiscovery(n_anchors=30, device="cpu").fit(*curved(1000), [(row, row) for row in range(600)])


@pytest.fixture
def run(bent, with_kernel, tmp_path) -> Path:
    bent.save(tmp_path / "run")
    return tmp_path / "run"


def test_it_is_chosen_in_a_discovery_and_translates(bent):
    from kernel_map import KernelMap

    x, y = curved(1000)
    for name, back in (("map", False), ("map_back", True)):
        assert bent.map_scores_[name]["family"] == "kernel", back
    assert isinstance(bent.map_, KernelMap)
    assert (bent.map_.dims, bent.map_back_.dims) == ((6, 6), (6, 6))
    for source, target, back in ((x, y, False), (y, x, True)):
        found = bent.translate(source[600:], back=back) @ (target / np.linalg.norm(target, axis=1, keepdims=True)).T
        ranks = (found > found[np.arange(400), np.arange(600, 1000)][:, None]).sum(axis=1) + 1
        assert (1 / ranks).mean() == pytest.approx(bent.map_scores_["map_back" if back else "map"]["mrr"], abs=0.1)


def test_a_run_keeps_it(bent, run):
    stored = json.loads((run / "run.json").read_text())["maps"]
    assert stored["map"]["family"] == stored["map_back"]["family"] == "kernel"
    tensors = load_file(run / "map.safetensors")
    assert {f"{which}.{part}" for which in ("map", "map_back") for part in bent.map_.state()} <= set(tensors)
    x, y = curved(1000)
    loaded = kedge.load(run)
    for rows, back in ((x, False), (y, True)):
        expected = bent.translate(rows, back=back)
        np.testing.assert_array_equal(loaded.translate(rows, back=back), expected)
        np.testing.assert_array_equal(kedge.load_translator(run, back=back)(rows), expected)
    loaded.save(run.parent / "again")
    for path in run.iterdir():
        assert path.read_bytes() == (run.parent / "again" / path.name).read_bytes(), path.name


def test_without_its_family_a_run_says_what_is_missing(run, monkeypatch):
    monkeypatch.delitem(FAMILIES, "kernel")
    for load in (kedge.load, kedge.load_translator):
        with pytest.raises(InputError, match="map.safetensors: map: there is no family of maps 'kernel'; the families"):
            load(run)


def test_a_state_that_does_not_fit_is_refused(run):
    tensors = load_file(run / "map.safetensors")
    for change, message in (
        (lambda held: held.pop("map.missed"), "map: a kernel map needs a rotation, known and missed, got known, rota"),
        (lambda held: held.update({"map.known": held["map.known"][:3].copy()}), r"map: a kernel map needs missed of"),
        (lambda held: held.update({"map_back.rotation": np.full((6, 6), np.nan, np.float32)}), "map_back.rotation has"),
    ):
        changed = dict(tensors)
        change(changed)
        save_file(changed, run / "map.safetensors")
        seal(run)
        for load in (kedge.load, kedge.load_translator):
            with pytest.raises(InputError, match=message):
                load(run)


WITHOUT_TORCH = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["torch"] = sys.modules["scipy"] = None
from kedge.models.maps.families import FAMILIES
FAMILIES["kernel"] = "kernel_map"
import kedge, numpy as np
np.save(sys.argv[3], kedge.load_translator(sys.argv[2])(np.load(sys.argv[3])))
"""


def test_it_translates_without_torch(bent, run, tmp_path):
    rows = curved(1000)[0][:50]
    np.save(tmp_path / "rows.npy", rows)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(Path(__file__).parent), str(run), str(tmp_path / "rows.npy")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), bent.translate(rows), rtol=1e-5, atol=1e-6)

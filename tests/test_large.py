"""Spaces that are many rows, tried on few: discoveries through candidates and parts, in halves, and from half files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import rotated_spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge import AnchorDiscovery, Embeddings, InputError, Schedule, load, read_embeddings, write_embeddings
from kedge.cli.main import main
from kedge.estimators.devices import load_space
from kedge.geometry import center_of, nearest_rotation, normalise, principal_axes, unit
from kedge.matching import (
    DEFAULT_BUDGET,
    Problem,
    balanced,
    candidates,
    epsilon_schedule,
    readings,
    transport_step,
    transport_value,
)
from kedge.runs.folder import seal
from kedge.solving import annealing, attempts, finishing
from kedge.solving.annealing import anneal
from kedge.solving.fingerprints import _descending
from kedge.solving.sampling import dense_sample
from kedge.solving.schedule import schedules_for
from kedge.solving.starts import with_seeds
from kedge.solving.steps import Log
from kedge.spaces.pairs import read_table, write_table

ROWS = 1500
SCHEDULE = Schedule(sample_size=1000, rank=50, anneal_rounds=12)
SEEDS = [(row, row) for row in range(15)]


@contextmanager
def small_limits(*, quick: int | None = None, once: int = 0, finish: tuple[int, int] | None = None) -> Iterator[None]:
    """So many pairs of rows are few enough to compare them all, or to do that once; so many rows to finish on, and of X
    where not.
    """
    with pytest.MonkeyPatch.context() as patch:
        if quick is not None:
            patch.setattr(candidates, "_QUICK", {"cpu": quick, "cuda": quick})
            patch.setattr(candidates, "_QUICK_ONCE", {"cpu": once, "cuda": once})
        if finish is not None:
            patch.setattr(attempts, "FINISH_ROWS", finish[0])
            patch.setattr(attempts, "FINISH_ROWS_OF_X", finish[1])
        yield


@pytest.fixture(scope="module")
def spaces(words, word_seeds) -> tuple[Embeddings, Embeddings, list[tuple[str, str]]]:
    """Fewer of the words, in fewer dimensions, which takes a third of the time."""
    x, y = words
    kept = list(dict.fromkeys([*(key for key, _ in word_seeds), *x.keys]))[:ROWS]
    order = np.random.default_rng(5).permutation(ROWS)
    left, right = x.take(x.rows(kept)), y.take(y.rows([kept[row] for row in order]))
    return _leading(left), _leading(right), word_seeds


def _leading(space: Embeddings) -> Embeddings:
    """A space in its 50 leading axes."""
    rows = normalise(torch.from_numpy(space.vectors.copy()), center_of(torch.from_numpy(space.vectors.copy())))
    return Embeddings(space.keys, (rows @ principal_axes(rows, 50)).numpy())


def fit(spaces, **options) -> AnchorDiscovery:
    return AnchorDiscovery(n_anchors=50, device="cpu", schedule=SCHEDULE, **options).fit(*spaces)


@pytest.fixture(scope="module")
def exact(spaces) -> AnchorDiscovery:
    return fit(spaces)


@pytest.fixture(scope="module")
def approximate(spaces, tmp_path_factory) -> tuple[AnchorDiscovery, str]:
    """A discovery through candidates that was finished on a part, as that of many rows is, and its states."""
    states = tmp_path_factory.mktemp("large") / "states"
    with small_limits(quick=0, finish=(1000, 900)):
        return fit(spaces, checkpoint=states), str(states)


def right(discovery: AnchorDiscovery) -> int:
    return sum(left == found for left, found in discovery.pair_keys_)


def assert_same_result(one: AnchorDiscovery, other: AnchorDiscovery) -> None:
    for name in ("match_", "confidence_", "pairs_", "pair_confidence_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("map_", "map_back_"):
        np.testing.assert_array_equal(getattr(one, name).matrix, getattr(other, name).matrix)
    np.testing.assert_array_equal(one.y_.anchors["free"], other.y_.anchors["free"])
    assert one.history_ == other.history_
    assert one.health_ == other.health_
    assert one.candidate_recall_ == other.candidate_recall_


# -- whole discoveries ----------------------------------------------------------------------------


def test_a_discovery_through_candidates_finds_what_an_exact_one_does(approximate, exact):
    found, _ = approximate
    assert exact.candidate_recall_ is None
    assert right(exact) > 0.95 * ROWS
    assert right(found) >= right(exact) - 0.005 * ROWS
    assert len(found.pairs_) - right(found) <= len(exact.pairs_) - right(exact) + 0.005 * ROWS
    assert (found.match_ == exact.match_).mean() > 0.99
    assert found.health_.map.verdict == found.health_.pairs.verdict == "ok"
    assert found.health_.map.score == pytest.approx(exact.health_.map.score, abs=0.05)
    assert found.pair_confidence_.mean() == pytest.approx(exact.pair_confidence_.mean(), abs=0.02)
    assert (found.x_.anchors["free"].dtype, found.map_.matrix.dtype) == (np.float32, np.float32)
    assert found.candidate_recall_.checked == ROWS
    assert found.candidate_recall_.share > 0.98
    assert found.candidate_recall_.share_of_pairs >= found.candidate_recall_.share


def test_candidates_among_all_rows_compared_once_lead_to_nearly_the_same(spaces, exact):
    with small_limits(quick=0, once=ROWS**2):
        found = fit(spaces)
    assert found.candidate_recall_.share > 0.99
    assert (found.match_ == exact.match_).mean() > 0.995
    assert right(found) >= right(exact) - 0.002 * ROWS


def test_candidates_without_a_part_to_finish_on(rotated):
    """The limits are independent of each other."""
    with small_limits(quick=300**2 - 1):
        found = AnchorDiscovery(n_anchors=20, device="cpu").fit(*rotated(noise=0.1), SEEDS)
    assert found.candidate_recall_.share == 1
    assert (found.match_ == np.arange(300)).mean() > 0.99


@pytest.mark.thorough
def test_finishing_on_a_part_gives_nearly_the_same_matches(spaces, exact):
    with small_limits(finish=(ROWS - 1, 900)):
        found = fit(spaces)
    assert found.candidate_recall_ is None
    assert len(found.match_) == ROWS
    assert (found.match_ == exact.match_).mean() > 0.99
    assert abs(right(found) - right(exact)) <= 0.005 * ROWS


def test_exact_compares_all_rows_whatever_their_number(rotated):
    x, y = rotated(noise=0.3)
    expected = AnchorDiscovery(n_anchors=20, device="cpu").fit(x, y, SEEDS)
    with small_limits(quick=0):
        found = AnchorDiscovery(n_anchors=20, device="cpu", exact=True).fit(x, y, SEEDS)
    assert found.candidate_recall_ is expected.candidate_recall_ is None
    assert_same_result(found, expected)


LOST = {
    "confidence": ("confidence",),
    "match": ("confidence", "attempt-1-all"),
    "part": ("confidence", "attempt-1-all", "chance", "attempt-1-finished"),
}


@pytest.mark.parametrize(
    "lost", ["part", *(pytest.param(name, marks=pytest.mark.thorough) for name in LOST if name != "part")]
)
def test_a_stopped_discovery_through_candidates_goes_on_to_the_same_result(approximate, spaces, tmp_path, lost):
    undisturbed, states = approximate
    shutil.copytree(states, tmp_path / "states")
    for stage in LOST[lost]:
        (tmp_path / "states" / f"{stage}.safetensors").unlink()
    with small_limits(quick=0, finish=(1000, 900)):
        assert_same_result(fit(spaces, checkpoint=tmp_path / "states"), undisturbed)


@pytest.mark.parametrize("noise", [0.1, 0.5])  # it settles, or it does not
def test_candidates_that_miss_partners_are_looked_for_again(rotated, tmp_path, monkeypatch, noise):
    """Once, by the reading that has become better meanwhile; and when stopped after that, with the same result."""
    monkeypatch.setattr(finishing, "_MIN_CANDIDATE_RECALL", 1.01)
    sought = []

    def find(x, y, **options):
        sought.append(len(x))
        return candidates.find_candidates(x, y, **options)

    monkeypatch.setattr(readings, "find_candidates", find)
    states = tmp_path / "states"
    spaces = *rotated(noise=noise), SEEDS
    with small_limits(quick=0, finish=(200, 150)):
        found = fit(spaces, checkpoint=states)
        assert sought == [300, 300]  # at first, and once again
        (states / "confidence.safetensors").unlink()
        again = fit(spaces, checkpoint=states)
        assert sought == [300, 300]  # they were kept
    assert_same_result(again, found)


def test_candidates_that_miss_no_partner_are_looked_for_once(rotated, monkeypatch):
    sought = []

    def find(x, y, **options):
        sought.append(len(x))
        return candidates.find_candidates(x, y, **options)

    monkeypatch.setattr(readings, "find_candidates", find)
    with small_limits(quick=0, finish=(200, 150)):
        fit((*rotated(noise=0.1), SEEDS))
    assert sought == [300]


@pytest.mark.parametrize("exactly_first", [True, False])
def test_it_goes_on_where_rows_are_compared_otherwise(rotated, tmp_path, exactly_first):
    """On a device that compares all rows, or on one that does not."""
    x, y = rotated(noise=0.1)
    quick = [10**9, 0] if exactly_first else [0, 10**9]
    found = []
    for limit in quick:
        with small_limits(quick=limit, finish=(200, 150)):
            found.append(AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "states").fit(x, y, SEEDS))
    assert [discovery.candidate_recall_ is None for discovery in found] == [exactly_first, not exactly_first]
    np.testing.assert_array_equal(found[0].match_, found[1].match_)


def test_a_run_says_that_it_was_approximate(approximate, exact, tmp_path):
    found, _ = approximate
    found.save(tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["approximate"]
    assert stored == {
        "summary": f"approximate: {100 * found.candidate_recall_.share:.1f} % of {ROWS} checked rows as exact",
        "checked": ROWS,
        "share": found.candidate_recall_.share,
        "checked_pairs": found.candidate_recall_.checked_pairs,
        "share_of_pairs": found.candidate_recall_.share_of_pairs,
    }
    again = load(tmp_path / "run")
    assert again.candidate_recall_ == found.candidate_recall_
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "run.json").read_text() == (tmp_path / "run" / "run.json").read_text()
    exact.save(tmp_path / "exact")
    assert json.loads((tmp_path / "exact" / "run.json").read_text())["approximate"] is None
    assert load(tmp_path / "exact").candidate_recall_ is None


def test_runs_from_before_there_were_candidates_still_load(exact, tmp_path):
    exact.save(tmp_path / "run")
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    del run["approximate"], run["settings"]["exact"], run["settings"]["schedule"]["parts"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    seal(tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.candidate_recall_ is None
    np.testing.assert_array_equal(again.pairs_, exact.pairs_)
    assert main(["info", str(tmp_path / "run")]) == 0


def test_the_command_line_says_how_exact_it_was(small_files, tmp_path, capsys):
    x, y, seeds = small_files
    command = ["discover", x, y, "--seeds", seeds, "--anchors", "20", "--device", "cpu"]
    with small_limits(quick=0, finish=(100, 90)):
        assert main([*command, "--out", str(tmp_path / "exact"), "--exact", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["approximate"] is None
        assert main([*command, "--out", str(tmp_path / "run"), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["approximate"]["checked"] == 120
        assert shown["approximate"]["share"] > 0.98
        assert main([*command, "--out", str(tmp_path / "shown")]) == 0
        assert "approximate: 100.0 % of 120 checked rows as exact" in capsys.readouterr().out
    pairs = [read_table(tmp_path / name / "pairs.tsv") for name in ("exact", "run")]
    assert {(row["x"], row["y"]) for row in pairs[0]} == {(row["x"], row["y"]) for row in pairs[1]}


def test_tiny_spaces_go_through_candidates_too(rotated):
    """Fewer rows than candidates are kept for each."""
    x, y = rotated(n=9, noise=0.5)
    with small_limits(quick=0, finish=(5, 6)):
        discovery = AnchorDiscovery(n_anchors=2, device="cpu", schedule=SCHEDULE).fit(x, y[:8], SEEDS[:3])
    assert discovery.candidate_recall_.checked == 9
    assert np.isfinite(discovery.map_.matrix).all()


def test_rows_are_held_in_halves_only_where_they_are_many(rotated):
    x = rotated()[0]
    for dtype in (torch.float32, torch.float16):
        loaded = load_space(x, torch.device("cpu"), "x", center=True, dtype=dtype)
        assert loaded.rows.dtype == dtype
        assert loaded.center.dtype == torch.float32
    plain = load_space(x, torch.device("cpu"), "x", center=True)
    torch.testing.assert_close(loaded.rows.float(), plain.rows, rtol=0, atol=2e-3)


# -- samples --------------------------------------------------------------------------------------


def as_problem(x, y, seeds=()) -> Problem:
    known = torch.tensor(seeds, dtype=torch.int64).reshape(-1, 2).T.contiguous()
    left, right_ = (unit(torch.as_tensor(side)) for side in (x, y))
    return Problem(left, right_, *known, DEFAULT_BUDGET)


def test_dense_samples_hold_the_same_items_far_more_often_than_chance(rotated):
    x, y = rotated(n=3000, dim=24, noise=0.1)
    order = np.random.default_rng(1).permutation(3000)
    seeds = [(int(order[row]), row) for row in (5, 700, 2999)]
    problem = as_problem(x, y[order], seeds)  # row i of y is that of item order[i]
    sample = dense_sample(problem, 500, torch.Generator().manual_seed(0))
    assert 500 <= len(sample.x) <= 503
    assert 500 <= len(sample.y) <= 503
    assert sample.exact
    for whole, drawn, known, again in (
        (problem.x, sample.x, problem.seeds_x, sample.seeds_x),
        (problem.y, sample.y, problem.seeds_y, sample.seeds_y),
    ):
        assert torch.equal(drawn[again], whole[known])
    # A sampled row is a row of the space, told by its numbers.
    item_of_x = {tuple(row): item for item, row in enumerate(problem.x.tolist())}
    item_of_y = {tuple(row): int(order[place]) for place, row in enumerate(problem.y.tolist())}
    items_x = {item_of_x[tuple(row)] for row in sample.x.tolist()}
    items_y = {item_of_y[tuple(row)] for row in sample.y.tolist()}
    assert len(items_x) == len(sample.x)
    assert len(items_x & items_y) > 2.5 * 500 * 500 / 3000
    # With no more rows than are drawn to tell density by, it is that among all.
    nearest = (problem.x @ problem.x.T).topk(4, dim=1).values[:, -1]
    assert items_x >= set(nearest.topk(500).indices[:490].tolist())


def test_a_dense_sample_of_few_rows_is_all_of_them(rotated):
    x, y = rotated(n=60)
    problem = as_problem(x, y[:50], [(3, 3)])
    everything = dense_sample(problem, 60, torch.Generator())
    assert torch.equal(everything.x, problem.x)
    assert torch.equal(everything.y, problem.y)
    sample = dense_sample(problem, 55, torch.Generator())  # fewer than one side has, more than the other
    assert (len(sample.x), len(sample.y)) in {(55, 50), (56, 50)}
    assert torch.equal(sample.y, problem.y)


def test_samples_follow_the_number_of_rows():
    assert [schedule.sample_size for schedule in schedules_for(0, rows=500)] == [500] * 6
    assert {schedule.sample_size for schedule in schedules_for(0, rows=10**6)} == {8000, 20_000, 40_000}
    assert len(schedules_for(0, rows=10**6)) > len(schedules_for(0, rows=500))
    with pytest.raises(InputError, match="parts must be at least 1"):
        Schedule(parts=0)


# -- annealing ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def turned() -> tuple[Problem, torch.Tensor]:
    """Two spaces with noise, the second turned and in another order, and which row of it is whose."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(500, 12, generator=chance) * torch.logspace(0, -1, 12)
    turn, _ = torch.linalg.qr(torch.randn(12, 12, generator=chance))
    order = torch.randperm(500, generator=chance)
    y = (x @ turn + 0.05 * torch.randn(500, 12, generator=chance))[order]
    return as_problem(x, y, [(int(order[row]), row) for row in range(20)]), order.argsort()


def started(problem: Problem) -> torch.Tensor:
    cross = problem.x[problem.seeds_x].T @ problem.y[problem.seeds_y]
    return nearest_rotation(cross.double()).float()


def annealed(problem: Problem, schedule: Schedule, log: Log | None = None, hints=None) -> torch.Tensor:
    x, y = problem.x, problem.y
    return anneal(problem, x, y, started(problem), schedule, log or Log(), hints, until_sharp=True).rotation


def test_a_round_both_ways_averages_the_cross_moments_of_both_plans(turned):
    problem, _ = turned
    x, y, start = problem.x[:400], problem.y, started(problem)
    no_seeds = problem.seeds_x[:0]
    some = replace(problem, x=x, seeds_x=no_seeds, seeds_y=no_seeds)
    schedule = Schedule(anneal_rounds=1, epsilon_start=0.05, epsilon_end=0.05, parts=1, both_ways=True)
    found = anneal(some, x, y, start, schedule, Log()).rotation
    similarity = unit(x @ start) @ y.T / 0.05
    forth, back = similarity.softmax(dim=1), similarity.softmax(dim=0)
    expected = nearest_rotation((x.T @ (forth / len(x) + back / len(y)) @ y).double()).float()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_parts_both_ways_come_to_what_all_rows_come_to(turned):
    problem, partner = turned
    schedule = Schedule(anneal_rounds=24, epsilon_start=0.02, epsilon_end=0.02, parts=1, both_ways=True)
    rotations = [annealed(problem, replace(schedule, parts=parts)) for parts in (1, 3)]
    for rotation in rotations:
        nearest = (unit(problem.x @ rotation) @ problem.y.T).argmax(dim=1)
        assert (nearest == partner).float().mean() > 0.9
    torch.testing.assert_close(*rotations, rtol=0, atol=0.05)


def test_a_rotation_that_stands_still_is_left_alone(turned):
    problem, _ = turned
    schedule = Schedule(anneal_rounds=200, epsilon_start=0.02, epsilon_end=0.02, parts=1, both_ways=True)
    log = Log()
    anneal(problem, problem.x, problem.y, started(problem), schedule, log, fade=False, until_still=True)
    assert 1 < len(log.history) < 100


def test_the_value_of_a_plan_is_the_entropic_cost_by_pot(turned):
    ot = pytest.importorskip("ot")
    problem, _ = turned
    x, y = problem.x[:60].double(), problem.y[:80].double()
    value = transport_value(x, y, 0.05, rounds=500)
    plan = torch.from_numpy(
        ot.sinkhorn(np.full(60, 1 / 60), np.full(80, 1 / 80), -(x @ y.T).numpy(), 0.05, numItermax=5000, stopThr=1e-12)
    )
    entropy = (plan * (plan * 60 * 80).log()).sum()
    assert value == pytest.approx(float((plan * (x @ y.T)).sum() - 0.05 * entropy), abs=1e-5)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_a_whole_step_to_balance_is_that_of_the_transport_step(n, m, seed):
    chance = torch.Generator().manual_seed(seed)
    a, b = (unit(torch.randn(count, 4, generator=chance)) for count in (n, m))
    potential = 0.1 * torch.rand(m, generator=chance)
    plan = transport_step(a, b, potential, 0.1)
    torch.testing.assert_close(balanced(potential, plan.received, 0.1), plan.potential)
    half = balanced(potential, plan.received, 0.1, 0.5)
    torch.testing.assert_close(half, (potential + plan.potential) / 2)
    shares = ((a @ b.T + potential) / 0.1).softmax(dim=1).mean(dim=0)
    torch.testing.assert_close(plan.received, shares.log(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("with_hints", [False, True])
def test_in_one_part_each_round_is_one_sinkhorn_step(turned, monkeypatch, with_hints):
    monkeypatch.setattr(annealing, "_SHARP", 2.0)  # never
    problem, _ = turned
    x, y = problem.x, problem.y
    hints = (x[:, :3].contiguous(), y[:, :3].contiguous()) if with_hints else None
    schedule = Schedule(anneal_rounds=3, parts=1)
    rotation, potential = started(problem), torch.zeros(len(y))
    for index, epsilon in enumerate(epsilon_schedule(0.1, 0.02, 3)):
        remaining = 1 - index / 3
        source, target = unit(x @ rotation), y
        if hints:
            source, target = (
                torch.cat([side, remaining * hint], dim=1) for side, hint in zip((source, target), hints, strict=True)
            )
        plan = transport_step(source, target, potential, epsilon, values=y)
        potential = plan.potential
        rotation = nearest_rotation(with_seeds((x.T @ plan.targets).double(), x, y, problem, 0.1 * remaining)).float()
    torch.testing.assert_close(annealed(problem, schedule, hints=hints), rotation, rtol=0, atol=1e-4)


@pytest.mark.parametrize("parts", [2, 3])
def test_in_parts_each_round_learns_from_the_last_plans_of_all(turned, monkeypatch, parts):
    """By hand: the rows of one part are sent anew, the columns get what all parts sent last."""
    monkeypatch.setattr(annealing, "_SHARP", 2.0)  # never
    problem, _ = turned
    x, y = problem.x, problem.y
    rotation, potential = started(problem), torch.zeros(len(y))
    crosses, shares, rows = {}, {}, {}
    for index, epsilon in enumerate(epsilon_schedule(0.1, 0.02, 5)):
        turn = index % parts
        part = x[turn::parts]
        plan = ((unit(part @ rotation) @ y.T + potential) / epsilon).softmax(dim=1)
        crosses[turn], shares[turn], rows[turn] = (part.T @ plan @ y).double(), plan.mean(dim=0), len(part)
        received = torch.stack(list(shares.values())).mean(dim=0)
        potential = potential - epsilon * (received * len(y)).log() / len(shares)
        cross = sum(crosses.values()) * len(x) / sum(rows.values())
        rotation = nearest_rotation(with_seeds(cross, x, y, problem, 0.1 * (1 - index / 5))).float()
    found = annealed(problem, Schedule(anneal_rounds=5, parts=parts))
    torch.testing.assert_close(found, rotation, rtol=0, atol=1e-3)


@pytest.mark.parametrize("parts", [2, 3])
def test_in_parts_annealing_comes_to_nearly_the_same(turned, parts):
    problem, partner = turned
    at_once, by_parts = (annealed(problem, Schedule(anneal_rounds=20, parts=count)) for count in (1, parts))
    for rotation in (at_once, by_parts):
        torch.testing.assert_close(rotation @ rotation.T, torch.eye(12), rtol=0, atol=1e-4)
        found = (unit(problem.x @ rotation) @ problem.y.T).argmax(dim=1)
        assert (found == partner).float().mean() > 0.9
    assert torch.linalg.matrix_norm(at_once - by_parts) < 0.3


@pytest.mark.thorough
def test_in_parts_words_are_found_as_at_once(spaces, exact):
    """The default takes X in two parts."""
    assert SCHEDULE.parts == 2
    at_once = AnchorDiscovery(n_anchors=50, device="cpu", schedule=replace(SCHEDULE, parts=1)).fit(*spaces)
    assert (at_once.match_ == exact.match_).mean() > 0.99
    assert abs(right(at_once) - right(exact)) <= 0.005 * ROWS


def test_more_parts_than_rows_are_as_many_as_there_are_rows(rotated):
    x, y = rotated(n=4)
    discovery = AnchorDiscovery(n_anchors=2, device="cpu", schedule=Schedule(anneal_rounds=6, parts=5))
    assert np.isfinite(discovery.fit(x, y, [(0, 0), (1, 1)]).map_.matrix).all()


def test_annealing_ends_when_plans_are_sharp(turned):
    problem, _ = turned
    steps = []
    log = Log(steps.append)
    annealed(problem, Schedule(anneal_rounds=40, epsilon_end=0.005), log)
    sharp = [step.figures["sharpness"] >= annealing._SHARP for step in log.history]
    assert 1 < len(sharp) < 40
    assert sharp == [False] * (len(sharp) - 1) + [True]
    assert steps == log.history
    assert [step.index for step in steps] == list(range(1, len(sharp) + 1))
    assert {(step.stage, step.total) for step in steps} == {("anneal", 40)}


# -- fingerprints ---------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(1, 200), st.integers(1, 3), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_profiles_are_sorted_as_torch_does(n, m, threads, seed):
    block = torch.randn(n, m, generator=torch.Generator().manual_seed(seed)).round(decimals=1)  # with ties
    expected = block.sort(dim=1, descending=True).values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        found = _descending(block.clone())
    assert torch.equal(found, expected)


# -- files in half precision ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def half_files(tmp_path_factory) -> list[str]:
    """Two .npy files of float16, of an odd number of dimensions, the second the first rotated, and one of seeds."""
    path = tmp_path_factory.mktemp("halves")
    keys = [f"r{row}" for row in range(150)]
    for name, vectors in zip(("x.npy", "y.npy"), rotated_spaces(n=150, dim=15, noise=0.02), strict=True):
        np.save(path / name, vectors.astype(np.float16))
        (path / name).with_suffix(".keys.txt").write_text("".join(f"{key}\n" for key in keys))
    write_table(path / "seeds.tsv", ("x", "y"), [(key, key) for key in keys[:15]])
    return [str(path / name) for name in ("x.npy", "y.npy", "seeds.tsv")]


def test_half_files_stay_mapped_as_they_are(half_files):
    space = read_embeddings(half_files[0])
    assert space.vectors.dtype == np.float16
    assert isinstance(space.vectors, np.memmap)
    assert read_embeddings(half_files[0], limit=20).vectors.dtype == np.float16  # a head is mapped too
    some = space.take([5, 3])
    np.testing.assert_array_equal(some.vectors, np.load(half_files[0])[[5, 3]].astype(np.float32))
    # In memory halves become float32: there is nothing to be saved.
    assert Embeddings(["a"], np.ones((1, 3), dtype=np.float16)).vectors.dtype == np.float32


def test_bad_rows_of_half_files_are_named(tmp_path):
    vectors = np.ones((4, 3), dtype=np.float16)
    vectors[2, 1] = np.inf
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(InputError, match="the vector of key '2' .row 2. has NaN or infinite"):
        read_embeddings(tmp_path / "x.npy")
    vectors[2] = 0
    np.save(tmp_path / "x.npy", vectors)
    with pytest.raises(InputError, match="row 2. is a zero vector"):
        read_embeddings(tmp_path / "x.npy")


def test_a_fit_from_half_files_is_that_of_the_same_numbers(half_files, tmp_path):
    halves = [read_embeddings(path) for path in half_files[:2]]
    plain = [Embeddings(space.keys, np.array(space.vectors, dtype=np.float32)) for space in halves]
    seeds = [(f"r{row}", f"r{row}") for row in range(15)]
    found, expected = (AnchorDiscovery(n_anchors=20, device="cpu").fit(*pair, seeds) for pair in (halves, plain))
    assert_same_result(found, expected)
    assert found.x_.mean_norm == expected.x_.mean_norm
    for use in (found.translate, found.x_.shared, found.x_.relative, found.x_.whiten, found.x_.normalise):
        results = [use(space) for space in (halves[0], plain[0])]
        assert [result.dtype for result in results] == [np.float32] * 2
        np.testing.assert_allclose(*results, rtol=0, atol=1e-6)
    found.require_spaces(*halves)
    # An odd number of halves a row is no whole number of words.
    first = AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "states").fit(*halves, seeds)
    again = AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "states").fit(*halves, seeds)
    assert_same_result(first, again)
    assert_same_result(first, found)
    other = halves[1].take([*range(1, 150), 0])
    with pytest.raises(InputError, match="whose Y differs"):
        AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "states").fit(halves[0], other, seeds)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".parquet", ".vec", ".bin", ".txt.gz"])
def test_half_files_become_float32_in_other_formats(half_files, tmp_path, suffix):
    space = read_embeddings(half_files[0])
    write_embeddings(space, tmp_path / f"out{suffix}")
    again = read_embeddings(tmp_path / f"out{suffix}")
    assert again.vectors.dtype == np.float32
    assert list(again.keys) == list(space.keys)
    np.testing.assert_array_equal(again.vectors, np.asarray(space.vectors, dtype=np.float32))


def test_the_commands_take_half_files(half_files, tmp_path, capsys):
    x, y, seeds = half_files
    run = str(tmp_path / "run")
    assert main(["discover", x, y, "--seeds", seeds, "--anchors", "20", "--device", "cpu", "--out", run]) == 0
    assert main(["convert", x, str(tmp_path / "x.npz")]) == 0
    assert read_embeddings(tmp_path / "x.npz").vectors.dtype == np.float32
    translated = {}
    for name in (x, str(tmp_path / "x.npz")):
        out = tmp_path / f"translated-{len(translated)}.npy"
        assert main(["translate", run, name, "--out", str(out)]) == 0
        translated[name] = np.load(out)
        assert translated[name].dtype == np.float32
    np.testing.assert_allclose(*translated.values(), rtol=0, atol=1e-6)
    assert main(["evaluate", run, x, y, "--gold", "keys", "--device", "cpu"]) == 0
    capsys.readouterr()

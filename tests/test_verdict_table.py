"""`benchmarks/verdicts.py`: what is counted, of how many, and that it goes on where it stopped."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import setting
from setting import run_cases
from verdicts import KINDS, Case, draw, grid, summarise

BINS = 10


@dataclass(frozen=True)
class Sum:
    """A case that takes no time."""

    number: int


@pytest.fixture
def begun(monkeypatch) -> list[Sum]:
    """The cases that were run, by threads in place of processes."""
    monkeypatch.setattr(setting, "ProcessPoolExecutor", lambda jobs, *_: ThreadPoolExecutor(jobs))
    return []


def adding_one(begun: list[Sum]) -> Callable[[Path, Sum, str], dict[str, Any]]:
    def add_one(data: Path, case: Sum, device: str) -> dict[str, Any]:
        begun.append(case)
        return {"answer": case.number + 1}

    return add_one


def given(out: Path, minutes: float = math.inf) -> argparse.Namespace:
    return argparse.Namespace(data=None, device="cpu", jobs=2, out=out, minutes=minutes)


def test_what_was_done_is_not_done_again(begun, tmp_path):
    some, all_of_them = [Sum(1), Sum(2)], [Sum(1), Sum(2), Sum(3)]
    out = tmp_path / "runs.jsonl"
    add_one = adding_one(begun)
    assert run_cases(add_one, some, given(out)) == {Sum(1): {"answer": 2}, Sum(2): {"answer": 3}}
    assert len(run_cases(add_one, all_of_them, given(out))) == 3
    assert sorted(case.number for case in begun) == [1, 2, 3]
    assert len(out.read_text().splitlines()) == 3
    assert run_cases(add_one, [Sum(3)], given(out)).keys() == {Sum(3)}  # those that were asked for, and no others


def test_no_case_is_begun_when_the_time_is_up(begun, tmp_path):
    out, add_one = tmp_path / "runs.jsonl", adding_one(begun)
    assert run_cases(add_one, [Sum(1)], given(out, minutes=0)) == {}
    assert not begun
    run_cases(add_one, [Sum(1)], given(out))
    assert len(run_cases(add_one, [Sum(1), Sum(2)], given(out, minutes=0))) == 1  # what is done counts


def made_up(reached: float, verdicts: tuple[str, str, str], listed: int, right: int, interval=(0.5, 0.4, 0.6)) -> dict:
    """A run of which half is shared, and whose pairs were said to be right at .95."""
    searching, pairs, lexicon = verdicts
    table = np.zeros((3, BINS))
    table[:, -1] = listed, 0.95 * listed, right
    return {
        "searching": (0.9 if searching == "ok" else 0.1, searching),
        "pairs": (0.9, pairs),
        "lexicon": (0.9, lexicon, listed, right),
        "map_right": reached >= 0.5,
        "overlap": [interval, interval],
        "shared": [0.5, 0.5],
        "listed": listed,
        "right": right,
        "recall": 0.5,
        "reliability": table.tolist(),
    }


def test_false_verdicts_are_counted_among_those_that_could_be_false():
    cases = [Case("shares", "easy", share, 15, 0) for share in (1.0, 0.5, 0.1)] + [Case("noise", "gauss-3", 0.0, 0, 0)]
    noise = made_up(0.0, ("ok", "ok", "ok"), 0, 0, (None, 0.0, 1.0)) | {"shared": [0.0, 0.0]}
    runs = [
        made_up(0.9, ("ok", "ok", "ok"), 100, 95),
        made_up(0.9, ("failed", "ok", "ok"), 100, 40, (0.8, 0.7, 0.9)),
        made_up(0.1, ("failed", "failed", "failed"), 0, 0),
        noise,
    ]
    summary = summarise(dict(zip(cases, runs, strict=True)))
    whole = summary["all"]
    assert whole["runs"] == 4
    assert whole["false ok: searching"] == "1 of 2"  # noise; the run whose map failed is not right either
    assert whole["false ok: pairs"] == "2 of 3"  # mostly wrong ones, and none at all
    assert whole["false ok: lexicon"] == "2 of 3"
    assert whole["false failed: searching"] == "1 of 2"
    assert whole["intervals that hold"] == "3 of 4"
    assert whole["pairs"] == 200
    assert whole["calibration error"] == pytest.approx((190 - 135) / 200)
    assert whole["of one run"] == pytest.approx((0.0 + 0.55) / 2)
    assert whole["AUROC"] == 0.5
    groups = ["shares", "noise", "of 15 seeds", "of share 0.1", "of share 0.5", "of share 1", "of words", "all"]
    assert list(summary) == groups
    assert summary["of words"]["runs"] == summary["shares"]["runs"] == 3
    json.dumps(summary)
    assert summarise({})["all"]["false ok: pairs"] == "0 of 0"  # before the first run is done


def test_every_kind_is_in_a_fair_sample_of_the_cases():
    asked = argparse.Namespace(
        pairs=["easy"], kinds=KINDS, shares=(0.0, 1.0), seeds=(0, 15), states=2, rows=100, axes=16
    )
    cases = grid(asked)
    assert len(set(cases)) == len(cases)
    assert {case.kind for case in cases} == set(KINDS)
    assert {case.kind for case in cases[: len(cases) // 2]} == set(KINDS)
    assert {(case.rows, case.axes, case.state) for case in cases} == {(100, 16, 0), (100, 16, 1)}


def test_noise_has_nothing_in_common_and_seeds_of_anything():
    spaces, seeds = draw(Path(), Case("noise", "gauss-3", 0.0, 15, 0, rows=60))
    assert spaces.x.shape == spaces.y.shape == (60, 3)
    assert (spaces.truth == -1).all()
    assert seeds.shape == (15, 2)

"""What `kedge check` says of the rows that it takes where little is shared: it comes from runs that were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kedge.cli.find import rows_needed as module
from kedge.cli.find.rows_needed import RUNS, SEEDS, Run, advice_on_rows, rows_needed

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "rows-needed-h200.jsonl"


def test_enough_is_from_where_on_every_run_reached_enough(monkeypatch):
    runs = [("a", 10, 0.9), ("b", 20, 0.2), ("c", 30, 0.7), ("d", 40, 0.9)]
    monkeypatch.setattr(module, "RUNS", [Run(name, 0.5, 100 * rows, 100, reached) for name, rows, reached in runs])
    assert rows_needed(0.5, 100) == 3000
    assert rows_needed(0.5, 384) == pytest.approx(30 * 384, abs=50)


def test_the_advice_says_what_it_takes_and_what_was_given():
    nothing, half = (rows_needed(share, 384) for share in (0.0, 0.5))
    assert 1000 < half < nothing
    advice = advice_on_rows(3000, 384)
    assert f"from {nothing:,} rows per side if the files shared nothing else" in advice
    assert f"from {half:,} if they shared half of their items; you gave 3,000" in advice


def test_the_figures_are_those_that_were_measured():
    lines = map(json.loads, RESULTS.read_text().splitlines())
    measured = {
        Run(line["pair"], line["share"], line["rows"], line["dimensions"], round(line["reached"], 2))
        for line in lines
        if line["seeds"] == SEEDS
    }
    assert set(RUNS) == measured

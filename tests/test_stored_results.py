"""Figures as files: results are kept row by row, and the tables of the pages are what the files hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from test_docs import parse_benchmark

from kedge import Embeddings
from kedge.geometry import unit
from kedge.matching import DEFAULT_BUDGET, Problem, match_csls
from layouts import LAYOUTS
from methods import draw, scores
from paper.pairs_of_spaces import SpacePair
from reading import READINGS, ceiling, share_right
from rival_methods import FROM_PAIRS, WITHOUT_PAIRS, by_vecmap
from run import BENCHMARKS, RESULTS, SIZES, command_of, listing
from stored import Record, read_record
from tables import BLOCK, ROOT, pages, with_tables


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in pages()])
def test_tables_are_what_their_files_hold(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(re.findall("^<!-- table: ", text, flags=re.MULTILINE)) == len(BLOCK.findall(text)), "a table has no end"
    assert with_tables(text) == text, "python benchmarks/tables.py makes the tables anew"


def test_every_stored_result_of_a_table_is_named_by_a_page():
    named = {file for page in pages() for _, files in BLOCK.findall(page.read_text()) for file in files.split()}
    ours = {f"{name}-{size}.json" for name in BENCHMARKS for size in SIZES}
    stored = {path.name for path in RESULTS.glob("*.json")}
    assert stored & ours <= named
    assert named <= stored | ours, "what is not stored can be run"


def test_a_page_that_differs_is_noticed(tmp_path):
    rows = [{"case": {"rows": 10, "repeat": 0}, "machine": "a desk", "commit": "abc1234", "seconds": 3.0}]
    rows[0] |= {"process_mb": 1000.0, "gpu_mb": None, "rows_right": 1.0}
    content = {"command": "python benchmarks/scale.py", "settings": {"dim": 3}, "rows": rows}
    (tmp_path / "it.json").write_text(json.dumps(content))
    page = "before\n\n<!-- table: scale it.json -->\n<!-- end of table -->\n\nafter\n"
    made = with_tables(page, tmp_path)
    assert "| 10 | a desk | 3 s | 1.0 GB | 100.00% | abc1234 |" in made
    assert "`python benchmarks/scale.py`, dim 3; a desk; commit abc1234; `results/it.json`" in made
    assert (made[:7], made[-7:]) == ("before\n", "\nafter\n")
    assert with_tables(made, tmp_path) == made
    assert with_tables(made.replace("3 s", "2 s"), tmp_path) == made
    without = with_tables(page.replace("it.json", "shared-laptop.json"), tmp_path)
    assert "*Not measured on this version yet: `python benchmarks/run.py --only shared --size laptop`.*" in without


@pytest.mark.parametrize(
    "page", ["README.md", "docs/measured.md", "docs/baselines.md", "docs/failing.md", "docs/recipes/no-seeds.md"]
)
def test_layouts_show_every_case(page):
    """Won or lost: as many numbers as the files have."""
    for name, files in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if not all((RESULTS / file).exists() for file in files.split()):
            continue
        records = [read_record(RESULTS / file) for file in files.split()]
        shown = LAYOUTS[name](records)
        rows = [row for record in records for row in record["rows"]]
        if name == "methods":
            top_1 = [scores["top_1"] for row in rows for scores in row["scores"].values()]
            assert len(re.findall(r"(?<![\d.])(?:1)?\.\d{3}(?!\d)|1\.000", shown)) == len(top_1)
        elif name in ("reading", "lexicon", "other-half", "scale"):
            assert shown.count("\n") - 1 == len(rows)
        elif name == "shared-verdicts":
            judged = [row["case"]["kind"] for row in rows if row["case"]["kind"] != "all known"]
            for line, left_out in zip(shown.splitlines()[2:], ("provoked", ""), strict=True):
                count = len(judged) - judged.count(left_out)
                assert int(line.split("|")[2]) == count
                assert sum(map(int, re.findall(r"\d+", " ".join(line.split("|")[3:6])))) == count


def shared_run(kind: str, share: float, seeds: int, unseen: float | None, listed: int, right: float, found: float):
    """A row of `shared.py`, with the verdicts that it deserves."""
    case = {"kind": kind, "pair": "easy", "share": share, "seeds": seeds, "state": 0, "rows": 100}
    good = unseen is not None and unseen > 0.4
    return {
        "case": case,
        "unseen": unseen,
        "listed": listed,
        "right": right,
        "found": found,
        "map": [float(good), "ok" if good else "failed"],
        "pairs": [right, "ok" if right > 0.5 else "uncertain"],
    }


def test_no_run_is_left_out_of_what_verdicts_are_worth():
    """A tenth shared counts, and so do provoked cases; only what others are held to does not."""
    rows = [
        shared_run("all known", 1.0, -1, 0.9, 100, 1.0, 1.0),
        shared_run("shares", 1.0, 15, 0.8, 90, 0.9, 0.9),
        shared_run("shares", 0.1, 15, 0.7, 20, 0.2, 0.6),
        shared_run("wrong", 1.0, 15, 0.0, 0, 0.0, 0.0),
        shared_run("provoked", 1.0, 0, None, 50, 0.6, 0.5),
    ]
    for_map, for_pairs = LAYOUTS["shared-verdicts"]([{"rows": rows}]).splitlines()[2:]
    assert for_map == "| map | 3 | 2 / 0 | 0 / 0 | 0 / 1 | 1.000 |"
    assert for_pairs == "| pairs | 4 | 2 / 0 | 0 / 2 | 0 / 0 | 1.000 |"


def test_rows_are_kept_and_not_measured_again(tmp_path):
    path, asked = tmp_path / "it.json", []

    def measure() -> dict[str, float]:
        asked.append(1)
        return {"figure": 0.5}

    for _ in range(2):
        record = Record(path, {"rows": 10}, "cpu")
        row = record.row({"pair": "words", "seeds": 15}, measure)
    assert asked == [1]
    assert row["figure"] == 0.5
    assert row["commit"]
    assert "CPU" in row["machine"]
    assert read_record(path)["rows"] == [row]
    with pytest.raises(SystemExit, match="other settings"):
        Record(path, {"rows": 20}, "cpu")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_registered_commands_are_understood(name, size):
    _, script, *arguments = command_of(name, size, Path("data"))
    parse_benchmark(Path(script), arguments, name)


def test_the_list_names_every_benchmark():
    assert re.findall(r"^\| ([\w-]+) \| laptop ", listing(), flags=re.MULTILINE) == list(BENCHMARKS)


@pytest.fixture(scope="module")
def turned() -> tuple[torch.Tensor, torch.Tensor]:
    """600 rows in uneven clusters, and the same turned; the rows correspond."""
    chance = np.random.default_rng(0)
    centers = 3 * chance.standard_normal((20, 30)) * np.linspace(2, 0.2, 30)
    rows = centers[chance.integers(20, size=600)] + chance.standard_normal((600, 30)) * np.linspace(1, 0.5, 30)
    rows = unit(torch.from_numpy(rows.astype(np.float32)))
    rows = unit(rows - rows.mean(dim=0))
    turn, _ = np.linalg.qr(chance.standard_normal((30, 30)))
    return rows, rows @ torch.from_numpy(turn.astype(np.float32))


@pytest.mark.parametrize("name", FROM_PAIRS)
def test_rivals_learn_from_known_pairs(name, turned):
    x, y = turned
    apply = FROM_PAIRS[name](x[:100], y[:100])
    found = scores(unit(apply(x[100:])), y[100:])
    assert found["top_1"] > 0.9
    assert found["foscttm"] < 0.01


@pytest.mark.parametrize("known", [0, 30])
def test_vecmap_learns_by_itself(known, turned):
    x, y = turned
    apply_x, apply_y = by_vecmap(x, y, np.stack([np.arange(known)] * 2, axis=1))
    assert scores(unit(apply_x(x)), unit(apply_y(y)))["top_1"] > 0.9


@pytest.mark.parametrize("name", WITHOUT_PAIRS)
def test_others_need_no_pairs(name, turned):
    x, y = turned
    apply_x, apply_y = WITHOUT_PAIRS[name](x, y)
    assert scores(unit(apply_x(x)), unit(apply_y(y)))["top_1"] > 0.9


def test_readings_of_found_pairs(turned):
    """Each way to read pairs recovers a turned space from a third of them."""
    x, y = turned
    none, some = torch.empty(0, dtype=torch.int64), torch.arange(200)
    problem = Problem(x, y, none, none, DEFAULT_BUDGET)
    for name, reading in READINGS.items():
        assert share_right(match_csls(*reading(problem, some, some)), torch.arange(600)) > 0.9, name
    assert ceiling(problem, torch.arange(600)) > 0.9


@pytest.mark.parametrize("shared", ["all", "none"])
def test_draws_hold_what_they_should(shared):
    """The known pairs come first; the others are the same items, in another order, or other ones; none is asked for."""
    items = np.arange(1, 2001)[:, None].repeat(3, axis=1).astype(np.float32)
    space = Embeddings([str(row) for row in range(2000)], items)
    pair = SpacePair("it", space, space, "x", "y")
    x, y, new_x, new_y = (rows[:, 0].tolist() for rows in draw(pair, shared, 20, 300, 0))
    assert x[:20] == y[:20]
    assert len(set(x)) == len(set(y)) == 300
    assert len(set(x) & set(y)) == (300 if shared == "all" else 20)
    assert x[20:] != y[20:]
    assert new_x == new_y
    assert not set(new_x) & (set(x) | set(y))


def test_scores_count_who_is_closer():
    rows = torch.eye(20)
    assert scores(rows, rows) == {"top_1": 1.0, "top_1_cosine": 1.0, "mean_rank": 1.0, "foscttm": 0.0, "cosine": 1.0}
    swapped = rows[[1, 0, *range(2, 20)]]
    found = scores(rows, swapped)
    assert found["top_1_cosine"] == pytest.approx(0.9)
    assert found["mean_rank"] == pytest.approx(1.1)

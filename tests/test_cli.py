"""The command line as a user meets it: outputs, files, exit codes and messages."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from kedge import AnchorDiscovery, Embeddings, read_embeddings, write_embeddings
from kedge.cli.find.discovery_summary import print_discovery
from kedge.cli.main import main
from kedge.cli.parser import build_parser
from kedge.cli.progress import progress_bar
from kedge.data import load_demo_words
from kedge.report import FIGURES
from kedge.solving.steps import Step
from kedge.spaces.pairs import read_table, write_table

GROUPS = {
    "find pairs and a map": ("demo", "check", "discover", "unite", "reproduce"),
    "look at a run": ("report", "explore", "evaluate", "compare", "info", "plot"),
    "use a run": ("search", "lexicon", "pairs", "match", "translate", "project", "stitch", "export", "serve"),
    "change a model": ("rehearse", "suggest", "migrate", "stores"),
    "watch an index": ("drift", "audit", "canary"),
    "make files of vectors": ("encode", "convert"),
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, words, word_seeds, fitted):
    """Two spaces, seeds, and the run that `kedge discover` makes of them (see the first test)."""
    path = tmp_path_factory.mktemp("cli")
    write_embeddings(words[0], path / "x.npz")
    write_embeddings(words[1], path / "y.vec")
    write_table(path / "seeds.tsv", ("x", "y"), word_seeds)
    fitted.save(path / "run")
    return path


@pytest.fixture(scope="module")
def unrelated(tmp_path_factory):
    """Two files that have nothing in common."""
    path = tmp_path_factory.mktemp("unrelated")
    chance = np.random.default_rng(0)
    files = [path / "x.npz", path / "y.npz"]
    for file in files:
        keys = [f"{file.stem}{row}" for row in range(100)]
        write_embeddings(Embeddings(keys, chance.standard_normal((100, 16))), file)
    return files


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def run_json(capsys, *arguments) -> dict:
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_discover_says_how_it_went_and_writes_the_run(folder, capsys, tmp_path):
    files = [folder / "x.npz", folder / "y.vec"]
    assert run("discover", *files, "--seeds", folder / "seeds.tsv", "--anchors", "100", "--out", tmp_path / "run") == 0
    captured = capsys.readouterr()
    assert "Searching: OK" in captured.out
    assert "Pairs: OK" in captured.out
    pairs = len(read_table(tmp_path / "run" / "pairs.tsv"))
    counted = rf"^{pairs} pairs found besides the 15 seeds \(about \d+ % right\), and 100 anchors, in "
    assert re.search(counted, captured.out, flags=re.MULTILINE)
    assert f"no match: {1985 - pairs} of 2000 rows of X, {1985 - pairs} of 2000 rows of Y" in captured.out
    chosen = json.loads((tmp_path / "run" / "run.json").read_text())["maps"]["map"]
    assert (
        f"On 1,000 known and found pairs, held out in turn, translated rows reach MRR {chosen['mrr']:.2f} and "
        f"{chosen['overlap']:.0%} overlap with the partner's ten nearest rows. [by recognition; 1,000 held-out "
    ) in captured.out
    assert f"map: {chosen['kind']}\n" in captured.out
    assert "whitened" not in captured.out
    for following in ("report {} {} {}", "search {} {} {} KEY"):
        assert f"kedge {following.format(tmp_path / 'run', *files)}\n" in captured.out
    assert "\x1b" not in captured.out  # no colours when stdout is no terminal
    assert "2000 x 300" in captured.err
    assert "15 seeds" in captured.err
    description = json.loads((tmp_path / "run" / "run.json").read_text())
    assert description["inputs"]["x"]["rows"] == 2000
    assert len(description["inputs"]["y"]["sha256"]) == 64
    assert description["timings"]["fit_seconds"] > 0
    # The same random state writes the same run, timings aside; from Python too.
    for name in ("anchors.tsv", "pairs.tsv", "anchors.safetensors", "map.safetensors", "match.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (folder / "run" / name).read_bytes(), name


@pytest.mark.thorough
def test_discover_json_and_options(folder, capsys, tmp_path):
    (tmp_path / "anchors.txt").write_text("water\nmusic\nschool\n")
    rows = read_table(folder / "seeds.tsv")
    x, y = read_embeddings(folder / "x.npz"), read_embeddings(folder / "y.vec")
    by_row = [(str(x.row_of[row["x"]]), str(y.row_of[row["y"]])) for row in rows]
    (tmp_path / "rows.csv").write_text("".join(f"{a},{b}\n" for a, b in by_row))
    result = run_json(
        capsys, "discover", folder / "x.npz", folder / "y.vec",
        "--seeds", tmp_path / "rows.csv", "--seed-format", "rows",
        "--anchor-keys", tmp_path / "anchors.txt", "--random-state", "5", "--device", "cpu", "--memory", "64M",
        "--no-center", "--min-confidence", "0.9", "--out", tmp_path / "run",
    )  # fmt: skip
    assert set(result) == {
        "run", "report", "health", "anchors", "pairs", "expected_precision", "unmatched", "approximate", "same_ids",
        "whitening",
        "maps", "queries", "seeds", "doubtful_seeds", "skipped_seeds", "seconds",
    }  # fmt: skip
    assert result["anchors"] == 3
    assert result["whitening"] == 0
    assert result["maps"] == json.loads((tmp_path / "run" / "run.json").read_text())["maps"]
    assert (
        {"family", "kind", "mrr", "overlap", "tested", "by_known"}
        == set(result["maps"]["map"])
        == set(result["maps"]["map_back"])
    )
    assert result["health"]["searching"]["verdict"] == "ok"
    assert [row["x"] for row in read_table(tmp_path / "run" / "anchors.tsv")] == ["water", "music", "school"]
    assert all(float(row["confidence"]) >= 0.9 for row in read_table(tmp_path / "run" / "pairs.tsv"))
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert settings["min_confidence"] == 0.9
    assert (settings["center"], settings["random_state"], settings["memory_budget"]) == (False, 5, 64 * 2**20)


@pytest.mark.thorough
def test_discover_and_evaluate_without_seeds(folder, capsys, tmp_path):
    files = [folder / "x.npz", folder / "y.vec"]
    assert run("discover", *files, "--anchors", "50", "--out", tmp_path / "run", "--json") == 0
    captured = capsys.readouterr()
    assert "no seeds" in captured.err
    result = json.loads(captured.out)
    assert result["health"]["searching"]["verdict"] == "ok"
    assert 0.5 <= result["expected_precision"] <= 1
    assert result["unmatched"] == {"x": 2000 - result["pairs"], "y": 2000 - result["pairs"]}
    assert result["doubtful_seeds"] == []
    assert set(json.loads((tmp_path / "run" / "run.json").read_text())["inputs"]) == {"x", "y"}
    assert len(read_table(tmp_path / "run" / "unmatched.tsv")) == 2 * (2000 - result["pairs"])
    assert run_json(capsys, "evaluate", tmp_path / "run", *files, "--gold", "keys")["Seed"] is None
    assert run("evaluate", tmp_path / "run", *files, "--gold", "keys") == 0
    (seed_row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Seed"))
    assert seed_row.split() == ["Seed", *"-----"]


@pytest.mark.thorough
def test_wrong_seeds_are_named_and_do_no_harm(folder, capsys, tmp_path):
    seeds = [(row["x"], row["y"]) for row in read_table(folder / "seeds.tsv")]
    first, second, third = (left for left, _ in seeds[:3])
    wrong = [(first, second), (second, third), (third, first)]
    write_table(tmp_path / "seeds.tsv", ("x", "y"), wrong + seeds[3:])
    arguments = ["discover", folder / "x.npz", folder / "y.vec", "--seeds", tmp_path / "seeds.tsv", "--anchors", "50"]
    assert run(*arguments, "--out", tmp_path / "run") == 0
    output = capsys.readouterr().out
    assert "3 contradicted (3 of them set aside)" in output
    suspects = [row for row in read_table(tmp_path / "run" / "seeds.tsv") if row["suspect"] == "1"]
    assert {(row["x"], row["y"]) for row in suspects} == set(wrong)
    for row in suspects:
        thought = f"contradicted, rank {row['rank']} (found: {row['found']})"
        assert f"  {row['x']} = {row['y']}: {thought}\n" in output
    result = run_json(capsys, *arguments, "--out", tmp_path / "run", "--overwrite")["doubtful_seeds"]
    assert [seed["rank"] for seed in result] == sorted((seed["rank"] for seed in result), reverse=True)
    assert {(seed["x"], seed["y"]) for seed in result if seed["suspect"]} == set(wrong)


@pytest.mark.parametrize("no_color", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_terminal_gets_colours_unless_it_wants_none(small_files, tmp_path, no_color):
    *files, seeds = small_files
    command = [sys.executable, "-m", "kedge", "discover", *files, "--seeds", seeds, "--anchors", "20"]
    command += ["--out", str(tmp_path / "run")]
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "100"} | ({"NO_COLOR": "1"} if no_color else {})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # what Linux says when the other side has gone
        while chunk := os.read(ours, 65_536):
            seen += chunk
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"annealing" in seen  # a bar
    assert bool(re.search(rb"\x1b\[[0-9;]*3[1-7]m", seen)) != no_color


@pytest.mark.thorough
def test_of_many_wrong_seeds_ten_are_shown(folder, capsys, tmp_path):
    words = read_embeddings(folder / "x.npz").keys[::40]
    wrong = list(zip(words[:20], words[10:20] + words[:10], strict=True))  # by chance, some mean much the same
    write_table(tmp_path / "seeds.tsv", ("x", "y"), wrong + [(word, word) for word in words[20:]])
    arguments = ["discover", folder / "x.npz", folder / "y.vec", "--seeds", tmp_path / "seeds.tsv", "--anchors", "50"]
    assert run(*arguments, "--out", tmp_path / "run") == 0
    output = capsys.readouterr().out
    suspects = sum(row["suspect"] == "1" for row in read_table(tmp_path / "run" / "seeds.tsv"))
    assert suspects > 10
    doubtful = sum(row["found"] != row["y"] for row in read_table(tmp_path / "run" / "seeds.tsv"))
    assert f"seeds: {50 - doubtful} agree with what was found" in output
    assert f"({suspects} of them set aside)" in output
    assert output.count(" (found: ") == 10
    assert f"and {doubtful - 10} more in seeds.tsv" in output


@pytest.mark.thorough
def test_disjoint_files_get_a_map_and_no_pairs_but_the_seeds(folder, capsys, tmp_path):
    files = [folder / "x.npz", folder / "y.vec"]
    arguments = ["discover", *files, "--seeds", folder / "seeds.tsv", "--anchors", "50", "--disjoint"]
    assert run(*arguments, "--out", tmp_path / "run") == 0
    captured = capsys.readouterr()
    assert "Searching: OK" in captured.out
    assert "Pairs: FAILED" in captured.out
    assert "said to have nothing in common" in captured.out
    assert "0 pairs found besides the 15 seeds" in captured.out
    assert len(read_table(tmp_path / "run" / "pairs.tsv")) == 0
    # The same result, asked for what did not pass.
    assert run(*arguments, "--require", "pairs", "--out", tmp_path / "run", "--overwrite") == 3
    assert "WARNING the verdict for pairs is failed: " in capsys.readouterr().err


def test_seeds_beyond_the_limit_are_said_to_be_that(small_files, tmp_path, capsys):
    *files, seeds = small_files
    options = ["--limit", "10", "--device", "cpu", "--ignore-verdict"]
    assert run("discover", *files, "--seeds", seeds, "-o", tmp_path / "run", *options) == 0
    skipped = "(5 lines skipped: a space lacks a key, or it is beyond --limit 10)"
    assert f"10 seeds {skipped}" in capsys.readouterr().err
    later = tmp_path / "later.tsv"
    write_table(later, ("x", "y"), [(f"r{row}", f"r{row}") for row in range(60, 75)])
    assert run("discover", *files, "--seeds", later, "-o", tmp_path / "other", *options) == 2
    error = capsys.readouterr().err
    assert "none of its 15 lines names a key" in error
    assert error.rstrip().endswith("in the right order? Or are they beyond --limit 10?")
    write_table(later, ("x", "y"), [("nobody", "nothing")])
    assert run("discover", *files, "--seeds", later, "-o", tmp_path / "other") == 2
    assert "--limit" not in capsys.readouterr().err
    write_table(later, ("x", "y"), [("r3", "r3"), ("r60", "r60")])
    written = [tmp_path / "run", *files, "--limit", "10"]
    assert run("evaluate", *written, "--gold", later) == 0
    assert "gold: 1 pair (1 line skipped: a space lacks a key, or it is beyond --limit 10)" in capsys.readouterr().out


def test_where_several_rows_may_fit_a_lexicon_is_proposed(fitted, words, capsys):
    several = copy(fitted)
    arguments = argparse.Namespace(out="RUN", x="x.vec", y="y.vec", report=None, json=False, require="searching")
    print_discovery(several, arguments, *words, 1.0)
    assert "kedge lexicon" not in capsys.readouterr().out
    unsure = replace(fitted.health_.pairs, verdict="failed", score=0.1)
    several.health_ = replace(fitted.health_, pairs=unsure)
    several.seeds_ = fitted.seeds_[:1]
    print_discovery(several, arguments, *words, 1.0)
    output = capsys.readouterr().out
    assert "kedge lexicon RUN x.vec y.vec -o lexicon.tsv (where several rows of Y fit," in output
    assert " pairs found besides the 1 seed (" in output
    several.disjoint = True
    print_discovery(several, arguments, *words, 1.0)
    assert "kedge lexicon" not in capsys.readouterr().out


def test_plot_draws_what_min_confidence_asks_for(folder, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="figures need kedge[plot]")
    drawn = []
    figure = FIGURES["confidence"]

    def draw(discovery, x, y):
        drawn.append(len(discovery.pairs_))
        return figure(discovery, x, y)

    monkeypatch.setitem(FIGURES, "confidence", draw)
    files = [folder / "run", folder / "x.npz", folder / "y.vec", "--kind", "confidence"]
    assert run("plot", *files, "-o", tmp_path / "all.svg") == 0
    assert run("plot", *files, "-o", tmp_path / "sure.svg", "--min-confidence", "0.99995") == 0
    assert drawn[0] > drawn[1] > 0


@pytest.mark.thorough
def test_check_says_how_many_seeds_are_advisable(folder, capsys):
    files = [folder / "x.npz", folder / "y.vec"]
    assert run("check", *files) == 0
    output = capsys.readouterr().out
    for expected in (
        f"X: {files[0]}, 2000 rows, 300 dimensions, 6.7 rows per dimension (little)",
        f"Y: {files[1]}, 2000 rows, 100 dimensions, 20.0 rows per dimension\n",
        "equal keys in both: 2000",
        "if equal keys mean the same things, give them as seeds",
        "Searching: OK (1.00). ",
        "advice: no seeds are needed",
        "15 seeds were enough from 3,000 rows per side if the files shared nothing else, and from 1,000 if they",
        "caution: fewer than 10 rows per dimension (in X)",
    ):
        assert expected in output
    result = run_json(capsys, "check", *files)
    assert set(result) == {"x", "y", "equal_keys", "health", "advisable_seeds", "advice", "rows_needed", "seconds"}
    assert result["x"] == {"file": str(files[0]), "rows": 2000, "dimensions": 300, "rows_per_dimension": 6.67}
    assert (result["equal_keys"], result["advisable_seeds"], result["health"]["searching"]["verdict"]) == (
        2000,
        0,
        "ok",
    )
    assert result["advice"].startswith("no seeds are needed")


def test_check_of_unrelated_and_of_tiny_spaces(unrelated, capsys):
    assert run("check", *unrelated) == 0
    output = capsys.readouterr().out
    assert "equal keys in both: 0" in output
    assert "give them as seeds" not in output
    assert "advice: 15 or more seeds" in output
    result = run_json(capsys, "check", *unrelated, "--limit", "12")
    assert (result["x"]["rows"], result["health"], result["advisable_seeds"]) == (12, None, None)
    assert "too few rows to say" in result["advice"]
    assert run("check", *unrelated, "--limit", "12") == 0
    assert "first 12 rows" in capsys.readouterr().out


def test_a_bar_for_every_attempt(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr("kedge.cli.progress.notes", lambda: console)
    with progress_bar() as on_step:
        on_step(Step("anneal", 3, 30, {}, "attempt 1 of 3"))
        on_step(Step("rivals", 1, 3))
        on_step(Step("health", 1, 3, {"score": 0.12}, "attempt 1 of 3"))
        on_step(Step("anneal", 5, 100, {}, "attempt 2 of 3"))
    lines = re.sub("\x1b\\[[^A-Za-z]*[A-Za-z]", "\n", shown.getvalue()).splitlines()
    printed = [line for line in lines if line.startswith("kedge:")]
    assert printed == [
        "kedge: attempt 1 of 3",
        "kedge: attempt 1 of 3 scored 0.12",
        "kedge: attempt 2 of 3",
    ]
    # What was drawn last: only the bar that is still going has its total left.
    bars = [line for line in lines if " 3/3 " in line or " 1/1 " in line or " 5/100 " in line]
    assert [bar[:22].strip() for bar in bars[-3:]] == ["annealing", "trying random starts", "annealing"]


def test_evaluate_json_has_exactly_the_documented_keys(folder, capsys):
    result = run_json(capsys, "evaluate", folder / "run", folder / "x.npz", folder / "y.vec", "--gold", "keys")
    rows = ("GT", "Seed", "Found", "Snapped", "Shared")
    shares = {"anchors_exact", "pairs_precision", "pairs_recall"}
    assert set(result) == {*rows, *shares, "gold", "searching", "health"}
    for row in rows:
        assert set(result[row]) == {"jaccard", "mrr", "cosine", "p_at_1", "foscttm"}
    assert set(result["searching"]) == {"Shared", "Map", "Procrustes", "Ridge"}
    for scores in result["searching"].values():
        assert set(scores) == {"p_at_1", "p_at_10", "mrr", "overlap"}
    assert set(result["gold"]) == {"pairs", "skipped", "queries"}
    assert result["Found"]["mrr"] > 0.9
    assert result["pairs_precision"] > 0.99


def test_evaluate_prints_tables_and_takes_gold_files(folder, capsys, tmp_path):
    words = read_embeddings(folder / "x.npz").keys[:500]
    write_table(tmp_path / "gold.tsv", ("x", "y"), [(word, word) for word in words])
    assert run("evaluate", folder / "run", folder / "x.npz", folder / "y.vec", "--gold", tmp_path / "gold.tsv") == 0
    output = capsys.readouterr().out
    for expected in (
        "GT",
        "Seed",
        "Found",
        "Snapped",
        "Shared",
        "Jaccard@10",
        "FOSCTTM",
        "search by",
        "overlap@10",
        "hidden anchors",
        "precision",
        "Searching: OK",
    ):
        assert expected in output


def test_search(folder, capsys):
    files = [folder / "run", folder / "x.npz", folder / "y.vec"]
    assert run("search", *files, "water", "music", "-k", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("water:  water ")
    assert lines[1].startswith("music:  music ")
    result = run_json(capsys, "search", *files, "water", "-k", "2")
    first, second = result["water"]
    assert first["key"] == "water"
    assert set(first) == {"key", "similarity", "log_likelihood_ratio"}
    assert first["log_likelihood_ratio"] > second["log_likelihood_ratio"]
    assert all(-1 <= near["similarity"] <= 1 for near in (first, second))
    assert lines[0] == "water:  " + "  ".join(f"{near['key']} {near['similarity']:.2f}" for near in (first, second))


def test_project_and_translate_write_files_under_the_same_keys(folder, capsys, tmp_path):
    for side, name in (("X", "x.npz"), ("Y", "y.vec")):
        result = run_json(capsys, "project", folder / "run", side, folder / name, "-o", tmp_path / f"{side}.npz")
        assert (result["rows"], result["dimensions"]) == (2000, 100)
    x, y = read_embeddings(tmp_path / "X.npz"), read_embeddings(tmp_path / "Y.npz")
    both = [x.vectors, y.vectors[y.rows(x.keys)]]
    a, b = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in both)
    assert np.mean((a @ b.T).argmax(axis=1) == np.arange(2000)) > 0.9
    assert run("project", folder / "run", "Y", folder / "y.vec", "-o", tmp_path / "snapped.npz", "--snapped") == 0
    assert not np.allclose(read_embeddings(tmp_path / "snapped.npz").vectors, y.vectors)
    assert run("translate", folder / "run", folder / "x.npz", "-o", tmp_path / "moved.safetensors") == 0
    assert read_embeddings(tmp_path / "moved.safetensors").vectors.shape == (2000, 100)


def test_shared_coordinates_are_for_inner_products(folder, capsys, tmp_path):
    for side, name in (("X", "x.npz"), ("Y", "y.vec")):
        command = ["project", folder / "run", side, folder / name, "--coordinates", "shared"]
        assert run(*command, "-o", tmp_path / f"{side}.npz") == 0
        assert capsys.readouterr().out.startswith("shared coordinates: 2000 x ")
    x, y = read_embeddings(tmp_path / "X.npz"), read_embeddings(tmp_path / "Y.npz")
    ratios = x.vectors @ y.vectors.T
    assert np.mean(ratios.argmax(axis=1) == y.rows(x.keys)) > 0.95
    near = run_json(capsys, "search", folder / "run", folder / "x.npz", folder / "y.vec", "water", "-k", "3")["water"]
    expected = ratios[x.row_of["water"], y.rows([one["key"] for one in near])]
    np.testing.assert_allclose([one["log_likelihood_ratio"] for one in near], expected, rtol=1e-3)
    assert run(*command, "-o", tmp_path / "snapped.npz", "--snapped") == 2
    assert "--snapped: shared coordinates use no anchors" in capsys.readouterr().err
    assert not (tmp_path / "snapped.npz").exists()


def test_vectors_are_translated_back(folder, capsys, tmp_path):
    assert run("translate", folder / "run", folder / "y.vec", "-o", tmp_path / "in-x.npz", "--back") == 0
    x, moved = read_embeddings(folder / "x.npz"), read_embeddings(tmp_path / "in-x.npz")
    assert moved.vectors.shape == (2000, 300)
    unit = x.vectors / np.linalg.norm(x.vectors, axis=1, keepdims=True)
    assert np.mean((moved.vectors @ unit.T).argmax(axis=1) == x.rows(moved.keys)) > 0.85
    assert run("translate", folder / "run", folder / "x.npz", "-o", tmp_path / "no.npz", "--back") == 2
    assert "has 300 dimensions, but Y of this run has 100" in capsys.readouterr().err


def test_translated_vectors_have_the_length_that_was_asked_for(folder, capsys, tmp_path):
    lengths = {}
    for name in ("x.npz", "y.vec"):
        lengths[name] = float(np.linalg.norm(read_embeddings(folder / name).vectors, axis=1).mean())
        assert abs(lengths[name] - 1) > 0.01
    for source, target, options in (("x.npz", "y.vec", []), ("y.vec", "x.npz", ["--back"])):
        command = ["translate", folder / "run", folder / source, "-o", tmp_path / "moved.npz", "--overwrite", *options]
        for scale, length in (("unit", 1.0), ("raw", lengths[target])):
            assert run(*command, "--scale", scale) == 0
            warned = capsys.readouterr().err
            moved = read_embeddings(tmp_path / "moved.npz").vectors
            np.testing.assert_allclose(np.linalg.norm(moved, axis=1), length, rtol=1e-3)
            side = "X" if options else "Y"
            told = (
                f"kedge: {side}'s own vectors have mean length {lengths[target]:.4g}: compare by cosine, or use --scale"
            )
            assert warned.startswith(told) == (scale == "unit")
            assert bool(warned) == (scale == "unit")
        assert run(*command) == 0  # by default of unit length
        assert "mean length" in capsys.readouterr().err


def test_nothing_is_said_of_lengths_where_all_are_1(tmp_path, capsys, rotated):
    keys = [f"r{row}" for row in range(300)]
    for name, vectors in zip(("x.npz", "y.npz"), rotated(), strict=True):
        write_embeddings(Embeddings(keys, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)), tmp_path / name)
    write_table(tmp_path / "seeds.tsv", ("x", "y"), [(key, key) for key in keys[:15]])
    files = [tmp_path / "x.npz", tmp_path / "y.npz"]
    command = ["discover", *files, "--seeds", tmp_path / "seeds.tsv", "--anchors", "20"]
    assert run(*command, "--out", tmp_path / "run", "--ignore-verdict") == 0
    capsys.readouterr()
    assert run("translate", tmp_path / "run", files[0], "-o", tmp_path / "moved.npz") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_whitening_is_asked_for_and_reported(folder, capsys, tmp_path):
    command = ["discover", folder / "x.npz", folder / "y.vec", "--seeds", folder / "seeds.tsv", "--anchors", "50"]
    assert run(*command, "--whiten", "0.5", "--out", tmp_path / "run") == 0
    assert "\nfound on spaces whitened by 0.5\n" in capsys.readouterr().out
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (described["settings"]["whiten"], described["whitening"]) == (0.5, 0.5)
    plain = json.loads((folder / "run" / "run.json").read_text())
    assert (plain["settings"]["whiten"], plain["whitening"]) == ("auto", 0.0)


def test_memory_that_shared_coordinates_take_is_counted(folder, tmp_path, capsys, monkeypatch):
    """2,000 rows of 300 and of 100 numbers fit, and no longer with the 112 shared ones that either has: 5 MB."""
    both = 2000 * 4 * (300 + 100)
    temporaries = 64 * 2**20 + 4000 * 16_384
    monkeypatch.setattr("kedge.spaces.memory.available_memory", lambda: temporaries + both)
    command = ["discover", folder / "x.npz", folder / "y.vec", "--memory", "64M", "--device", "cpu"]
    assert run(*command, "--out", tmp_path / "run") == 2
    assert "--memory and the spaces: needs about 0.1 GB of memory" in capsys.readouterr().err


def test_convert_and_info(folder, capsys, tmp_path):
    assert run("convert", folder / "y.vec", tmp_path / "y.bin.gz", "--limit", "50") == 0
    assert len(read_embeddings(tmp_path / "y.bin.gz")) == 50
    (tmp_path / "keys.txt").write_text("water\nmusic\nnot-a-word\n")
    assert run("convert", folder / "x.npz", tmp_path / "some.parquet", "--keys", tmp_path / "keys.txt") == 0
    assert "1 of 3 wanted keys" in capsys.readouterr().err
    described = run_json(capsys, "info", folder / "x.npz")
    assert (described["rows"], described["dimensions"]) == (2000, 300)
    assert described["norms"]["min"] <= described["norms"]["mean"] <= described["norms"]["max"]
    assert run("info", folder / "x.npz") == 0
    assert "2000 rows, 300 dimensions" in capsys.readouterr().out
    assert run_json(capsys, "info", folder / "run")["health"]["searching"]["verdict"] == "ok"
    assert run("info", folder / "run") == 0
    assert "ok: About" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [600, pytest.param(5000, marks=pytest.mark.thorough)])
def test_demo(capsys, tmp_path, monkeypatch, rows):
    words = tuple(space.take(range(rows)) for space in load_demo_words())
    monkeypatch.setattr("kedge.data.load_demo_words", lambda: words)
    out = tmp_path / "new" / "demo"
    assert run("demo", "--out", out) == 0
    output = capsys.readouterr().out
    for expected in ("15 pairs", "Found", "GT", "Searching: OK", "kedge search", "The paper"):
        assert expected in output
    assert {path.name for path in out.iterdir()} == {"word2vec.npz", "glove.npz", "seeds.tsv", "run", "report.html"}
    assert f"  {out / 'report.html'}\n" in output
    page = (out / "report.html").read_text()
    assert "The paper, on 20,000 words" in page
    assert f"kedge search {out / 'run'} {out / 'word2vec.npz'} {out / 'glove.npz'} KEY" in page
    assert run("search", out / "run", out / "word2vec.npz", out / "glove.npz", "water") == 0
    assert capsys.readouterr().out.startswith("water:  water")
    assert run_json(capsys, "demo", "--out", out)["Found"]["mrr"] > 0.95  # again into the same folder
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    assert run("demo", "--out", tmp_path / "mine") == 2


def test_an_unhealthy_result_is_written_and_exits_with_3(unrelated, capsys, tmp_path):
    write_table(tmp_path / "seeds.tsv", ("x", "y"), [(f"x{row}", f"y{row}") for row in range(5)])
    arguments = ["discover", *unrelated, "--seeds", tmp_path / "seeds.tsv", "--anchors", "50"]
    assert run(*arguments, "--out", tmp_path / "run") == 3
    captured = capsys.readouterr()
    assert "Searching: FAILED" in captured.out
    # No word of how many of none are right, nor of what they are in.
    assert f"0 pairs found besides the 5 seeds; the run, with 50 anchors, is in the folder {tmp_path}" in captured.out
    assert "kedge lexicon" not in captured.out  # a map that failed gives none
    assert "set aside" not in captured.out  # nothing is known that could contradict them
    assert "WARNING" in captured.err
    assert "more seeds" in captured.err
    assert (tmp_path / "run" / "pairs.tsv").exists()


@pytest.mark.thorough
def test_an_unhealthy_result_may_be_wanted_all_the_same(unrelated, capsys, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    write_table(tmp_path / "seeds.tsv", ("x", "y"), [(f"x{row}", f"y{row}") for row in range(5)])
    arguments = ["discover", *unrelated, "--seeds", tmp_path / "seeds.tsv", "--anchors", "50"]
    again = [*arguments, "--out", tmp_path / "run", "--overwrite", "--ignore-verdict"]
    assert run_json(capsys, *again)["expected_precision"] is None


def help_of(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        build_parser().parse_args([*arguments, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command, capsys):
    output = help_of(capsys, command)
    assert f"kedge {command}" in output
    assert "examples:" in output
    assert "--json" in output


def test_help_lists_commands_by_what_they_are_for_on_a_line_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    section = help_of(capsys).split("commands:\n")[1].split("\n\n")[0]
    listed: dict[str, list[str]] = {}
    for line in section.splitlines():
        if heading := re.fullmatch(r"  (\S.*):", line):
            listed[heading[1]] = []
        else:
            command = re.fullmatch(r"    ([a-z]+) +\S.{15,}", line)
            assert command, line  # neither wrapped nor without a word of what it does
            listed[list(listed)[-1]].append(command[1])
    assert {heading: tuple(commands) for heading, commands in listed.items()} == GROUPS


def test_help_of_discover_begins_with_what_people_use(capsys):
    options, advanced = help_of(capsys, "discover").split("\noptions:\n")[1].split("\nadvanced:\n")
    common = re.findall(r"^  (?:-\w(?: \w+)?, )?(--[a-z-]+)", options, flags=re.MULTILINE)
    rare = re.findall(r"^  (--[a-z-]+)", advanced.split("examples:")[0], flags=re.MULTILINE)
    assert {"--seeds", "--out", "--anchors", "--overwrite", "--resume"} <= set(common)
    assert len(set(common) - {"--help"}) == 10
    assert {"--seed-format", "--whiten", "--method", "--ignore-verdict", "--device"} <= set(rare)


def test_help_says_which_commands_exit_with_3(capsys):
    """Those whose module names the code, and no other."""
    section = help_of(capsys).split("exit codes:\n")[1]
    assert re.findall(r"^  (\d+) ", section, flags=re.MULTILINE) == ["0", "2", "3", "130"]
    said = re.findall(r"^ {9}(\w+): ", section, flags=re.MULTILINE)
    folder = Path(main.__code__.co_filename).parent
    exits = [path.stem for path in folder.glob("*/*.py") if "EXIT_NOT_PASSED" in path.read_text()]
    assert sorted(said) == sorted(exits)
    for command in said:
        assert "3" in re.findall(r"[Ee]xit(?:s with| with| code)(?: is)? (\d)", help_of(capsys, command)), command


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("discover x.npz y.npz --sedes s.tsv -o run", "did you mean '--seeds'? See `kedge discover --help`"),
        ("canary check c.npz --modle m --model m", "did you mean '--model'? See `kedge canary check --help`"),
        ("search run x.npz y.npz cat --colour", "unrecognized arguments: --colour; see `kedge search --help`"),
    ],
)
def test_unknown_options_are_answered_by_the_command_that_lacks_them(line, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert meant in capsys.readouterr().err


def writing_parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of commands that write something, by name; of those in several kinds, each."""
    found = {}

    def collect(name: str, parser: argparse.ArgumentParser) -> None:
        kinds = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        for action in kinds:
            for kind, each in action.choices.items():
                collect(f"{name} {kind}".strip(), each)
        if not kinds:
            found[name] = parser

    collect("", build_parser())
    silent = {"check", "explore", "evaluate", "rehearse", "search", "serve", "info", "stores"} | {
        "canary check",
        "canary texts",
    }
    return {name: parser for name, parser in found.items() if name not in silent}


def test_what_is_written_is_named_by_one_option():
    for name, parser in writing_parsers().items():
        assert any({"-o", "--out"} <= set(action.option_strings) for action in parser._actions), name


@pytest.mark.parametrize(
    "line",
    [
        "IN OUT",
        "IN -o OUT",
        "-o OUT IN",
        "IN OUT --limit 5",
        "IN --limit 5 OUT",
        "--limit 5 IN OUT",
        "IN --limit 5 -o OUT",
    ],
)
def test_convert_takes_its_output_as_an_option_or_as_a_name(folder, tmp_path, line):
    named = {"IN": str(folder / "x.npz"), "OUT": str(tmp_path / "out.npz")}
    assert run("convert", *(named.get(word, word) for word in line.split())) == 0
    assert len(read_embeddings(tmp_path / "out.npz")) == (5 if "--limit" in line else 2000)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("convert a.npz", "one of the arguments OUT -o/--out is required"),
        ("convert a.npz b.npz -o c.npz", "argument -o/--out: not allowed with argument OUT"),
        ("migrate a b --run r -o c", "argument -o/--out: not allowed with argument TARGET"),
    ],
)
def test_an_output_is_named_once(capsys, line, message):
    with pytest.raises(SystemExit):
        main(line.split())
    assert message in capsys.readouterr().err


def test_anchors_are_counted_or_named(folder, capsys, tmp_path):
    files = [folder / "x.npz", folder / "y.vec"]
    assert run("discover", *files, "-o", tmp_path / "run", "--anchors", 5, "--anchor-keys", folder / "seeds.tsv") == 2
    assert "--anchor-keys names the anchors" in capsys.readouterr().err


def bad_vec(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "absent.vec"}, "absent.vec: no such file"),
        ({"x": "2 2\na 1 2\n"}, "header declares 2 rows, the file holds 1"),
        ({"x": "2 2\na 1 2\nb 1\n"}, "line 3: expected a key and 2 numbers"),
        ({"x": "2 2\na 1 2\nb 1 nan\n"}, "key 'b' (row 1) has NaN"),
        ({"x": "2 2\na 1 2\nb 0 0\n"}, "key 'b' (row 1) is a zero vector"),
        ({"x": "2 2\na 1 2\na 1 3\n"}, "duplicate key 'a'"),
        ({"seeds": "x\ty\nwater\tnot-a-word\n"}, "none of its 1 lines names a key of X"),
        ({"seeds": "x\ty\nwater\tnot-a-word\n", "options": ["--strict"]}, "line 2: Y"),
        (
            {"seeds": "water\twater\nmusic\tmusic\n", "options": ["--method", "paper"]},
            "at least 3 distinct pairs, got 2",
        ),
        ({"seeds": "water\twater\nwater\tmusic\nyear\tyear\nday\tday\n"}, "seeds contradict each other"),
        ({"options": ["--anchors", "3000"]}, "n_anchors must be between"),
        ({"options": ["--memory", "1K"]}, "memory_budget of 1024 bytes is too small"),
        ({"options": ["--memory", "90000G"]}, "--memory and the spaces: needs about"),
        ({"options": ["--device", "abacus"]}, "device must be"),
        ({"options": ["--limit", "100", "--strict"]}, "but not among its first 100 rows: raise --limit, or omit it"),
        ({"options": ["--init", "random"]}, "no such method"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(folder, tmp_path, capsys, change, message):
    x = folder / "x.npz"
    if "x" in change:
        x = tmp_path / "absent.vec" if change["x"] == "absent.vec" else bad_vec(tmp_path / "x.vec", change["x"])
    seeds = bad_vec(tmp_path / "s.tsv", change["seeds"]) if "seeds" in change else folder / "seeds.tsv"
    before = sorted(tmp_path.iterdir())
    code = run("discover", x, folder / "y.vec", "--seeds", seeds, "--out", tmp_path / "run", *change.get("options", []))
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert code == 2
    assert len(errors) == 1
    assert errors[0].startswith("kedge: error: ")
    assert message in errors[0]
    assert sorted(tmp_path.iterdir()) == before


def test_other_commands_fail_clearly_too(folder, tmp_path, capsys):
    write_embeddings(Embeddings(["a"], np.ones((1, 7))), tmp_path / "seven.npz")
    cases = [
        (
            ["translate", folder / "run", tmp_path / "seven.npz", "-o", tmp_path / "o.npz"],
            "has 7 dimensions, but X of this run has 300",
        ),
        (["project", folder / "run", "Y", tmp_path / "seven.npz", "-o", tmp_path / "o.npz"], "Y of this run has 100"),
        (["search", folder / "run", folder / "x.npz", folder / "y.vec", "qqq"], "unknown key 'qqq'"),
        (["evaluate", folder / "run", folder / "x.npz", tmp_path / "seven.npz", "--gold", "keys"], "no key in common"),
        (["evaluate", tmp_path, folder / "x.npz", folder / "y.vec", "--gold", "keys"], "holds no run.json"),
        (["convert", folder / "x.npz", tmp_path / "o.docx"], "suffix '.docx'"),
        (["info", tmp_path / "absent.vec"], "no such file"),
        (["check", tmp_path / "absent.vec", folder / "y.vec"], "no such file"),
        (["check", folder / "x.npz", folder / "y.vec", "--limit", "50", "--device", "abacus"], "device must be"),
    ]
    for arguments, message in cases:
        assert run(*arguments) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["seven.npz"]


def test_a_run_is_not_overwritten_unasked(folder, capsys):
    before = (folder / "run" / "run.json").read_bytes()
    assert run("discover", "absent.x", "absent.y", "--seeds", "absent.tsv", "--out", folder / "run") == 2
    assert "run: already exists; choose another name" in capsys.readouterr().err  # said before anything is read
    assert (folder / "run" / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    ("number", "in_background"),
    [
        (signal.SIGINT, False),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.thorough),
    ],
)
def test_interruption_leaves_nothing_half_written(folder, tmp_path, number, in_background):
    command = [sys.executable, "-m", "kedge", "discover", folder / "x.npz", folder / "y.vec"]
    command += ["--seeds", folder / "seeds.tsv", "--method", "paper", "--out", tmp_path / "run"]  # minutes of work
    # A shell starts what runs in the background of a script with Ctrl-C ignored.
    prelude = ["bash", "-c", 'trap "" INT; exec "$@"', "bash"] if in_background else []
    command = [*prelude, *(str(part) for part in command)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "seeds" not in process.stderr.readline():  # the log line before the work begins
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_inside_an_import_is_no_failure(folder, tmp_path, monkeypatch, capsys):
    def fit(*_, **__):  # what Python makes of Ctrl-C in the body of a class that some library defines as it is imported
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(AnchorDiscovery, "fit", fit)
    assert run("discover", folder / "x.npz", folder / "y.vec", "--out", tmp_path / "run") == 130
    assert capsys.readouterr().err.endswith("interrupted; nothing half-written is left\n")


def test_a_closed_pipe_is_no_error(folder):
    command = (
        f"{sys.executable} -m kedge search {folder}/run {folder}/x.npz {folder}/y.vec water music -k 200 | head -c 10"
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True)
    assert done.stdout == "water:  wa"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["discover", "x", "y"], "the following arguments are required: -o/--out"),
        (["info", "x.vec", "--limit", "none"], "expected a whole number of at least 1, got 'none'"),
        (["demo", "--random-state", "-1"], "expected a whole number from 0"),
        (["discover", "x", "y", "--seeds", "s", "--out", "r", "--memory", "0"], "at least one byte"),
        (["discover", "x", "y", "--seeds", "s", "--out", "r", "--memory", "lots"], "a size such as 500M"),
        (["discover", "x", "y", "--out", "r", "--min-confidence", "1.5"], "expected a number from 0 to 1, got '1.5'"),
        (["discover", "x", "y", "--out", "r", "--min-confidence", "-0.1"], "expected a number from 0 to 1, got '-0.1'"),
        (["discover", "x", "y", "--out", "r", "--min-confidence", "nan"], "expected a number from 0 to 1, got 'nan'"),
        (["discover", "x", "y", "--out", "r", "--min-confidence", "half"], "expected a number from 0 to 1, got 'half'"),
        (["discover", "x", "y", "--out", "r", "--whiten", "much"], "expected auto or a number from 0 to 1, got 'much'"),
        (["discover", "x", "y", "--out", "r", "--whiten", "2"], "expected auto or a number from 0 to 1, got '2'"),
        (["translate", "r", "x", "-o", "y", "--scale", "big"], "invalid choice: 'big'"),
        (["project", "r", "X", "x", "-o", "y", "--coordinates", "polar"], "invalid choice: 'polar'"),
        (["check", "x"], "the following arguments are required: Y"),
        (["fly"], "invalid choice: 'fly'"),
    ],
)
def test_a_wrong_command_line_is_one_line_too(capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith("kedge: error: ")
    assert error.count("\n") == 1
    assert message in error


def test_keys_and_paths_are_printed_as_they_are(tmp_path, capsys, rotated):
    """Neither as markup nor as emoji codes."""
    x, y = rotated(n=120)
    keys = [f"[red]{row}[/red]" for row in range(119)] + [":cat:"]
    write_embeddings(Embeddings(keys, x), tmp_path / "x.npz")
    write_embeddings(Embeddings(keys, y), tmp_path / "y.npz")
    write_table(tmp_path / "s.tsv", ("x", "y"), [(key, key) for key in keys[:10]])
    files = [tmp_path / "x.npz", tmp_path / "y.npz"]
    out = tmp_path / "run[red]"
    assert (
        run("discover", *files, "--seeds", tmp_path / "s.tsv", "--anchors", "20", "--out", out, "--ignore-verdict") == 0
    )
    assert str(out) in capsys.readouterr().out
    assert run("search", out, *files, ":cat:", "[red]5[/red]") == 0
    output = capsys.readouterr().out
    assert ":cat:" in output
    assert "[red]5[/red]" in output


def test_version_and_no_command(capsys):
    environment = os.environ | {"NO_COLOR": "1"}
    shown = subprocess.run(
        [sys.executable, "-m", "kedge", "--version"], capture_output=True, text=True, env=environment
    )
    assert shown.stdout.startswith("kedge 0.")
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2

"""What users read along the way: keys beyond --limit, seeds that are skipped, how long it takes, what to install."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kedge import extras, load_translator
from kedge.cli import progress
from kedge.cli.find import check
from kedge.cli.main import main
from kedge.extras import install_command
from kedge.spaces.pairs import write_table


def test_a_key_beyond_the_limit_is_said_to_be_there(run_files, words, capsys):
    run, x, y = run_files
    later = words[0].keys[1500]
    assert main(["search", run, x, y, later, "--limit", "1000"]) == 2
    error = capsys.readouterr().err
    assert f"unknown key '{later}'" in error
    assert "the file has it, but not among its first 1000 rows: raise --limit, or omit it" in error
    assert main(["search", run, x, y, "no-such-word", "--limit", "1000"]) == 2
    assert "--limit" not in capsys.readouterr().err
    assert main(["search", run, x, y, "no-such-word"]) == 2
    assert "--limit" not in capsys.readouterr().err


def test_unknown_seeds_are_skipped_and_counted_unless_strict(small_files, tmp_path, capsys):
    x, y, seeds = small_files
    lines = [tuple(line.split("\t")) for line in Path(seeds).read_text().splitlines()[1:]]
    some = tmp_path / "seeds.tsv"
    write_table(some, ("x", "y"), [*lines, ("r3", "nowhere")])
    options = ["discover", x, y, "--seeds", str(some), "-o", str(tmp_path / "run"), "--device", "cpu", "--json"]
    assert main([*options, "--strict"]) == 2
    assert f"{some}, line 17: Y ({y}) has no key 'nowhere'" in capsys.readouterr().err
    assert main([*options, "--ignore-verdict"]) == 0
    captured = capsys.readouterr()
    assert "15 seeds (1 line skipped: a space lacks a key)" in captured.err
    assert json.loads(captured.out)["skipped_seeds"] == 1


def test_check_says_how_long_it_takes_where_that_is_long(small_files, capsys, monkeypatch):
    x, y, _ = small_files
    assert main(["check", x, y, "--device", "cpu"]) == 0
    assert "this takes" not in capsys.readouterr().err
    monkeypatch.setattr(check, "_LONG", 0)
    monkeypatch.setattr(progress, "estimate_seconds", lambda *_: 200.0)
    assert main(["check", x, y, "--device", "cpu"]) == 0
    assert "this takes about 3 minutes here; --limit 5000 is quicker" in capsys.readouterr().err


def test_estimates_grow_with_the_rows():
    few, many = (progress.estimate_seconds(rows, rows, 64, 10, "cpu") for rows in (1000, 100_000))
    assert 0 < few < many
    described = [progress.about(seconds) for seconds in (3, 44, 200, 9000)]
    assert described == ["about 10 seconds", "about 40 seconds", "about 3 minutes", "about 2.5 hours"]


def test_hints_name_the_checkout_where_kedge_is_not_installed(monkeypatch):
    assert install_command("kedge[report]") == "pip install 'kedge[report]'"
    assert install_command("one two") == "pip install one two"

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", missing)
    checkout = Path(extras.__file__).parents[2]
    assert install_command("kedge[report]") == f"pip install --editable '{checkout}[report]'"
    assert install_command("one two") == "pip install one two"


@pytest.mark.thorough
def test_the_hint_works_for_a_kedge_that_is_installed():
    pytest.importorskip("pandas", reason="needs pandas")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "kedge[pandas]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named pip" in done.stderr:
        pytest.skip("needs pip")
    assert done.returncode == 0, done.stderr


def test_translate_is_one_name_for_discovery_and_translator(fitted, words, run_files):
    vectors = words[1].vectors[:3]
    translator = load_translator(run_files[0], back=True)
    assert (translator.translate(vectors) == translator(vectors)).all()
    assert translator.translate(vectors) == pytest.approx(fitted.translate(vectors, back=True), abs=1e-5)

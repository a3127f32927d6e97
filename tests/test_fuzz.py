"""Damaged files give a result that passes its checks, or a `KedgeError`: a few inputs of `tools/fuzz.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def fuzz():
    """The module, found as its own script finds it."""
    sys.path.insert(0, str(TOOLS))
    try:
        yield pytest.importorskip("fuzz")
    finally:
        sys.path.remove(str(TOOLS))


def test_no_reader_does_anything_but_read_or_refuse(fuzz, tmp_path):
    from fuzz_targets import TARGETS

    outcomes = set()
    for name in TARGETS:
        assert fuzz.try_input(name, 0, -1, tmp_path) == ("read", ""), name
        for number in range(40):
            outcome, why = fuzz.try_input(name, 16, number, tmp_path)
            assert outcome != "failed", f"{name}, input {number} of seed 16: {why}"
            outcomes.add(outcome)
    assert outcomes == {"read", "refused"}


def test_the_same_seed_gives_the_same_inputs(fuzz):
    from fuzz_targets import TARGETS, damaged_files

    for target in TARGETS.values():
        assert damaged_files(target, Random("a")) == damaged_files(target, Random("a"))


def test_what_goes_wrong_is_found_and_kept(fuzz, tmp_path, monkeypatch):
    """The fuzzer can fail: for an exception, a warning and a file that is left."""
    import fuzz_targets

    def fail(folder, chance):
        raise KeyError("oops")

    def leave(folder, chance):
        (folder / "left").touch()

    for read, expected in ((fail, "KeyError: 'oops'"), (leave, "left behind ['left']")):
        target = fuzz_targets.Target(fuzz_targets.TARGETS["vec"].make, read)
        monkeypatch.setitem(fuzz_targets.TARGETS, "vec", target)
        (tmp_path / "in").mkdir(exist_ok=True)
        outcome, why = fuzz.try_input("vec", 0, 0, tmp_path / "in")
        assert outcome == "failed"
        assert expected in why
        fuzz.keep_failure(tmp_path / "kept", "vec", 0, 0, why)
        assert {path.name for path in (tmp_path / "kept" / "vec-0-0").iterdir()} == {"x.vec", "why.log"}


@pytest.mark.thorough
def test_the_script_counts_outcomes(tmp_path):
    command = [sys.executable, str(TOOLS / "fuzz.py"), "--target", "vec", "--target", "npz", "--inputs", "600"]
    done = subprocess.run([*command, "--failures", str(tmp_path / "kept")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("600 inputs with seed 0: read ")
    assert not (tmp_path / "kept").exists()

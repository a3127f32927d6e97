"""A discovery that is stopped, at any moment and in any way, can go on to the same bytes; and only where it belongs."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from kedge import AnchorDiscovery, Embeddings, InputError, Schedule, Step, read_embeddings, read_pairs, write_embeddings
from kedge.cli.main import main
from kedge.matching import candidates
from kedge.runs.checkpoint import Checkpoint, discard
from kedge.solving import attempts
from kedge.solving.starts import SharedCoordinates
from kedge.spaces.pairs import write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory, words, word_seeds) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    for name, space in zip(("x.npz", "y.npz"), words, strict=True):
        write_embeddings(space.take(range(1500)), path / name)
    known = set(words[0].keys[:1500]) & set(words[1].keys[:1500])
    seeds = [(key, key) for key in sorted(known)[:200:40]]  # few: fingerprints, and many rounds
    write_table(path / "seeds.tsv", ("x", "y"), seeds)
    return path


def arguments(folder: Path, out: str, *more: str) -> list[str]:
    files = [str(folder / name) for name in ("x.npz", "y.npz")]
    options = ["--seeds", str(folder / "seeds.tsv"), "--anchors", "50", "--device", "cpu", "--ignore-verdict"]
    return ["discover", *files, *options, "--out", str(folder / out), *more]


def discovered(folder: Path, **options) -> AnchorDiscovery:
    x, y = (read_embeddings(folder / name) for name in ("x.npz", "y.npz"))
    seeds = read_pairs(folder / "seeds.tsv", x, y)
    return AnchorDiscovery(n_anchors=50, device="cpu", **options).fit(x, y, seeds)


@pytest.fixture(scope="module")
def undisturbed(folder) -> Path:
    discovered(folder).save(folder / "undisturbed")
    return folder / "undisturbed"


def assert_same_bytes(one: Path, other: Path) -> None:
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir())
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name


# -- killed by the system -------------------------------------------------------------------------

# Kills itself after a stage is done and before it is kept, while it is being written, or right after it is kept; or
# after so many rounds of one, in the middle of it.
KILLED = """
import os, signal, sys
where, when, folder, states, threads = sys.argv[1:6]
from pathlib import Path
import torch
torch.set_num_threads(int(threads))
from kedge import AnchorDiscovery, read_embeddings, read_pairs
from kedge.runs import checkpoint
keep = checkpoint.Checkpoint.keep
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def keeps(self, stage, value, steps):
    if stage == where and when == "before":
        die()
    if stage == where and when == "during":
        checkpoint.save_file = lambda tensors, path, metadata: (path.write_bytes(b"half a fi"), die())
    keep(self, stage, value, steps)
    if stage == where and when == "after":
        die()
def on_step(step):
    if when.isdigit() and (step.stage, step.index) == (where, int(when)):
        die()
checkpoint.Checkpoint.keep = keeps
x, y = (read_embeddings(Path(folder, name)) for name in ("x.npz", "y.npz"))
seeds = read_pairs(Path(folder, "seeds.tsv"), x, y)
AnchorDiscovery(n_anchors=50, device="cpu", checkpoint=states, on_step=on_step).fit(x, y, seeds)
"""
KILLS = [
    ("fingerprints", "1"),
    ("attempt-1-start", "before"),
    ("attempt-1-start", "during"),
    ("attempt-1-start", "after"),
    ("anneal", "4"),
    ("attempt-1-annealed", "during"),
    ("attempt-1-annealed", "after"),
    ("finish", "2"),
    ("attempt-1-finished", "after"),
    ("chance", "during"),
    ("chance", "after"),
    ("confidence", "during"),
    ("confidence", "after"),
]


needs_kill = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")


@needs_kill
def test_killed_while_it_writes_it_goes_on_to_the_same_bytes(tmp_path, rotated):
    keys = [str(row) for row in range(200)]
    for name, vectors in zip(("x.npz", "y.npz"), rotated(n=200, noise=0.3), strict=True):
        write_embeddings(Embeddings(keys, vectors), tmp_path / name)
    write_table(tmp_path / "seeds.tsv", ("x", "y"), [(key, key) for key in keys[:5]])
    discovered(tmp_path).save(tmp_path / "undisturbed")
    assert_it_goes_on(tmp_path, tmp_path / "undisturbed", tmp_path, "attempt-1-annealed", "during")


@pytest.mark.thorough
@needs_kill
@pytest.mark.parametrize(("where", "when"), KILLS)
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(folder, undisturbed, tmp_path, where, when):
    assert_it_goes_on(folder, undisturbed, tmp_path, where, when)


def assert_it_goes_on(folder: Path, undisturbed: Path, tmp_path: Path, where: str, when: str) -> None:
    states = tmp_path / "states"
    # As many threads of torch as here; not by the environment, which SciPy's would follow too.
    given = [where, when, str(folder), str(states), str(torch.get_num_threads())]
    killed = subprocess.run([sys.executable, "-c", KILLED, *given], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = {path.stem for path in states.glob("attempt-1-*")}  # not what was half written
    steps: list[Step] = []
    discovered(folder, checkpoint=states, on_step=steps.append).save(tmp_path / "resumed")
    assert_same_bytes(tmp_path / "resumed", undisturbed)
    # No stage that was kept is done again.
    first = {step.stage for step in steps if step.attempt.startswith("attempt 1 ")}
    assert ("fingerprints" in first) == ("attempt-1-start" not in kept)
    assert ("anneal" in first) == ("attempt-1-annealed" not in kept)
    assert not list(states.glob(".kedge-*"))
    assert not list(tmp_path.glob(".*"))


# -- stopped at the border of any stage -----------------------------------------------------------


class _Stop(BaseException):
    """As a signal would."""


SEEDS = [(row, row) for row in range(6)]
FEW_ROUNDS = Schedule(sample_size=100, anneal_rounds=4, fingerprints=True)
CASES = {
    # Rows that hardly recognise each other, and a part that is finished softly.
    "soft": {"noise": 1.0, "rows": 120, "seeds": SEEDS, "options": {"schedule": FEW_ROUNDS}},
    # Many rows, as far as the limits go: candidates, and a part to finish on.
    "large": {"noise": 0.1, "rows": 200, "seeds": SEEDS, "options": {"schedule": FEW_ROUNDS}},
    "no seeds": {"noise": 0.3, "rows": 120, "seeds": [], "options": {}},
}
STAGES = {
    "soft": {"attempt-1-start", "attempt-1-annealed", "attempt-1-finished", "rivals", "attempt-1-soft", "confidence"},
    "large": {"attempt-1-finished", "attempt-1-all", "chance", "confidence"},
    "no seeds": {"attempt-1-finished", "attempt-2-start", "attempt-2-annealed", "rivals", "confidence"},
}


@pytest.fixture
def fit(monkeypatch, rotated):
    """A function that makes the discovery of a case; with limits so small that 200 rows are many."""
    monkeypatch.setattr(candidates, "_QUICK", {"cpu": 150**2})
    monkeypatch.setattr(attempts, "FINISH_ROWS", 150)
    monkeypatch.setattr(attempts, "FINISH_ROWS_OF_X", 100)

    def fit(case: dict, states: Path) -> AnchorDiscovery:
        x, y = rotated(n=case["rows"], dim=8, noise=case["noise"])
        discovery = AnchorDiscovery(n_anchors=10, device="cpu", checkpoint=states, **case["options"])
        return discovery.fit(x[:-3], y, case["seeds"])

    return fit


def test_stopped_after_every_stage_it_goes_on_to_the_same_bytes(fit, monkeypatch, tmp_path):
    """Every run gets one stage further than the one before."""
    case = CASES["large"]
    fit(case, tmp_path / "whole").save(tmp_path / "expected")
    keep, kept = Checkpoint.keep, []

    def keeps(self, name, value, steps):
        keep(self, name, value, steps)
        kept.append(name)
        raise _Stop

    monkeypatch.setattr(Checkpoint, "keep", keeps)
    for _ in range(20):
        try:
            found = fit(case, tmp_path / "states")
            break
        except _Stop:
            continue
    found.save(tmp_path / "resumed")
    assert_same_bytes(tmp_path / "resumed", tmp_path / "expected")
    assert STAGES["large"] <= set(kept)
    assert len(kept) == len(set(kept))


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_stopped_before_or_after_any_one_stage_it_goes_on_to_the_same_bytes(case, fit, monkeypatch, tmp_path):
    fit(CASES[case], tmp_path / "whole").save(tmp_path / "expected")
    stages = {path.stem for path in (tmp_path / "whole").glob("*.safetensors")}
    assert stages >= STAGES[case]
    keep = Checkpoint.keep
    for stage in sorted(stages):
        for moment in ("before", "after"):

            def keeps(self, name, value, steps, stage=stage, moment=moment):
                if (name, moment) == (stage, "before"):
                    raise _Stop
                keep(self, name, value, steps)
                if name == stage:
                    raise _Stop

            with monkeypatch.context() as patch, pytest.raises(_Stop):
                patch.setattr(Checkpoint, "keep", keeps)
                fit(CASES[case], tmp_path / "states")
            fit(CASES[case], tmp_path / "states").save(tmp_path / "resumed", overwrite=True)
            assert_same_bytes(tmp_path / "resumed", tmp_path / "expected")
            shutil.rmtree(tmp_path / "states")


# -- on the command line --------------------------------------------------------------------------

COMMAND = """
import sys, torch
torch.set_num_threads(int(sys.argv.pop(1)))
from kedge.cli.main import entry_point
entry_point()
"""


@pytest.mark.thorough
def test_resume_on_the_command_line(folder, undisturbed, capsys):
    out, states = folder / "resumed", folder / "resumed.checkpoint"
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(torch.get_num_threads()), *arguments(folder, "resumed")],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (states / "attempt-1-start.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command with --resume continues" in told
    capsys.readouterr()
    assert main(arguments(folder, "resumed")) == 2  # neither lost nor silently taken up
    assert "continue it with --resume, or start over with --overwrite" in capsys.readouterr().err
    assert main(arguments(folder, "resumed", "--resume", "--method", "paper")) == 2
    assert "keeps no state" in capsys.readouterr().err
    missing = [str(folder / "no.npz") if part.endswith("x.npz") else part for part in arguments(folder, "resumed")]
    assert main([*missing, "--overwrite"]) == 2  # a mistake does not cost the state
    assert states.is_dir()
    assert main(arguments(folder, "resumed", "--resume", "--random-state", "1")) == 2
    assert "is the state of another discovery: random_state was 0 and is now 1" in capsys.readouterr().err
    assert states.is_dir()
    assert main(arguments(folder, "resumed", "--resume")) == 0
    assert "going on from" in capsys.readouterr().err
    assert not states.exists()
    for name in ("pairs.tsv", "map.safetensors", "match.safetensors"):
        assert (out / name).read_bytes() == (undisturbed / name).read_bytes()


@pytest.mark.thorough
def test_overwrite_starts_over_and_resume_without_a_state_starts(folder, capsys):
    states = folder / "fresh.checkpoint"
    nothing = SharedCoordinates(torch.zeros(1), torch.zeros(1))
    with Checkpoint(states, {"X": "another"}, {}, torch.device("cpu"), torch.Generator()) as kept:
        kept.keep("attempt-1-start", nothing, [])
    assert main(arguments(folder, "fresh", "--overwrite")) == 0
    assert not states.exists()
    assert main(arguments(folder, "begun", "--resume")) == 0
    assert "no unfinished discovery in" in capsys.readouterr().err


def test_what_is_no_checkpoint_is_left_alone(tmp_path, rotated):
    x, y = rotated()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    seeds = np.stack([np.arange(15), np.arange(15)], axis=1)
    with pytest.raises(InputError, match="holds something other"):
        AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "thesis").fit(x, y, seeds)
    (tmp_path / "thesis" / "identity.json").write_text("[]")
    discard(tmp_path / "thesis")
    (tmp_path / "thesis" / "identity.json").unlink()
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "precious"
    with pytest.raises(InputError, match="does not exist"):
        AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "no" / "where").fit(x, y, seeds)
    with pytest.raises(InputError, match="keeps no state"):
        AnchorDiscovery(method="paper", checkpoint=tmp_path / "c").fit(x, y, seeds)


def test_other_spaces_and_damaged_states_are_refused(tmp_path, rotated):
    x, y = rotated()
    seeds = np.stack([np.arange(15), np.arange(15)], axis=1)

    def fit(x, y):
        return AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=tmp_path / "states").fit(x, y, seeds)

    first = fit(x, y)
    again = fit(x, y)  # all of it recalled
    np.testing.assert_array_equal(first.match_, again.match_)
    assert first.history_ == again.history_
    changed = y.copy()
    changed[7, 3] += 1e-3
    with pytest.raises(InputError, match="whose Y differs"):
        fit(x, changed)
    with pytest.raises(InputError, match="whose X differs"):
        fit(x[::-1], y)
    (tmp_path / "states" / "chance.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="chance.safetensors: cannot be read"):
        fit(x, y)
    assert [path.name for path in tmp_path.iterdir()] == ["states"]

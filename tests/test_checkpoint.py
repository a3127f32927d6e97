"""A discovery that is stopped, at any moment and in any way, can go on; and only where it belongs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from kedge import AnchorDiscovery, Embeddings, InputError, Step, load, read_embeddings, read_pairs, write_embeddings
from kedge.cli.main import main
from kedge.runs.checkpoint import Checkpoint, discard
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
    options = ["--seeds", str(folder / "seeds.tsv"), "--anchors", "50", "--device", "cpu", "--force"]
    return ["discover", *files, *options, "--out", str(folder / out), *more]


@pytest.fixture(scope="module")
def undisturbed(folder):
    assert main(arguments(folder, "undisturbed")) == 0
    return load(folder / "undisturbed")


def rounds_kept(path: Path) -> int:
    """The round in a state file; 0 where there is none yet."""
    if not path.exists():
        return 0
    with safe_open(path, framework="pt") as stored:
        return int(stored.get_tensor("round"))


# Kills itself right after the wanted state is kept, or while it is being written.
KILLED = """
import os, signal, sys
stage, rounds, when = sys.argv[1], int(sys.argv[2]), sys.argv[3]
del sys.argv[1:4]
from kedge.runs import checkpoint
from kedge.cli.main import entry_point
write, save, count = checkpoint.Checkpoint.write, checkpoint.save_file, 0
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def writes(self, name, tensors, history):
    global count
    count += name == stage
    if name == stage and count == rounds and when == "during":
        checkpoint.save_file = lambda tensors, path, metadata: (path.write_bytes(b"half a fi"), die())
    write(self, name, tensors, history)
    if name == stage and count == rounds:
        die()
checkpoint.Checkpoint.write = writes
entry_point()
"""
KILLS = [
    ("attempt-1-fingerprints", 1, "after"),
    ("attempt-1-fingerprints", 1, "during"),
    ("attempt-1-anneal", 4, "after"),
    ("attempt-1-anneal", 4, "during"),
    ("attempt-1-finish", 1, "after"),
    ("attempt-1-finished", 1, "after"),
    ("illusion", 1, "after"),
    ("confidence", 1, "after"),
    ("illusion", 1, "during"),
]


needs_kill = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")


@needs_kill
def test_killed_while_annealing_it_goes_on_to_the_same_result(tmp_path, rotated):
    keys = [str(row) for row in range(200)]
    for name, vectors in zip(("x.npz", "y.npz"), rotated(n=200, noise=0.3), strict=True):
        write_embeddings(Embeddings(keys, vectors), tmp_path / name)
    write_table(tmp_path / "seeds.tsv", ("x", "y"), [(key, key) for key in keys[:5]])
    assert main(arguments(tmp_path, "undisturbed")) == 0
    assert_it_goes_on(tmp_path, load(tmp_path / "undisturbed"), tmp_path, "attempt-1-anneal", 4, "during")


@pytest.mark.thorough
@needs_kill
@pytest.mark.parametrize(("stage", "rounds", "when"), KILLS)
def test_killed_at_any_stage_it_goes_on_to_the_same_result(folder, undisturbed, tmp_path, stage, rounds, when):
    assert_it_goes_on(folder, undisturbed, tmp_path, stage, rounds, when)


def assert_it_goes_on(folder, undisturbed, tmp_path, stage, rounds, when):
    states = folder / f"killed-{stage}-{rounds}-{when}.checkpoint"
    (tmp_path / "killed.py").write_text(KILLED)
    program = [sys.executable, str(tmp_path / "killed.py"), stage, str(rounds), when]
    killed = subprocess.run(
        [*program, *arguments(folder, states.stem)],
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (folder / states.stem).exists()
    kept = rounds_kept(states / "attempt-1-anneal.safetensors")

    steps: list[Step] = []
    resumed = AnchorDiscovery(n_anchors=50, device="cpu", checkpoint=states, on_step=steps.append)
    x, y = (read_embeddings(folder / name) for name in ("x.npz", "y.npz"))
    resumed.fit(x, y, read_pairs(folder / "seeds.tsv", x, y))
    # Nothing that was kept is done again: annealing goes on with the round after the last one kept.
    annealed = [step.index for step in steps if step.stage == "anneal"]
    first = undisturbed.history_[0].attempt
    last = max(step.index for step in undisturbed.history_ if (step.stage, step.attempt) == ("anneal", first))
    assert annealed[:1] == ([kept + 1] if kept < last else [])
    if stage == "attempt-1-anneal":
        assert kept == (rounds if when == "after" else rounds - 1)
    assert ("fingerprints" in {step.stage for step in steps}) == (stage.endswith("fingerprints") and when == "during")
    assert resumed.history_ == undisturbed.history_
    np.testing.assert_array_equal(resumed.match_, undisturbed.match_)
    np.testing.assert_array_equal(resumed.pairs_, undisturbed.pairs_)
    np.testing.assert_array_equal(resumed.map_, undisturbed.map_)
    assert not list(states.glob(".kedge-*"))


@pytest.mark.thorough
def test_resume_on_the_command_line(folder, undisturbed, capsys):
    out, states = folder / "resumed", folder / "resumed.checkpoint"
    process = subprocess.Popen(
        [sys.executable, "-m", "kedge", *arguments(folder, "resumed")],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
    )
    while not (states / "attempt-1-anneal.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command with --resume goes on" in told
    capsys.readouterr()
    assert main(arguments(folder, "resumed")) == 2  # neither lost nor silently taken up
    assert "go on with it by --resume, or start over by --overwrite" in capsys.readouterr().err
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
    assert (out / "pairs.tsv").read_bytes() == (folder / "undisturbed" / "pairs.tsv").read_bytes()


@pytest.mark.thorough
def test_overwrite_starts_over_and_resume_without_a_state_starts(folder, capsys):
    states = folder / "fresh.checkpoint"
    Checkpoint(states, {"X": "another"}, {}).write("chance", {}, [])
    assert main(arguments(folder, "fresh", "--overwrite")) == 0
    assert not states.exists()
    assert main(arguments(folder, "begun", "--resume")) == 0
    assert "nothing to go on from" in capsys.readouterr().err


def test_what_is_no_checkpoint_is_left_alone(tmp_path, rotated):
    x, y = rotated()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    seeds = np.stack([np.arange(15), np.arange(15)], axis=1)
    with pytest.raises(InputError, match="holds something else"):
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

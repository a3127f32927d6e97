"""Two discoveries do not mix what they write: locks that die with their process, and states that say whose they are."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from kedge import AnchorDiscovery, InputError, load
from kedge.cli.main import main
from kedge.runs.checkpoint import discard
from kedge.spaces.writing.lock import FolderLock

needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
pytestmark = needs_locks

SEEDS = [(row, row) for row in range(15)]


def arguments(small_files, out, *more: str) -> list[str]:
    x, y, seeds = small_files
    return ["discover", x, y, "--seeds", seeds, "--anchors", "20", "--device", "cpu", "--out", str(out), *more]


def discovery(states, **settings) -> AnchorDiscovery:
    return AnchorDiscovery(n_anchors=20, device="cpu", checkpoint=states, **settings)


@pytest.mark.parametrize("more", [(), ("--resume",), ("--overwrite",), ("--method", "paper")])
def test_a_second_discovery_into_one_folder_is_refused_at_the_start(small_files, tmp_path, capsys, more):
    out, states = tmp_path / "run", tmp_path / "run.checkpoint"
    states.mkdir()
    (states / "identity.json").write_text("{}")
    with FolderLock(out):
        assert main(arguments(small_files, out, *more)) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{out}: another discovery is writing there (process {os.getpid()} on " in told
    assert "wait until it is done, stop it, or choose another name" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.checkpoint"]
    assert [path.name for path in states.iterdir()] == ["identity.json"]  # nothing of the other's is lost


HOLDING = """
import sys, time
from kedge import AnchorDiscovery
from kedge.cli.main import main
def fit(*_, **__):
    print("searching", flush=True)
    time.sleep(600)
AnchorDiscovery.fit = fit
main(sys.argv[1:])
"""


@pytest.mark.thorough
def test_a_lock_dies_with_its_process(small_files, tmp_path, capsys):
    out = tmp_path / "run"
    program = [sys.executable, "-c", HOLDING, *arguments(small_files, out)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "searching\n"
            assert main(arguments(small_files, out)) == 2
            assert f"process {holder.pid} on" in capsys.readouterr().err
        finally:
            holder.send_signal(signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == [".run.kedge-lock"]  # left behind, but not locked
    assert main(arguments(small_files, out)) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    load(out)


def test_the_file_of_a_lock_that_nobody_holds_is_in_nobody_s_way(small_files, tmp_path):
    (tmp_path / ".run.kedge-lock").write_text("process 1 on a machine that has crashed, long ago\n")
    assert main(arguments(small_files, tmp_path / "run")) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_checkpoint_is_one_fit_s_at_a_time(tmp_path, rotated):
    x, y = rotated(n=60)
    states = tmp_path / "states"
    refused = []

    def meanwhile(step) -> None:
        if states.exists() and not refused:
            for use in (lambda: discovery(states).fit(x, y, SEEDS), lambda: discard(states)):
                with pytest.raises(InputError, match="states: another discovery is writing there") as error:
                    use()
                refused.append(str(error.value))

    first = discovery(states, on_step=meanwhile).fit(x, y, SEEDS)
    assert len(refused) == 2
    again = discovery(states).fit(x, y, SEEDS)  # free once it is done
    np.testing.assert_array_equal(first.match_, again.match_)
    assert [path.name for path in tmp_path.iterdir()] == ["states"]


def test_a_fit_that_is_interrupted_lets_go_of_its_checkpoint(tmp_path, rotated):
    x, y = rotated(n=60)

    def stop(step) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept_alive:  # as a notebook keeps the last error, with all its variables
        discovery(tmp_path / "states", on_step=stop).fit(x, y, SEEDS)
    discovery(tmp_path / "states").fit(x, y, SEEDS)
    assert kept_alive.value is not None


def test_the_states_of_another_discovery_are_refused(tmp_path, rotated):
    x, y = rotated(n=60)
    discovery(tmp_path / "ours").fit(x, y, SEEDS)
    discovery(tmp_path / "theirs", random_state=1).fit(x, y, SEEDS)
    state = "attempt-1-annealed.safetensors"
    shutil.copy(tmp_path / "theirs" / state, tmp_path / "ours" / state)  # as two that wrote into one folder left it
    with pytest.raises(InputError, match=f"{state}: is the state of another discovery.*start over"):
        discovery(tmp_path / "ours").fit(x, y, SEEDS)
    discovery(tmp_path / "own").fit(x, y, SEEDS)
    shutil.copy(tmp_path / "own" / state, tmp_path / "own" / "attempt-1-finished.safetensors")
    with pytest.raises(InputError, match="attempt-1-finished.safetensors: .* of another stage"):
        discovery(tmp_path / "own").fit(x, y, SEEDS)


def test_a_lock_touches_nothing_else(tmp_path):
    (tmp_path / "precious").write_text("years of work")
    (tmp_path / ".run.kedge-lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="run.kedge-lock: cannot be made"), FolderLock(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "years of work"
    with pytest.raises(InputError, match="does not exist"), FolderLock(tmp_path / "no" / "run"):
        pass
    (tmp_path / "poetry.lock").write_text("somebody else's")
    with FolderLock(tmp_path / "poetry"):
        assert (tmp_path / "poetry.lock").read_text() == "somebody else's"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".run.kedge-lock", "poetry.lock", "precious"]


def test_file_systems_without_locks_do_without(tmp_path, monkeypatch):
    import fcntl

    def no_locks(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with FolderLock(tmp_path / "run"):
        pass
    assert not list(tmp_path.iterdir())

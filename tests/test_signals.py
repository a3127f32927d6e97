"""Ctrl-C and SIGTERM, at any moment from the start of the command: one line and exit code 130, never a traceback."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

LINE = "kedge: interrupted; nothing half-written is left"
# Python itself answers what comes before the first line of `entry_point`, which is here before the sign to begin.
STARTED = """
import sys
import kedge.cli.main
from kedge.cli.signals import answer_signals, exit_at_once
answer_signals(exit_at_once)
sys.stdout.write("started\\n")
sys.stdout.flush()
kedge.cli.main.entry_point()
"""


def interrupt(arguments: list[str], number: signal.Signals, after: float) -> tuple[int, str]:
    """The exit code and stderr of a command that gets a signal so many seconds after it has started."""
    command = [sys.executable, "-c", STARTED, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def assert_ends_well(code: int, errors: str) -> None:
    assert "Traceback" not in errors, errors
    assert "Exception ignored" not in errors, errors
    if code:  # otherwise it was done before the signal came
        assert code == 130, errors
        assert errors.splitlines()[-1] == LINE
        assert errors.count("interrupted") == 1


def moments(count: int, seconds: float) -> list[float]:
    """So many moments, spread over the first seconds, more of them early."""
    chance = random.Random(0)
    return [seconds * (chance.random() + step) ** 2 / count**2 for step in range(count)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_loading_ends_in_one_line(number, small_files, tmp_path):
    x, y, seeds = map(str, small_files)
    command = ["discover", x, y, "--seeds", seeds, "-o", str(tmp_path / "run"), "--method", "paper"]
    for after in moments(6, 1.0):
        assert_ends_well(*interrupt(command, number, after))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["discover", "info", "stores", "help"])
def test_commands_end_in_one_line_at_many_moments(number, command, small_files, tmp_path):
    x, y, seeds = map(str, small_files)
    arguments = {
        "discover": ["discover", x, y, "--seeds", seeds, "-o", str(tmp_path / "run"), "--method", "paper"],
        "info": ["info", x],
        "stores": ["stores"],
        "help": ["--help"],
    }[command]
    for after in moments(12, 0.1 if command == "help" else 2.0):
        assert_ends_well(*interrupt(arguments, number, after))
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


SLOW_IMPORT = """
import os, sys, time
try:
    for _ in range(60):
        time.sleep(0.01)
except BaseException:  # as libraries do
    os._exit(9)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_import_is_not_interrupted_in_the_middle(number, tmp_path):
    (tmp_path / "slow_library.py").write_text(SLOW_IMPORT)
    (tmp_path / "work.py").write_text(f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(tmp_path)!r})
from kedge.cli import signals
signals.raise_interrupts()
threading.Timer(0.2, os.kill, (os.getpid(), {int(number)})).start()
try:
    import slow_library
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted", "slow_library" in sys.modules)
""")
    done = subprocess.run([sys.executable, tmp_path / "work.py"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted True\n"), done.stderr


def test_an_interruption_in_a_finaliser_is_not_lost(tmp_path):
    """Python can only print what is raised there."""
    (tmp_path / "work.py").write_text("""
import os, signal, time
from kedge.cli import signals
signals.raise_interrupts()
class Closing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
try:
    Closing()
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
""")
    done = subprocess.run([sys.executable, tmp_path / "work.py"], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_ctrl_c_stays_ignored_in_the_background_of_a_script(tmp_path):
    work = "from kedge.cli import signals; signals.raise_interrupts(); import os, signal; os.kill(os.getpid(), 2)"
    command = ["bash", "-c", 'trap "" INT; exec "$@"', "bash", sys.executable, "-c", f"{work}; print('went on')"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "went on\n"

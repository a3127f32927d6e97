"""Feed damaged files to everything that reads: the outcome must be a result that passes its checks, or a `KedgeError`.

    python tools/fuzz.py --inputs 100000            # shared among all targets, the same for the same --seed
    python tools/fuzz.py --target npz --minutes 10  # of one target, for so long
    python tools/fuzz.py --target npz --first 5000  # go on where another run has stopped
    python tools/fuzz.py --target npz --guided      # led by coverage, where atheris is installed

Any other exception or warning, a crash, more than 20 seconds or 300 MB, and a file left behind are failures. The input
of each failure is kept in --failures, in a folder that says which it was, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from random import Random
from typing import Any

_MAX_SECONDS = 20
_MAX_MEGABYTES = 300
_HARD_LIMIT_BYTES = 8 * 2**30
_ROUND = 500  # inputs of one target before the next has its turn


def main() -> int:
    """Run, print a table of outcomes, return 1 if there was a failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="how many, over all targets")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input of each target")
    parser.add_argument("--target", action="append", help="one of those in fuzz_targets.py; may be given several times")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where failing inputs are kept")
    parser.add_argument("--guided", action="store_true", help="let atheris choose the inputs of one target")
    arguments = parser.parse_args()
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # of the processes that are started: small inputs gain nothing by more
    if arguments.guided:
        return guide((arguments.target or ["npz"])[0], arguments.seed, arguments.inputs)
    from fuzz_targets import TARGETS

    names = arguments.target or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    outcomes = run(names, arguments)
    for name, counts in outcomes.items():
        print(f"{name:18}", "  ".join(f"{outcome} {count:,}" for outcome, count in sorted(counts.items())))
    total: Counter[str] = sum(outcomes.values(), Counter())
    shown = ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(total.items()))
    print(f"{sum(total.values()):,} inputs with seed {arguments.seed}: {shown}")
    return int(bool(total["failed"]))


def run(names: list[str], arguments: argparse.Namespace) -> dict[str, Counter[str]]:
    """Outcomes by target, of inputs that the targets get in turn."""
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names}
    deadline = time.monotonic() + 60 * arguments.minutes
    turns = [
        (name, first, min(first + _ROUND, arguments.first + share))
        for share in [-(-arguments.inputs // len(names))]
        for first in range(arguments.first, arguments.first + share, _ROUND)
        for name in names
    ]
    while turns and time.monotonic() < deadline:
        with _Worker(arguments.seed, arguments.failures) as worker:
            while turns and time.monotonic() < deadline and worker.alive:
                name, first, end = turns.pop(0)
                counts, done = worker.do(name, first, end)
                outcomes[name] += counts
                if done < end:
                    turns.insert(0, (name, done, end))
    return outcomes


class _Worker:
    """A process that reads inputs, since some may end it; what it was at is known then."""

    def __init__(self, seed: int, failures: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._seed, self._failures = seed, failures
        self._here, self._there = context.Pipe()
        self._at: Synchronized[int] = context.Value("q", 0)
        self._process = context.Process(target=_work, args=(self._there, self._at, seed, failures))

    def __enter__(self) -> _Worker:
        self._process.start()
        self._there.close()  # so that the end of the process is the end of what can be received
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def do(self, name: str, first: int, end: int) -> tuple[Counter[str], int]:
        """Outcomes of the inputs from `first`, and the number of the one that comes next."""
        self._at.value = first
        self._here.send((name, first, end))
        try:
            counts: Counter[str]
            counts, done = self._here.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            at, code = self._at.value, self._process.exitcode
            why = "took too long" if code == -signal.SIGALRM else f"ended the process with {code}"
            keep_failure(self._failures, name, self._seed, at, why)
            # What was counted before is lost with the process, but it went well, or was kept at once.
            return Counter({"unknown": at - first, "failed": 1}), at + 1
        return counts, done


def _work(pipe: Any, at: Synchronized[int], seed: int, failures: Path) -> None:
    """Read inputs until one has taken so much memory that the next could not be distinguished from it."""
    resource.setrlimit(resource.RLIMIT_AS, (_HARD_LIMIT_BYTES, _HARD_LIMIT_BYTES))
    with _workplace() as folder:
        while True:
            name, first, end = pipe.recv()
            counts: Counter[str] = Counter()
            try_input(name, seed, -1, folder)  # load what its reader needs
            before = _peak()
            for number in range(first, end):
                at.value = number
                signal.alarm(_MAX_SECONDS)
                outcome, why = try_input(name, seed, number, folder)
                signal.alarm(0)
                if _peak() - before > _MAX_MEGABYTES:
                    outcome, why = "failed", f"took {_peak() - before:.0f} MB"
                if outcome == "failed":
                    keep_failure(failures, name, seed, number, why)
                counts[outcome] += 1
                if _peak() - before > _MAX_MEGABYTES:
                    break
            pipe.send((counts, number + 1))
            if _peak() - before > _MAX_MEGABYTES:
                return


def try_input(name: str, seed: int, number: int, folder: Path) -> tuple[str, str]:
    """The outcome of one input ("read", "refused" or "failed"), and why."""
    from fuzz_targets import TARGETS, damaged_files

    from kedge import KedgeError

    chance = Random(f"{seed} {name} {number}")
    target = TARGETS[name]
    files = damaged_files(target, chance) if number >= 0 else target.sample()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    outcome, why = "read", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target.read(folder, chance)
    except KedgeError as error:
        outcome = "refused" if str(error) else "failed"
    except Exception:
        outcome, why = "failed", traceback.format_exc()
    left = {path.name for path in folder.iterdir()}
    if left != set(files):
        outcome, why = "failed", why or f"left behind {sorted(left ^ set(files))}"
    for file in left:
        path = folder / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return outcome, why


def keep_failure(failures: Path, name: str, seed: int, number: int, why: str) -> None:
    """Write the files of an input that failed, and why, into a folder of its own."""
    from fuzz_targets import TARGETS, damaged_files

    folder = failures / f"{name}-{seed}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in damaged_files(TARGETS[name], Random(f"{seed} {name} {number}")).items():
        (folder / file).write_bytes(content)
    (folder / "why.log").write_text(why)


def guide(name: str, seed: int, inputs: int) -> int:
    """Let atheris damage the first file of a target's sample, led by which lines of kedge an input reaches."""
    import atheris

    with atheris.instrument_imports(include=["kedge.spaces", "kedge.runs", "kedge.storage"]):
        from fuzz_targets import TARGETS

    from kedge import KedgeError

    target = TARGETS[name]
    first = min(target.sample())

    with _workplace() as folder, tempfile.TemporaryDirectory() as corpus:
        Path(corpus, "sample").write_bytes(target.sample()[first])

        def read(data: bytes) -> None:
            for file, content in (target.sample() | {first: data}).items():
                (folder / file).write_bytes(content)
            with suppress(KedgeError):
                target.read(folder, Random(seed))

        options = [f"-runs={inputs}", f"-seed={seed + 1}", f"-timeout={_MAX_SECONDS}", f"-rss_limit_mb={4096}"]
        atheris.Setup([sys.argv[0], corpus, *options], read)
        atheris.Fuzz()
    return 0


@contextmanager
def _workplace() -> Iterator[Path]:
    """An empty folder, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def _peak() -> float:
    """The peak memory of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())

"""What the benchmarks share: arguments, cases and their results, tables, scores, time and memory."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge import Step
from kedge.estimators.devices import resolve_device
from kedge.spaces.writing.atomic import atomic_path


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the description as it stands."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """`--data`, with `KEDGE_DATA` as its default."""
    default = os.environ.get("KEDGE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=default and Path(default),
        required=default is None,
        help="folder with words/ and images/ (default: $KEDGE_DATA)",
    )


def add_run_options(parser: argparse.ArgumentParser, states: int) -> None:
    """How many runs, where, and what is kept of them."""
    parser.add_argument("--states", type=int, default=states, help=f"random states per case ({states})")
    parser.add_argument("--jobs", type=int, default=1, help="processes, two threads each, or $OMP_NUM_THREADS (1)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--out", type=Path, help="write every run as a line of JSON; runs that it already holds are not repeated"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after so many (no limit)")


def run_cases(
    run: Callable[[Path, Any, str], dict[str, Any]], cases: Sequence[Any], arguments: argparse.Namespace
) -> dict[Any, dict[str, Any]]:
    """The results of the cases, dataclasses of one kind, of which those in `--out` are not run again; where `--minutes`
    do not suffice, of some of them.
    """
    known = read_results(type(cases[0]), arguments.out) if arguments.out and arguments.out.exists() else {}
    results = {case: known[case] for case in cases if case in known}
    left = iter([case for case in cases if case not in results])
    print(f"{len(cases) - len(results)} runs to do, {len(results)} done before", flush=True)
    until = time.monotonic() + 60 * arguments.minutes
    threads = int(os.environ.get("OMP_NUM_THREADS", 2))
    running: dict[Future[dict[str, Any]], Any] = {}
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), torch.set_num_threads, (threads,)) as pool:
        while True:
            while len(running) < arguments.jobs and time.monotonic() < until and (case := next(left, None)):
                running[pool.submit(run, arguments.data, case, arguments.device)] = case
            if not running:
                return results
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                case = running.pop(done)
                results[case] = done.result()
                if arguments.out:
                    with arguments.out.open("a") as file:
                        file.write(json.dumps(asdict(case) | results[case]) + "\n")


def read_results(kind: type, path: Path) -> dict[Any, dict[str, Any]]:
    """What an earlier call wrote of cases of that kind."""
    lines = map(json.loads, path.read_text().splitlines())
    return {kind(*(line[field.name] for field in fields(kind))): line for line in lines}


def write_json(path: Path, results: Any) -> None:
    """Write results to a file, all of them or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")


def markdown_header(columns: Sequence[str]) -> str:
    """The two lines that begin a table."""
    return f"{markdown_row(columns)}\n|{'---|' * len(columns)}"


def markdown_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def split_rows(
    order: NDArray[np.int64], rows: int, shared: int, chance: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Items (k,) in random order divided into two spaces of so many rows, the first `shared` of them in both.

    Returns the items of X (n,), those of Y (n,), shuffled, and for each row of X its row in Y (n,), or -1.
    """
    rows_x = order[:rows]
    rows_y = chance.permutation(np.concatenate([order[:shared], order[rows : 2 * rows - shared]]))
    place = np.full(int(order.max()) + 1, -1)
    place[rows_y] = np.arange(len(rows_y))
    return rows_x, rows_y, place[rows_x]


def self_recall_and_overlap(queries: Tensor, index: Tensor, own: Tensor, k: int = 10) -> tuple[float, float]:
    """Share of unit queries (q, d) that find their own row (q,) of an index (m, d) first, and how many of that row's k
    nearest they find.
    """
    nearest, expected = ((rows @ index.T).topk(k, dim=1).indices for rows in (queries, index[own]))
    shared = (nearest[:, :, None] == expected[:, None, :]).any(dim=2).double().mean()
    return float((nearest[:, 0] == own).double().mean()), float(shared)


def auroc(good: Sequence[float], bad: Sequence[float]) -> float:
    """How often a score of the good ones is above one of the bad ones; equal ones count half."""
    return float(np.mean([(a > b) + (a == b) / 2 for a in good for b in bad]))


def print_verdicts(verdicts: Mapping[Any, str], success: Mapping[Any, bool]) -> None:
    """How many of the cases with each verdict were successes."""
    print(markdown_header(("verdict", "successes", "failures")))
    for verdict in ("ok", "uncertain", "failed"):
        outcomes = [success[case] for case, given in verdicts.items() if given == verdict]
        print(f"| {verdict} | {sum(outcomes)} | {len(outcomes) - sum(outcomes)} |")


def timed(task: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of one call, what it leaves to a GPU included, and its answer."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    answer = task()
    wait()
    return time.perf_counter() - began, answer


def median_and_range(values: Iterable[float], digits: int = 1) -> str:
    """Such as 1.3 (1.2 to 1.9)."""
    numbers = np.array(list(values))
    return f"{np.median(numbers):.{digits}f} ({numbers.min():.{digits}f} to {numbers.max():.{digits}f})"


def describe_machine(device_name: str) -> str:
    """What the figures were measured on."""
    device = resolve_device(device_name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"


class StageClock:
    """An `on_step` that adds up the seconds until the end of each step by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, step: Step) -> None:
        """Count what went by since the last step."""
        now = time.perf_counter()
        self.seconds[step.stage] = self.seconds.get(step.stage, 0.0) + now - self._last
        self._last = now


def forget_peak() -> None:
    """Measure peaks of memory from now on; where the system cannot, from the start."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # or work could live on what was freed before
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        pass


def peak_megabytes(device: str) -> float:
    """Peak of memory so far, of the process ("cpu") or of torch on the GPU ("cuda"); NaN where it is not known."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else math.nan
    try:
        return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024 / 1e6
    except (OSError, IndexError):
        return math.nan

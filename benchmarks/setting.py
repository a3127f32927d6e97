"""Shared by the benchmarks: arguments, runs and their results, tables, scores, time and memory."""

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
    """A parser that shows the description in its help unchanged."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add `--data`, with the environment variable `KEDGE_DATA` as its default."""
    default = os.environ.get("KEDGE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=default and Path(default),
        required=default is None,
        help="folder with words/ and images/ (default: $KEDGE_DATA)",
    )


def add_run_options(parser: argparse.ArgumentParser, states: int) -> None:
    """Add options for the number of runs, the device, parallel jobs, time limit and output file."""
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
    """Run the cases, instances of one dataclass, and return the results by case.

    Cases already in `--out` are not run again. If `--minutes` run out, only some of the cases have results.
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
    """Read the results that `run_cases` wrote for cases of this dataclass."""
    lines = map(json.loads, path.read_text().splitlines())
    return {kind(*(line[field.name] for field in fields(kind))): line for line in lines}


def write_json(path: Path, results: Any) -> None:
    """Write results to a JSON file, completely or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1) + "\n")


def markdown_header(columns: Sequence[str]) -> str:
    """The first two lines of a Markdown table."""
    return f"{markdown_row(columns)}\n|{'---|' * len(columns)}"


def markdown_row(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def split_rows(
    order: NDArray[np.int64], rows: int, shared: int, chance: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Split items (k,), given in random order, into two spaces of `rows` rows with the first `shared` items in both.

    Returns the items of X (n,), the items of Y (n,) in shuffled order, and for each row of X its row in Y (n,) or -1.
    """
    rows_x = order[:rows]
    rows_y = chance.permutation(np.concatenate([order[:shared], order[rows : 2 * rows - shared]]))
    place = np.full(int(order.max()) + 1, -1)
    place[rows_y] = np.arange(len(rows_y))
    return rows_x, rows_y, place[rows_x]


def self_recall_and_overlap(queries: Tensor, index: Tensor, own: Tensor, k: int = 10) -> tuple[float, float]:
    """Share of unit queries (q, d) that find their own row first, and share of that row's k nearest that they find.

    `index` has shape (m, d); `own` (q,) is the row number of each query in it.
    """
    nearest, expected = ((rows @ index.T).topk(k, dim=1).indices for rows in (queries, index[own]))
    shared = (nearest[:, :, None] == expected[:, None, :]).any(dim=2).double().mean()
    return float((nearest[:, 0] == own).double().mean()), float(shared)


def auroc(good: Sequence[float], bad: Sequence[float]) -> float:
    """How often a score of `good` exceeds one of `bad`; ties count half."""
    return float(np.mean([(a > b) + (a == b) / 2 for a in good for b in bad]))


def print_verdicts(verdicts: Mapping[Any, str], success: Mapping[Any, bool]) -> None:
    """Print the number of successes and failures for each verdict."""
    print(markdown_header(("verdict", "successes", "failures")))
    for verdict in ("ok", "uncertain", "failed"):
        outcomes = [success[case] for case, given in verdicts.items() if given == verdict]
        print(f"| {verdict} | {sum(outcomes)} | {len(outcomes) - sum(outcomes)} |")


def timed(task: Callable[[], Any]) -> tuple[float, Any]:
    """Wall time of one call in seconds, including its work on the GPU, and its result."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    answer = task()
    wait()
    return time.perf_counter() - began, answer


def median_and_range(values: Iterable[float], digits: int = 1) -> str:
    """Format median and range, such as "1.3 (1.2 to 1.9)"."""
    numbers = np.array(list(values))
    return f"{np.median(numbers):.{digits}f} ({numbers.min():.{digits}f} to {numbers.max():.{digits}f})"


def describe_machine(device_name: str) -> str:
    """The hardware that figures were measured on."""
    device = resolve_device(device_name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"


class StageClock:
    """An `on_step` callback that adds up the seconds of all steps by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, step: Step) -> None:
        """Add the time since the last step to the stage of this one."""
        now = time.perf_counter()
        self.seconds[step.stage] = self.seconds.get(step.stage, 0.0) + now - self._last
        self._last = now


def forget_peak() -> None:
    """Reset peak memory; where the system cannot, peaks are measured from the start of the process."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # or later work could reuse freed memory unnoticed
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        pass


def peak_megabytes(device: str) -> float:
    """Peak memory so far, of the process ("cpu") or of torch on the GPU ("cuda"); NaN if unknown."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else math.nan
    try:
        return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024 / 1e6
    except (OSError, IndexError):
        return math.nan

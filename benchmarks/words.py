"""The words table: GT / Seed / Found / Snapped from 15 seeds or fewer, with time and memory of the command line.

    python benchmarks/words.py --data DIR                        both pairs, five random states
    python benchmarks/words.py --data DIR --pairs easy --random-states 0 --seeds 0

Each state writes files, runs `kedge discover` on them in a process of its own (whose wall time and peak memory are
reported, from files to run folder), then `kedge evaluate --json`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from kedge.spaces import write_embeddings, write_table
from paper.pairs_of_spaces import WORD_PAIRS, draw_task, load_pair
from setting import add_data_option, new_parser

ROWS = ("GT", "Seed", "Found", "Snapped", "Shared")
METRICS = ("jaccard", "mrr", "cosine", "p_at_1", "foscttm")


def main() -> None:
    """Run all states and print one table per pair."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", choices=WORD_PAIRS, default=list(WORD_PAIRS))
    parser.add_argument("--random-states", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--seeds", type=int, default=15)
    arguments = parser.parse_args()
    print(f"Machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores\n")
    for name in arguments.pairs:
        print_table(
            name, [run_state(arguments.data, name, arguments.seeds, state) for state in arguments.random_states]
        )


def run_state(data: Path, name: str, seed_count: int, random_state: int) -> dict[str, object]:
    """One discovery and its evaluation through the command line."""
    task = draw_task(load_pair(data, name), random_state, seed_count)
    anchors, seeds = task.anchors, task.seeds
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_embeddings(task.x, folder / "x.npz")
        write_embeddings(task.y, folder / "y.npz")
        write_table(folder / "seeds.tsv", ("x", "y"), seeds)
        (folder / "anchors.txt").write_text("".join(f"{key}\n" for key in anchors))
        files = [str(folder / "x.npz"), str(folder / "y.npz")]
        run = str(folder / "run")
        options = ["--anchor-keys", str(folder / "anchors.txt"), "--out", run]
        options += ["--seeds", str(folder / "seeds.tsv")] if seeds else []
        seconds, megabytes = measure(
            ["discover", *files, *options, "--random-state", str(random_state), "--ignore-verdict"]
        )
        evaluate = [sys.executable, "-m", "kedge", "evaluate", run, *files, "--gold", "keys", "--json"]
        result = json.loads(subprocess.run(evaluate, check=True, stdout=subprocess.PIPE).stdout)
    print(
        f"{name} {random_state}: {len(task.x)} words, Found MRR {result['Found']['mrr']:.3f}, {seconds:.0f} s, "
        f"{megabytes:.0f} MB, {result['health']['pairs']['verdict']}",
        file=sys.stderr,
    )
    return result | {"seconds": seconds, "megabytes": megabytes}


def measure(arguments: list[str]) -> tuple[float, float]:
    """Wall seconds and peak resident megabytes of one `kedge` process."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "kedge", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"kedge {' '.join(arguments)} failed with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def print_table(name: str, results: list[dict[str, object]]) -> None:
    """Mean and standard deviation over the states, as Markdown."""
    print(f"### {name}: {len(results)} random states, mean (std)\n")
    print("| anchors | Jaccard@10 | MRR@10 | cosine | P@1 | FOSCTTM |\n|---|---|---|---|---|---|")
    for row in (row for row in ROWS if results[0][row]):
        cells = [shown([result[row][metric] for result in results]) for metric in METRICS]
        print(f"| {row} | {' | '.join(cells)} |")
    print("\n| hidden anchors exact | pairs precision | pairs recall | health | pairs ok | seconds | peak MB |")
    print("|---|---|---|---|---|---|---|")
    cells = [
        shown([result[field] for result in results]) for field in ("anchors_exact", "pairs_precision", "pairs_recall")
    ]
    health = [result["health"] for result in results]
    right = sum(each["pairs"]["verdict"] == "ok" for each in health)
    print(
        f"| {' | '.join(cells)} | {shown([each['pairs']['score'] for each in health])} | {right}/{len(results)} "
        f"| {max(result['seconds'] for result in results):.0f} (max) "
        f"| {max(result['megabytes'] for result in results):.0f} (max) |\n"
    )


def shown(values: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(values):.3f} ({np.std(values):.3f})"


if __name__ == "__main__":
    main()

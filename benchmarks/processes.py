"""`kedge discover` by one process and by several: whole commands in turns, and whether the pairs are the same.

    python benchmarks/processes.py --data DIR                       easy pair, 1 process against 2
    python benchmarks/processes.py --data DIR --processes 4 --limit 5000

One process uses all cores (torch's default); of several, each uses its part of them (`OMP_NUM_THREADS`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from kedge import load, write_embeddings
from kedge.experiments.pairs_of_spaces import WORD_PAIRS, draw_task, load_pair
from kedge.spaces import write_table
from setting import add_data_option, describe_machine


def main() -> None:
    """Time both, and compare what they find."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--pair", choices=WORD_PAIRS, default="easy")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=int, help="only so many words")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    task = draw_task(load_pair(arguments.data, arguments.pair, arguments.limit), 0)
    several = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    starts = {1: [sys.executable], arguments.processes: [*several, str(arguments.processes)]}
    times: dict[int, list[float]] = {count: [] for count in starts}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_embeddings(task.x, folder / "x.npy")
        write_embeddings(task.y, folder / "y.npy")
        write_table(folder / "seeds.tsv", ("x", "y"), task.seeds)
        for _ in range(arguments.repeats):
            for count, start in starts.items():
                times[count].append(discover(start, folder, count, arguments.device))
        runs = {count: load(folder / f"run{count}") for count in starts}
    one, other = runs[1], runs[arguments.processes]
    ours, theirs = set(one.pair_keys_), set(other.pair_keys_)
    print(f"{describe_machine(arguments.device)}, {arguments.pair} pair, {len(task.x)} words\n")
    print("| processes | seconds, median (least to most) | ratio |\n|---|---|---|")
    for count, taken in times.items():
        ratio = np.median(taken) / np.median(times[1])
        print(f"| {count} | {np.median(taken):.1f} ({min(taken):.1f} to {max(taken):.1f}) | {ratio:.2f} |")
    print(
        f"\nthe same pairs: {len(ours & theirs)} of {len(ours | theirs)}; the same partner in "
        f"{np.mean(one.match_ == other.match_):.5f} of all rows; greatest difference of the maps "
        f"{np.abs(one.map_ - other.map_).max():.1e}"
    )


def discover(start: list[str], folder: Path, count: int, device: str) -> float:
    """Wall seconds of one command."""
    files = [str(folder / name) for name in ("x.npy", "y.npy")]
    options = ["--seeds", str(folder / "seeds.tsv"), "--out", str(folder / f"run{count}"), "--overwrite"]
    threads = str(max(1, (os.cpu_count() or 1) // count))
    began = time.perf_counter()
    subprocess.run(
        [*start, "-m", "kedge", "discover", *files, *options, "--device", device],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": threads},
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

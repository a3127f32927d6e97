"""A whole discovery of real words, stage by stage: the first call, which compiles on a GPU, and later ones.

    python benchmarks/discovery.py --data DIR                                    easy pair, 15 seeds
    python benchmarks/discovery.py --data DIR --device cpu --repeats 1 --save cpu.npz
    python benchmarks/discovery.py --data DIR --device cuda --compare cpu.npz    and whether the pairs are the same

Time is all of `fit`, from vectors in memory to the fitted estimator.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

from kedge import AnchorDiscovery
from paper.pairs_of_spaces import WORD_PAIRS, Task, draw_task, load_pair
from setting import StageClock, add_data_option, describe_machine, forget_peak, new_parser, peak_megabytes


def main() -> None:
    """Fit again and again, print times, compare pairs."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pair", choices=WORD_PAIRS, default="easy")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=("tf32", "bf16", "float32"), default="tf32")
    parser.add_argument("--exact", action="store_true", help="compare all rows with all in every round")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", type=Path, help="write the pairs found here")
    parser.add_argument("--compare", type=Path, help="pairs that --save wrote, to compare with")
    arguments = parser.parse_args()
    task = draw_task(load_pair(arguments.data, arguments.pair), 0)
    print(f"{describe_machine(arguments.device)}, {arguments.pair} pair, {len(task.x)} words, {arguments.precision}")
    print("\n| | seconds | stages |\n|---|---|---|")
    forget_peak()
    times = []
    for run in range(arguments.repeats):
        seconds, stages, discovery = fit(task, arguments.device, arguments.precision, exact=arguments.exact)
        times.append(seconds)
        spent_by_stage = ", ".join(f"{name} {spent:.3f}" for name, spent in stages.items())
        print(f"| {'first' if run == 0 else f'warm {run}'} | {seconds:.3f} | {spent_by_stage} |", flush=True)
    if len(times) > 1:
        print(f"| warm, median | {np.median(times[1:]):.3f} | |")
    right = np.mean([task.x.keys[left] == task.y.keys[row] for left, row in enumerate(discovery.match_.tolist())])
    print(
        f"\nrows right {right:.4f}, pairs {len(discovery.pairs_)}, {discovery.health_.pairs.verdict}; memory: "
        f"process {peak_megabytes('cpu'):.0f} MB, GPU {peak_megabytes('cuda'):.0f} MB"
    )
    if arguments.save:
        np.savez(arguments.save, match=discovery.match_, pairs=discovery.pairs_)
    if arguments.compare:
        before = np.load(arguments.compare)
        ours, theirs = (set(map(tuple, pairs.tolist())) for pairs in (discovery.pairs_, before["pairs"]))
        print(
            f"the same partner in {np.mean(discovery.match_ == before['match']):.5f} of all rows, "
            f"the same pairs: {len(ours & theirs)} of {len(ours | theirs)}"
        )


def fit(task: Task, device: str, precision: str, *, exact: bool) -> tuple[float, dict[str, float], AnchorDiscovery]:
    """Seconds in all, seconds up to the end of each stage's steps, and what was found."""
    began, clock = time.perf_counter(), StageClock()
    discovery = AnchorDiscovery(device=device, precision=precision, exact=exact, on_step=clock)
    discovery.fit(task.x, task.y, task.seeds, anchors=task.anchors)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began, clock.seconds, discovery


if __name__ == "__main__":
    main()

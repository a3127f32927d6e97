"""How few seeds are enough? Share of successes and mean Found MRR@10, for fewer and fewer seeds, down to none.

    python benchmarks/seeds.py --data DIR --device cuda
    python benchmarks/seeds.py --data DIR --pairs mobilenet --seeds 15

Success is at least 90 % of the Found MRR that the same method reaches with 300 true pairs as seeds. Minutes on a GPU,
hours on two cores (with fewer than 10 seeds a run takes minutes there).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from kedge import AnchorDiscovery
from kedge.tasks import evaluate, gold_by_key
from paper.pairs_of_spaces import PAIR_NAMES, SpacePair, draw_task, load_pair
from setting import add_data_option, describe_machine, new_parser

SUCCESS = 0.9


@dataclass(frozen=True)
class Run:
    """What is reported of one discovery."""

    mrr: float
    jaccard: float
    gt_mrr: float
    gt_jaccard: float
    called_ok: bool
    seconds: float


def main() -> None:
    """One row per pair of spaces, one column per number of seeds."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", choices=PAIR_NAMES, default=["easy", "medium", "vit", "mobilenet"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[15, 8, 5, 3, 1, 0])
    parser.add_argument("--random-states", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    print(f"{describe_machine(arguments.device)}: successes, mean Found MRR@10 (called ok; max seconds)\n")
    print(f"| pair | {' | '.join(map(str, arguments.seeds))} |\n|---|{'---|' * len(arguments.seeds)}", flush=True)
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name)
        reference = run(pair, 300, arguments.random_states[0], arguments.device)
        cells = []
        for count in arguments.seeds:
            runs = [run(pair, count, state, arguments.device) for state in arguments.random_states]
            successes = sum(result.mrr >= SUCCESS * reference.mrr for result in runs)
            called = sum(result.called_ok for result in runs)
            seconds = max(result.seconds for result in runs)
            cells.append(f"{successes}/{len(runs)} {np.mean([r.mrr for r in runs]):.3f} ({called}; {seconds:.0f} s)")
            print(f"<!-- {name} {count}: {cells[-1]} {[round(r.mrr, 3) for r in runs]} -->", flush=True)
            if count == max(arguments.seeds):
                first = runs
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        found, gt = ([np.mean([getattr(r, p + m) for r in first]) for m in ("mrr", "jaccard")] for p in ("", "gt_"))
        print(
            f"\n{name}: {len(pair.x)} rows; with {max(arguments.seeds)} seeds Found MRR {found[0]:.3f}, "
            f"Jaccard {found[1]:.3f}; GT {gt[0]:.3f}, {gt[1]:.3f}; "
            f"with 300 true pairs as seeds Found MRR {reference.mrr:.3f}\n",
            flush=True,
        )


def run(pair: SpacePair, seeds: int, random_state: int, device: str) -> Run:
    """Discover and score."""
    task = draw_task(pair, random_state, seeds)
    began = time.perf_counter()
    discovery = AnchorDiscovery(device=device, random_state=random_state)
    discovery.fit(task.x, task.y, task.seeds, anchors=task.anchors)
    seconds = time.perf_counter() - began
    result = evaluate(discovery, task.x, task.y, gold_by_key(task.x, task.y), complete=True, device=device)
    called_ok = discovery.health_.pairs.verdict == "ok"
    return Run(result.found.mrr, result.found.jaccard, result.gt.mrr, result.gt.jaccard, called_ok, seconds)


if __name__ == "__main__":
    main()

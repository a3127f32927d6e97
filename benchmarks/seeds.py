"""How few seeds are enough: share of successes and mean Found MRR@10, for fewer and fewer seeds.

    python benchmarks/seeds.py --data DIR --device cuda

Success is at least 90 % of the Found MRR that the same method reaches with 300 true pairs as seeds. Minutes on a GPU,
hours on two cores (with fewer than 10 seeds a run takes minutes there).
"""

from __future__ import annotations

import argparse

import numpy as np

from kedge import AnchorDiscovery, Embeddings
from kedge.tasks import evaluate, gold_by_key
from word_pairs import PAIRS, add_data_option, describe_machine, draw, load_pair

SUCCESS = 0.9


def main() -> None:
    """One row a pair of spaces, one column a number of seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[15, 8, 5, 3])
    parser.add_argument("--random-states", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    print(f"{describe_machine(arguments.device)}: successes, mean Found MRR@10 (times that health said aligned)\n")
    print(f"| pair | {' | '.join(map(str, arguments.seeds))} |\n|---|{'---|' * len(arguments.seeds)}", flush=True)
    for name in arguments.pairs:
        x, truth = load_pair(arguments.data, name)
        goal = SUCCESS * run(x, truth, 300, arguments.random_states[0], arguments.device)[0]
        cells = []
        for count in arguments.seeds:
            results = [run(x, truth, count, state, arguments.device) for state in arguments.random_states]
            successes = sum(mrr >= goal for mrr, _ in results)
            said = sum(aligned for _, aligned in results)
            cells.append(f"{successes}/{len(results)} {np.mean([mrr for mrr, _ in results]):.3f} ({said})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def run(x: Embeddings, truth: Embeddings, seeds: int, random_state: int, device: str) -> tuple[float, bool]:
    """Found MRR and whether the health is good."""
    y, anchors, pairs = draw(x, truth, random_state, seeds)
    discovery = AnchorDiscovery(device=device, random_state=random_state).fit(x, y, pairs, anchors=anchors)
    result = evaluate(discovery, x, y, gold_by_key(x, y), complete=True, device=device)
    return result.found.mrr, discovery.health_.verdict == "aligned"


if __name__ == "__main__":
    main()

"""Can the pairs' verdict and confidence be trusted? A grid of runs that succeed and fail, judged against the truth.

    python benchmarks/health.py --data DIR --jobs 6 --device cuda     all runs; minutes on a GPU
    python benchmarks/health.py --data DIR --pairs easy --states 1    a few; many minutes on two cores

4,000 rows of each space; the grid is pairs of spaces x seeds x noise on Y x overlap x random states. It also has spaces
that have nothing to do with each other (word vectors and images), and seeds that are all wrong. A run is a *success* if
its Shared MRR@10 is at least 90 % of what the same method reaches with 300 true pairs as seeds, and at least 30 % of
the rows that have a counterpart find it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import AnchorDiscovery
from kedge.tasks import calibration_error, reliability, shared_scores
from paper.pairs_of_spaces import load_pair
from setting import add_data_option, add_run_options, auroc, new_parser, print_verdicts, run_cases, split_rows

ROWS = 4000
REFERENCE_SEEDS = 300
ANCHORS = 600
SUCCESS, FOUND = 0.9, 0.3
UNRELATED = "unrelated"


@dataclass(frozen=True)
class Case:
    """One run of the grid."""

    pair: str
    seeds: int
    noise: float
    overlap: float
    state: int
    wrong_seeds: bool = False

    @property
    def reference(self) -> Case:
        """The same spaces with plenty of true seeds."""
        return Case(self.pair, REFERENCE_SEEDS, self.noise, self.overlap, self.state)


def main() -> None:
    """Run the grid and print what health and confidence were worth."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=["easy", "medium", "glove", "vit"])
    add_run_options(parser, states=4)
    arguments = parser.parse_args()
    report(run_cases(run, grid(arguments.pairs, arguments.states), arguments))


def grid(pairs: list[str], states: int) -> list[Case]:
    """All cases, the references among them."""
    seeds, noise, overlap = (REFERENCE_SEEDS, 15, 4, 0), (0.0, 1.0), (1.0, 0.5)
    cases = [Case(*cell) for cell in itertools.product(pairs, seeds, noise, overlap, range(states))]
    cases += [Case(pair, 15, 0.0, 1.0, state, wrong_seeds=True) for pair in pairs for state in range(states)]
    cases += [Case(UNRELATED, count, 0.0, 1.0, state) for count in (15, 4, 0) for state in range(states)]
    return cases


@cache
def spaces(data: Path, pair: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Unit vectors of a pair, row by row the same thing; unrelated spaces share nothing but the row number."""
    if pair == UNRELATED:
        x, y = load_pair(data, "easy").x, load_pair(data, "vit").y
    else:
        loaded = load_pair(data, pair)
        x, y = loaded.x, loaded.y
    rows = min(len(x), len(y))
    left, right = (space.vectors[:rows].astype(np.float32) for space in (x, y))
    return left / np.linalg.norm(left, axis=1, keepdims=True), right / np.linalg.norm(right, axis=1, keepdims=True)


def run(data: Path, case: Case, device: str) -> dict[str, object]:
    """One discovery: what health said, and what was true."""
    x, y = spaces(data, case.pair)
    chance = np.random.default_rng(case.state)
    order = chance.permutation(len(x))
    shared = int(ROWS * case.overlap)
    rows_x, rows_y, truth = split_rows(order, ROWS, shared, chance)
    x, y = x[rows_x], y[rows_y]
    y = y + (case.noise * y.std(axis=0) * chance.standard_normal(y.shape)).astype(np.float32)
    seeded = chance.permutation(shared)[: case.seeds]
    seeds = np.stack([seeded, truth[seeded]], axis=1)
    if case.wrong_seeds:
        seeds[:, 1] = np.roll(seeds[:, 1], 1)
    if case.pair == UNRELATED:
        truth = np.full_like(truth, -1)

    discovery = AnchorDiscovery(n_anchors=ANCHORS, random_state=case.state, min_confidence=0.0, device=device)
    discovery.fit(x, y, seeds)
    known = np.flatnonzero(truth >= 0)
    right = truth[discovery.pairs_[:, 0]] == discovery.pairs_[:, 1]
    hidden = ~discovery.anchor_is_seed_
    anchors_right = (truth[discovery.anchors_x_] == discovery.anchors_y_)[hidden]
    mrr = 0.0
    if len(known):
        read = discovery.x_.shared(x[known]), discovery.y_.shared(y[truth[known]])
        mrr = shared_scores(*map(torch.from_numpy, read)).mrr
    return {
        "score": discovery.health_.pairs.score,
        "verdict": discovery.health_.pairs.verdict,
        "mrr": mrr,
        "found": float(np.mean(discovery.match_[known] == truth[known])) if len(known) else 0.0,
        "pairs": reliability(discovery.pair_confidence_, right).tolist(),
        "anchors": reliability(discovery.anchor_confidence_[hidden], anchors_right).tolist(),
    }


def report(results: dict[Case, dict]) -> None:
    """The figures."""
    success = {
        case: case.pair != UNRELATED
        and result["mrr"] >= SUCCESS * results[case.reference]["mrr"]
        and result["found"] >= FOUND
        for case, result in results.items()
    }
    for judged, label in (
        (list(results), "all runs"),
        ([c for c in results if c != c.reference], "without references"),
    ):
        good = [results[case]["score"] for case in judged if success[case]]
        bad = [results[case]["score"] for case in judged if not success[case]]
        print(f"{label}: {len(good)} successes, {len(bad)} failures; AUROC of the health score {auroc(good, bad):.3f}")
    print()
    print_verdicts({case: result["verdict"] for case, result in results.items()}, success)
    false = [case for case in results if results[case]["verdict"] == "ok" and not success[case]]
    print("\nCalled ok, but no success:")
    for case in false:
        result = results[case]
        print(f"  {case}: score {result['score']:.2f}, MRR {result['mrr']:.3f}, found {result['found']:.2f}")
    print("\nCalibration error of confidence, mean over the runs called ok:\n")
    print("| spaces | overlap | runs | listed pairs | all mutual pairs | hidden anchors |\n|---|---|---|---|---|---|")
    called = [case for case in results if results[case]["verdict"] == "ok"]
    for pair, overlap in sorted({(case.pair, case.overlap) for case in called}):
        runs = [results[case] for case in called if (case.pair, case.overlap) == (pair, overlap)]
        print(f"| {pair} | {overlap} | {len(runs)} | {' | '.join(mean_errors(runs))} |")
    print(f"| all | | {len(called)} | {' | '.join(mean_errors([results[case] for case in called]))} |")


def mean_errors(runs: list[dict]) -> list[str]:
    """Mean calibration errors of the pairs that kedge lists by default, of all mutual pairs, and of the anchors."""
    listed = [[column[5:] for column in run["pairs"]] for run in runs]
    tables = (listed, [run["pairs"] for run in runs], [run["anchors"] for run in runs])
    return [f"{np.mean([calibration_error(np.asarray(t)) for t in each if np.sum(t[0])]):.3f}" for each in tables]


if __name__ == "__main__":
    main()

"""Does the share of rows that come back over three spaces tell right alignments from wrong ones?

    python benchmarks/loops.py --data DIR --out loops.jsonl               an hour on two cores
    python benchmarks/loops.py --data DIR --rows 400 --out loops.jsonl    some minutes

Triangles of words and of texts that share all, half, a fifth or a tenth of their items. Each pair of spaces is run on
its own, from 15 right seeds and from 15 wrong ones, and the runs are put together in all combinations. A triangle is
right if each of its pairs has at least 0.3 of the shared rows right, whatever its seeds were. Prints the AUROC of the
share of rows that come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from kedge.estimators.devices import load_space
from kedge.many.numerics.loops import close_loop
from kedge.many.pairwise import PairOutcome, align_alone
from kedge.solving.steps import Log
from setting import (
    add_data_option,
    add_run_options,
    auroc,
    describe_machine,
    markdown_header,
    markdown_row,
    new_parser,
    run_cases,
)
from unite import TEXTS, WORDS, Spaces, right, sharing

TRIANGLES = {"words": WORDS, "texts": {name: TEXTS[name] for name in ("bge-en", "me5-en", "me5-fr")}}
SHARES = (1.0, 0.5, 0.2, 0.1)
SEEDS = 15
RIGHT = 0.3


@dataclass(frozen=True)
class Case:
    """Three spaces of a kind, of so many rows, a share of which is in all of them."""

    kind: str
    rows: int
    share: float
    state: int


def main() -> None:
    """Run all triangles, and print a line for each and how well closure tells them apart."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    add_run_options(parser, states=1)
    parser.add_argument("--rows", type=int, default=1500, help="rows per space (1500)")
    arguments = parser.parse_args()
    print(describe_machine(arguments.device))
    states = range(arguments.states)
    cases = [Case(kind, arguments.rows, share, state) for state in states for kind in TRIANGLES for share in SHARES]
    results = run_cases(run_case, cases, arguments)
    show({case: results[case] for case in cases})


def run_case(data: Path, case: Case, device: str) -> dict[str, Any]:
    """Pairs that were run by themselves, from right seeds and from wrong ones, as triangles in all combinations."""
    spaces, shared = sharing(data, TRIANGLES[case.kind], case.rows, case.share, case.state)
    a, b, c = spaces
    links = {
        (first, second, wrong): one_side(spaces, first, second, shared, wrong, device, case.state)
        for first, second in combinations(spaces, 2)
        for wrong in (False, True)
    }
    triangles = []
    for wrong in product((False, True), repeat=3):
        sides = [links[a, b, wrong[0]], links[b, c, wrong[1]], links[a, c, wrong[2]]]
        loop = close_loop((0, 1, 2), sides[0].outcome.link, sides[1].outcome.link, sides[2].outcome.link_back)
        triangles.append(
            {"wrong": sum(wrong), "worst": min(side.right for side in sides), "closure": loop.closure}
            | {"chains": loop.chains, "kept": loop.kept, "closed": loop.closed}
        )
    return {"triangles": triangles}


def show(results: Mapping[Case, dict[str, Any]]) -> None:
    """How well closure tells triangles whose sides are all right from others."""
    print(markdown_header(("triangle", "shared", "state", "wrong seeds", "worst pair right", "back", "chains", "kept")))
    values = []
    for case, found in results.items():
        for one in found["triangles"]:
            values.append((one["worst"] >= RIGHT, one))
            cells = (case.kind, f"{case.share:g}", str(case.state), str(one["wrong"]), f"{one['worst']:.3f}")
            print(markdown_row((*cells, f"{one['closure']:.3f}", str(one["chains"]), f"{one['kept']:.3f}")))
    for score in ("closure", "kept"):
        good, bad = ([one[score] for is_right, one in values if is_right is label] for label in (True, False))
        found_auroc = f"{auroc(good, bad):.3f}" if good and bad else "unknown"
        print(f"{len(good)} triangles right, {len(bad)} wrong: AUROC of {score} {found_auroc}")


class Side(NamedTuple):
    """A pair of spaces that was run by itself: what came of it, and the share of rows it has right."""

    outcome: PairOutcome
    right: float


def one_side(spaces: Spaces, first: str, second: str, shared: list[str], wrong: bool, device: str, state: int) -> Side:
    """A pair as `CommonSpace` runs it first, from 15 seeds, or from as many that lead elsewhere."""
    x, y = (
        load_space(spaces[name].vectors, torch.device(device), name, center=True, dtype=torch.float32)
        for name in (first, second)
    )
    shift = SEEDS if wrong else 0
    seeds = np.stack([spaces[first].rows(shared[:SEEDS]), spaces[second].rows(shared[shift : shift + SEEDS])], axis=1)
    found = align_alone(x, y, torch.from_numpy(seeds), state, Log(None), disjoint=False)
    return Side(found, right(spaces, first, second, found.partner.cpu().numpy()))


if __name__ == "__main__":
    main()

"""How much of a found alignment does each reading recover? Rows of X whose partner is right.

    python benchmarks/reading.py --data DIR --device cuda
    python benchmarks/reading.py --data DIR --pairs vit texts --seeds 0
    python benchmarks/reading.py --data DIR --rows 4000 --json FILE              the first so many items of each pair

`kedge` is the whole of `AnchorDiscovery`: rows right, precision and recall of the pairs it lists, MRR@10 of Found
(relative coordinates, whitened if the run is) and Shared. The other columns start from the pairs it lists and alternate
four times between a reading and its mutual pairs under CSLS: the refined rotation and cosine that kedge used before;
VecMap's whitening, re-weighting and de-whitening (Artetxe, Labaka and Agirre 2018); and the pair model. The last column
is what the pair model reaches on rows whose pairs it has not seen, given all true pairs of the others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kedge import AnchorDiscovery
from kedge.estimators.devices import resolve_device
from kedge.geometry import nearest_rotation, unit
from kedge.matching import DEFAULT_BUDGET, Match, Problem, match_csls
from kedge.models.maps.refined import refined_map
from kedge.models.pair_fitting import fit_model, pair_moments
from kedge.tasks import evaluate, gold_by_key
from paper.pairs_of_spaces import PAIR_NAMES, SpacePair, draw_task, load_pair
from rival_methods import symmetric_mapping
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser
from stored import Record, add_json_option

ROUNDS = 4
FOLDS = 5
CEILING = "5 folds of all true pairs"
Coordinates = Callable[[Problem, Tensor, Tensor], tuple[Tensor, Tensor]]


def main() -> None:
    """One row per pair of spaces and number of seeds."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    default = ["easy", "medium", "glove", "vit", "mobilenet", "texts", "texts-fr"]
    parser.add_argument("--pairs", nargs="+", choices=PAIR_NAMES, default=default)
    parser.add_argument("--seeds", nargs="+", type=int, default=[15, 0])
    parser.add_argument("--random-states", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--whole-only", action="store_true", help="only the discoveries, not the other readings")
    parser.add_argument("--rows", type=int, help="of each space (all)")
    add_json_option(parser)
    arguments = parser.parse_args()
    record = Record(arguments.json, {"rows": arguments.rows, "whole_only": arguments.whole_only}, arguments.device)
    columns = ("pair", "seeds", "state", "verdict", "whitened", "kedge", "precision", "recall")
    columns += ("Found MRR", "Shared MRR", "seconds")
    columns += () if arguments.whole_only else (*READINGS, CEILING)
    print(f"{describe_machine(arguments.device)}\n\n{markdown_header(columns)}", flush=True)
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name, arguments.rows)
        record.note_data(pair)
        for seeds in arguments.seeds:
            for state in arguments.random_states:
                case = {"pair": name, "seeds": seeds, "state": state}
                row = record.row(case, lambda case=case, pair=pair: run(arguments, pair, case["seeds"], case["state"]))
                print(markdown_row([_cell(row.get(column, row["case"].get(column))) for column in columns]), flush=True)


def _cell(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def run(arguments: argparse.Namespace, pair: SpacePair, seeds: int, state: int) -> dict[str, Any]:
    """One discovery, and the other readings of what it found."""
    task = draw_task(pair, state, seeds)
    gold = gold_by_key(task.x, task.y)
    began = time.perf_counter()
    found = AnchorDiscovery(device=arguments.device, random_state=state).fit(task.x, task.y, task.seeds, task.anchors)
    seconds = time.perf_counter() - began
    result = evaluate(found, task.x, task.y, gold, complete=True, device=arguments.device)
    truth = gold[np.argsort(gold[:, 0]), 1]
    right = float((found.match_ == truth).mean())
    row: dict[str, Any] = {
        "rows": len(task.x),
        "verdict": found.health_.pairs.verdict,
        "whitened": found.whitening_,
        "kedge": right,
        "precision": result.pairs_precision,
        "recall": result.pairs_recall,
        "Found MRR": result.found.mrr,
        "Shared MRR": result.shared.mrr,
        "seconds": seconds,
    }
    if arguments.whole_only:
        return row
    device = resolve_device(arguments.device)
    normalised = found.x_.normalise(task.x), found.y_.normalise(task.y)
    x, y = ((torch.from_numpy(rows).to(device)) for rows in normalised)
    none = torch.empty(0, dtype=torch.int64, device=device)
    problem = Problem(x, y, none, none, DEFAULT_BUDGET)
    start = tuple(torch.from_numpy(side.copy()).to(device) for side in found.pairs_.T)
    partners = torch.from_numpy(truth).to(device)
    for name, reading in READINGS.items():
        pairs = start
        for _ in range(ROUNDS):
            match = match_csls(*reading(problem, *pairs))
            pairs = match.pairs()
        row[name] = share_right(match, partners)
    return row | {CEILING: ceiling(problem, partners)}


def share_right(match: Match, partners: Tensor) -> float:
    """Share of the rows whose partner (n,) the match finds."""
    return float((match.partner == partners).float().mean())


def by_map(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of X sent to Y by the refined rotation, to compare by cosine."""
    moments = pair_moments(problem, rows_x, rows_y)
    linear = refined_map(moments, nearest_rotation(moments.cross))
    return unit(linear(problem.x)), problem.y


def by_vecmap(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> tuple[Tensor, Tensor]:
    """VecMap's symmetric mapping."""
    apply_x, apply_y = symmetric_mapping(problem.x[rows_x], problem.y[rows_y])
    return apply_x(problem.x), apply_y(problem.y)


def by_pair_model(problem: Problem, rows_x: Tensor, rows_y: Tensor) -> tuple[Tensor, Tensor]:
    """Shared coordinates."""
    model = fit_model(problem, rows_x, rows_y)
    return model.shared_x(problem.x), model.shared_y(problem.y)


READINGS: dict[str, Coordinates] = {"map and cosine": by_map, "VecMap": by_vecmap, "pair model": by_pair_model}


def ceiling(problem: Problem, partners: Tensor) -> float:
    """Share of rows right under pair models fitted to all true pairs of the other folds."""
    fold = torch.arange(len(partners), device=partners.device) % FOLDS
    rows = torch.arange(len(partners), device=partners.device)
    right = 0
    for index in range(FOLDS):
        others = fold != index
        match = match_csls(*by_pair_model(problem, rows[others], partners[others]))
        right += int((match.partner[~others] == partners[~others]).sum())
    return right / len(partners)


if __name__ == "__main__":
    main()

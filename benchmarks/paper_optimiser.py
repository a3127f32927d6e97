"""The paper's optimiser beside the default method: quality, and the ratio of their times in one run.

    python benchmarks/paper_optimiser.py --data DIR                           everything (a GPU, or patience)
    python benchmarks/paper_optimiser.py --data DIR --timed-steps 5           only the ratio of times
    python benchmarks/paper_optimiser.py --data DIR --words 2000 --random-states 0    minutes on two cores

15 seeds, 300 anchors, five random states. With `--timed-steps K` the paper's optimiser takes K of its 250 steps, and
the time of the others is extrapolated, since each costs the same. No quality is reported then.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from typing import Any

from kedge import AnchorDiscovery, PaperSettings, Step
from kedge.tasks import evaluate, gold_by_key
from paper.pairs_of_spaces import WORD_PAIRS, Task, draw_task, load_pair
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser
from stored import Record, add_json_option

METHODS = {
    "default": {},
    "paper, init seeds": {"method": "paper", "init": "seeds"},
    "paper, init random (as printed)": {"method": "paper", "init": "random"},
}


SCORES = ("jaccard", "mrr", "cosine")
COLUMNS = ("pair", "state", "method", *SCORES, "anchors_exact", "seconds")


class StepClock:
    """Notes when the steps of the paper's optimiser end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def __call__(self, step: Step) -> None:
        """Called by the estimator after each step."""
        if step.stage == "paper":
            self.ends.append(time.perf_counter())

    def seconds_per_step(self) -> float:
        """Mean time of a step; 0 where there was none."""
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1) if len(self.ends) > 1 else 0.0


def main() -> None:
    """Run all methods for all states: one row each."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", choices=WORD_PAIRS, default=["easy"])
    parser.add_argument("--words", type=int, help="use only the first so many words")
    parser.add_argument("--random-states", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-center", action="store_true", help="only unit norm, as the paper says")
    parser.add_argument("--timed-steps", type=int, help="scale the paper's time up from so many steps")
    add_json_option(parser)
    arguments = parser.parse_args()
    settings = {
        "words": arguments.words,
        "centered": not arguments.no_center,
        "timed_steps": arguments.timed_steps,
    }
    record = Record(arguments.json, settings, arguments.device)
    print(f"{describe_machine(arguments.device)}\n\n{markdown_header(COLUMNS)}", flush=True)
    for name in arguments.pairs:
        pair = load_pair(arguments.data, name, arguments.words)
        record.note_data(pair)
        for state in arguments.random_states:
            task = draw_task(pair, state)
            for method in METHODS:
                case = {"pair": name, "state": state, "method": method}
                row = record.row(case, partial(measure, task, method, state, arguments))
                print(markdown_row([_cell(row.get(column, case.get(column))) for column in COLUMNS]), flush=True)


def measure(task: Task, method: str, state: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One run; beside its scores those of the true anchors, GT."""
    paper = PaperSettings()
    steps = paper.steps
    if arguments.timed_steps:
        paper = replace(paper, steps=max(arguments.timed_steps, 2))
    clock = StepClock()
    run = AnchorDiscovery(
        device=arguments.device,
        center=not arguments.no_center,
        random_state=state,
        paper=paper,
        on_step=clock,
        **METHODS[method],
    )
    began = time.perf_counter()
    run.fit(task.x, task.y, task.seeds, anchors=task.anchors)
    row: dict[str, Any] = {"seconds": time.perf_counter() - began + (steps - paper.steps) * clock.seconds_per_step()}
    if not arguments.timed_steps:
        gold = gold_by_key(task.x, task.y)
        result = evaluate(run, task.x, task.y, gold, complete=True, device=arguments.device)
        row |= {name: getattr(result.found, name) for name in SCORES}
        row |= {"anchors_exact": result.anchors_exact, "GT": {name: getattr(result.gt, name) for name in SCORES}}
    return row


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()

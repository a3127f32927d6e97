"""The paper's optimiser beside the default method: quality, and the ratio of their times in one run.

    python benchmarks/paper_optimiser.py --data DIR                           everything (a GPU, or patience)
    python benchmarks/paper_optimiser.py --data DIR --timed-steps 5           only the ratio of times

On the easy pair, 15 seeds, 300 anchors, five random states. With `--timed-steps K` the paper's optimiser takes K of
its 250 steps; as each costs the same, the time of the others is added. No quality is reported then.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from kedge import AnchorDiscovery, PaperSettings, Step
from kedge.tasks import evaluate, gold_by_key
from paper.pairs_of_spaces import draw_task, load_pair
from setting import add_data_option, describe_machine, median_and_range, new_parser

METHODS = {
    "default": {},
    "paper, init seeds": {"method": "paper", "init": "seeds"},
    "paper, init random (as printed)": {"method": "paper", "init": "random"},
}


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
    """Run all methods for all states and print two tables."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pair", choices=("easy", "medium"), default="easy")
    parser.add_argument("--words", type=int, help="use only the first so many words")
    parser.add_argument("--random-states", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--no-center", action="store_true", help="only unit norm, as the paper says")
    parser.add_argument("--timed-steps", type=int, help="scale the paper's time up from so many steps")
    arguments = parser.parse_args()
    machine = describe_machine(arguments.device)
    pair = load_pair(arguments.data, arguments.pair, arguments.words)
    kind = "only unit norm" if arguments.no_center else "centered"
    print(
        f"{arguments.pair} pair, {len(pair.x)} words, {kind}, {len(arguments.random_states)} random states, {machine}\n"
    )

    settings = PaperSettings()
    steps = settings.steps
    if arguments.timed_steps:
        settings = replace(settings, steps=max(arguments.timed_steps, 2))
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    scores: dict[str, list[tuple[float, ...]]] = {name: [] for name in METHODS}
    for state in arguments.random_states:
        task = draw_task(pair, state)
        for name, options in METHODS.items():
            clock = StepClock()
            run = AnchorDiscovery(
                device=arguments.device,
                center=not arguments.no_center,
                random_state=state,
                paper=settings,
                on_step=clock,
                **options,
            )
            began = time.perf_counter()
            run.fit(task.x, task.y, task.seeds, anchors=task.anchors)
            seconds[name].append(time.perf_counter() - began + (steps - settings.steps) * clock.seconds_per_step())
            if not arguments.timed_steps:
                gold = gold_by_key(task.x, task.y)
                result = evaluate(run, task.x, task.y, gold, complete=True, device=arguments.device)
                found = result.found
                scores[name].append(
                    (found.jaccard, found.mrr, found.cosine, result.anchors_exact, run.health_.pairs.score)
                )
                if name == "default":
                    scores.setdefault("GT", []).append(
                        (result.gt.jaccard, result.gt.mrr, result.gt.cosine, 1.0, np.nan)
                    )

    base = np.median(seconds["default"])
    if not arguments.timed_steps:
        print("| anchors | Jaccard@10 | MRR@10 | cosine | hidden anchors exact | health |\n|---|---|---|---|---|---|")
        for name in ("GT", *METHODS):
            means = np.mean(scores[name], axis=0)
            print(f"| {name} | " + " | ".join("-" if np.isnan(mean) else f"{mean:.3f}" for mean in means) + " |")
        print()
    print("| method | seconds, median (min to max) | ratio |\n|---|---|---|")
    for name, values in seconds.items():
        print(f"| {name} | {median_and_range(values)} | {np.median(values) / base:.0f} |")


if __name__ == "__main__":
    main()

"""`kedge discover` by one process and by several: whole commands in turns, and whether the pairs are the same.

    python benchmarks/processes.py --data DIR                       easy pair, 1 process against 2
    python benchmarks/processes.py --data DIR --processes 4 --limit 5000
    python benchmarks/processes.py --traffic                        what 2 processes tell each other, on demo words
    python benchmarks/processes.py --traffic --device cuda          the same on CUDA tensors; by gloo on a single card

One process uses all cores (torch's default); of several, each uses its part of them (`OMP_NUM_THREADS`). `--traffic`
starts them and counts every collective call and its bytes, beside what the model in `benchmarks/traffic.py` predicts:
in the building blocks, in a whole `fit`, and in one that is finished on a part of the rows as if they were too many.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from kedge import AnchorDiscovery, Embeddings, Step, load, write_embeddings
from kedge.data import load_demo_words
from kedge.estimators.devices import resolve_device
from kedge.experiments.pairs_of_spaces import WORD_PAIRS, draw_task, load_pair
from kedge.geometry import unit
from kedge.matching import Rows, match_csls, processes, second_margins, several_processes, transport_step
from kedge.matching.problem import Problem
from kedge.matching.processes import Traffic
from kedge.models.cross_fitting import cross_fitted
from kedge.solving import attempts as alternation
from kedge.solving.alignment import fit_model, pair_moments
from kedge.spaces import write_table
from kedge.spaces.atomic import atomic_path
from setting import describe_machine
from traffic import STAGES, Course, Held, Model, fit_traffic, together

SEVERAL = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
SEEDS = 15


def main() -> None:
    """Time both, and compare what they find; or count what processes tell each other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("KEDGE_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), help="folder with words/ ($KEDGE_DATA)")
    parser.add_argument("--pair", choices=WORD_PAIRS, default="easy")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=int, help="only so many words")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--traffic", action="store_true", help="count what is told instead; needs no data")
    parser.add_argument("--json", type=Path, help="with --traffic, also write the figures to this file")
    arguments = parser.parse_args()
    if not arguments.traffic:
        if arguments.data is None:
            parser.error("--data is needed, or KEDGE_DATA")
        compare_times(arguments)
    elif "WORLD_SIZE" in os.environ:  # one of those that the line below has started
        count_traffic(arguments)
    else:
        subprocess.run(
            [*SEVERAL, str(arguments.processes), *sys.argv], check=True, env=_environment(arguments.processes)
        )


def compare_times(arguments: argparse.Namespace) -> None:
    """Whole commands by one process and by several, in turns."""
    task = draw_task(load_pair(arguments.data, arguments.pair, arguments.limit), 0)
    starts = {1: [sys.executable], arguments.processes: [*SEVERAL, str(arguments.processes)]}
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
    began = time.perf_counter()
    subprocess.run(
        [*start, "-m", "kedge", "discover", *files, *options, "--device", device, "--exact"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(count),
    )
    return time.perf_counter() - began


def _environment(count: int) -> dict[str, str]:
    """Of each of so many processes: its part of the cores."""
    return os.environ | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))}


# -- what they tell each other --------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """What was counted, and what the model says."""

    counted: Traffic
    predicted: Traffic

    @property
    def row(self) -> str:
        """Calls and bytes of both, for a table."""
        calls = [traffic.calls.total() for traffic in (self.counted, self.predicted)]
        size = [traffic.payload.total() for traffic in (self.counted, self.predicted)]
        return f"{calls[0]:,} | {calls[1]:,} | {size[0]:,} | {size[1]:,} | {size[1] / size[0]:.3f}"

    @property
    def described(self) -> dict[str, dict[str, dict[str, int]]]:
        """Both, by the names of the calls."""
        sides = {"counted": self.counted, "predicted": self.predicted}
        return {side: {"calls": dict(told.calls), "payload": dict(told.payload)} for side, told in sides.items()}


def count_traffic(arguments: argparse.Namespace) -> None:
    """Count, in one of the processes; the first prints."""
    device = resolve_device(arguments.device)
    with several_processes(device) as here:
        blocks = count_blocks(device)
        rows = arguments.limit or 2000
        fitted = count_fit(rows, arguments.device) | count_fit_on_a_part(rows, arguments.device)
        backend = torch.distributed.get_backend()
    if not here.leads:
        return
    print(f"{describe_machine(arguments.device)}, {here.count} processes by {backend}\n")
    print("| | calls | predicted | bytes | predicted | ratio |\n|---|---|---|---|---|---|")
    for name, compared in (blocks | fitted).items():
        print(f"| {name} | {compared.row} |")
    if arguments.json:
        told = {name: compared.described for name, compared in (blocks | fitted).items()}
        with atomic_path(arguments.json) as path:
            path.write_text(json.dumps(told, indent=1) + "\n")


def count_blocks(device: torch.device) -> dict[str, Compared]:
    """Every building block, on random rows that are divided unevenly."""
    here, generator = processes(), torch.Generator().manual_seed(0)
    model, folds = Model(here.count), 4
    full_x, full_y = (unit(torch.randn(n, d, generator=generator)).to(device) for n, d in ((1001, 24), (799, 16)))
    x, y = (Rows.divided(rows[here.share(len(rows))].clone(), len(rows)) for rows in (full_x, full_y))
    narrow = x.sent(lambda rows: unit(rows[:, : y.dim]))
    none = torch.empty(0, dtype=torch.int64, device=device)
    problem = Problem(x, y, none, none, 2**24)
    some = torch.arange(0, 500, device=device)
    pairs = (some, some.flip(0))
    penalties = torch.zeros(len(x), device=device), torch.zeros(len(y), device=device)
    held_x, held_y = Held(len(x), x.dim), Held(len(y), y.dim)
    same_width = held_x.read(y.dim), held_y
    found = fit_model(problem, *pairs)  # also computes the spectra, which stay
    directions = len(found.correlations)
    potential = torch.zeros(len(y), device=device)
    sample = Rows.shared(full_x[:300, : y.dim].clone())
    spectra = Problem(x, y, none, none, 2**24)
    tried: dict[str, tuple[Callable[[], object], Traffic]] = {
        "match_csls": (lambda: match_csls(narrow, y), model.match_csls(*same_width)),
        "match_csls, X a sample": (
            lambda: match_csls(sample, y),
            model.match_csls(Held(300, y.dim, divided=False), held_y),
        ),
        "second_margins": (
            lambda: second_margins(narrow, y, some, *penalties),
            model.second_margins(*same_width, len(some)),
        ),
        "transport_step": (lambda: transport_step(narrow, full_y, potential, 0.05), model.transport_step(len(y))),
        "pair_moments": (lambda: pair_moments(problem, *pairs), model.pair_moments(held_x, held_y)),
        "spectra": (lambda: (spectra.spectrum_x, spectra.spectrum_y), model.spectra(held_x, held_y)),
        "fit_model": (lambda: fit_model(problem, *pairs), model.fit_model(held_x, held_y, directions)),
        "cross_fitted": (
            lambda: cross_fitted(problem, *pairs, generator, folds),
            model.cross_fitted(held_x, held_y, directions, folds),
        ),
    }
    return {name: Compared(_counted(block), predicted) for name, (block, predicted) in tried.items()}


def _counted(block: Callable[[], object]) -> Traffic:
    """What a block tells."""
    here = processes()
    here.traffic.clear()
    block()
    counted = together(here.traffic)
    here.traffic.clear()
    return counted


@dataclass
class StageTraffic:
    """An `on_step` that keeps what was told until the end of each step, by stage; only the first process is asked."""

    stages: dict[str, Traffic] = field(default_factory=dict)

    def __call__(self, step: Step) -> None:
        """Keep what was told since the last step."""
        self.keep(step.stage)

    def keep(self, stage: str) -> None:
        """The same at the end of something that is no step."""
        told = processes().traffic
        self.stages[stage] = together(self.stages.get(stage, Traffic()), told)
        told.clear()


def count_fit(rows: int, device: str) -> dict[str, Compared]:
    """A whole `fit` of demo words, by stage, and the sum."""
    spaces = _spaces(rows)
    run, counted = _fit(*spaces, device)
    return _compared("fit", *spaces, counted, course_of(run))


def count_fit_on_a_part(rows: int, device: str) -> dict[str, Compared]:
    """The same, if half of them were as many as are finished on, and a third taken of more."""
    spaces = _spaces(rows)
    few = {"FINISH_ROWS": rows // 2, "FINISH_ROWS_OF_X": rows // 3}
    with (
        patch.multiple(alternation, **few),
        patch.object(Problem, "part", autospec=True, side_effect=Problem.part) as chosen,
    ):
        run, counted = _fit(*spaces, device)
    _, rows_x, rows_y = chosen.call_args.args
    part = {"finish_rows": few["FINISH_ROWS"], "part_x": len(rows_x), "part_y": len(rows_y)}
    return _compared("fit on a part", *spaces, counted, replace(course_of(run), **part))


def _spaces(rows: int) -> tuple[Embeddings, Embeddings]:
    """So many demo words, and all but three of them shuffled, so that shares differ."""
    x, y = (space.take(range(rows)) for space in load_demo_words())
    return x, y.take(np.random.default_rng(0).permutation(rows)[: rows - 3])


def _fit(x: Embeddings, y: Embeddings, device: str) -> tuple[AnchorDiscovery, dict[str, Traffic]]:
    """Two spaces with some seeds, and what was told, by stage."""
    common = sorted(set(x.keys) & set(y.keys))
    seeds = [(key, key) for key in common[:: len(common) // SEEDS][:SEEDS]]
    counted = StageTraffic()
    processes().traffic.clear()
    run = AnchorDiscovery(n_anchors=50, device=device, on_step=counted).fit(x, y, seeds)
    counted.keep(STAGES[-1])
    return run, counted.stages


def _compared(
    name: str, x: Embeddings, y: Embeddings, counted: dict[str, Traffic], course: Course
) -> dict[str, Compared]:
    """What a fit told beside what it would by its course."""
    passes = fit_traffic(processes().count, Held(len(x), x.dim), Held(len(y), y.dim), course)
    compared = {
        f"{name}, {stage}": Compared(
            counted.get(stage, Traffic()),
            together(*(told for (of_stage, _), told in passes.items() if of_stage == stage)),
        )
        for stage in STAGES
    }
    return compared | {f"{name}, all": Compared(together(*counted.values()), together(*passes.values()))}


def course_of(run: AnchorDiscovery) -> Course:
    """How a fit went."""
    pairs, usual = len(run.pairs_), Course(directions=0)
    rounds = [step.index for step in run.history_ if step.stage == "finish"]
    first = next((place for place in range(1, len(rounds)) if rounds[place] == 1), len(rounds))
    tested = min(pairs, usual.tested)
    return Course(
        directions=len(run.model_.correlations),
        seeds=len(run.seeds_),
        anchors=len(run.anchors_x_),
        anneal_rounds=sum(step.stage == "anneal" for step in run.history_),
        finish_rounds=first,
        all_rounds=len(rounds) - first,
        tested=tested,
        folds_tested=math.ceil(tested * usual.map_folds / max(pairs, 1)),
    )


if __name__ == "__main__":
    main()

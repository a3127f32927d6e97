"""The command `kedge reproduce`: load the data, run the experiment, write and print its tables."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kedge.cli.output import note, print_json, print_line, print_table
from kedge.cli.progress import about, counting_bar, progress_bar
from kedge.errors import InputError
from kedge.estimators.devices import resolve_device
from kedge.report import require_matplotlib
from kedge.solving.steps import OnStep, Step
from paper.encoding import EncodingPlace
from paper.pairs_of_spaces import SpacePair, load_pair, load_published_words
from paper.plan import Plan
from paper.reviews import reproduce_reviews
from paper.stitching import StitchingTask
from paper.stitching_data import Encoders, load_task
from paper.tables import Result
from paper.words_and_images import reproduce_retrieval


def run_words(arguments: argparse.Namespace) -> int:
    """Run the words experiment, then write and print its results."""
    _prepare(arguments)
    if (arguments.x is None) != (arguments.y is None):
        raise InputError("--x and --y go together; give both files, or --data")
    if arguments.x:
        pairs = [load_published_words(arguments.x, arguments.y, arguments.limit)]
    else:
        data = _data_folder(arguments)
        pairs = [load_pair(data, name, arguments.limit) for name in arguments.pairs]
    return _run_retrieval(arguments, "words", pairs)


def run_images(arguments: argparse.Namespace) -> int:
    """Run the images experiment, then write and print its results."""
    _prepare(arguments)
    data = _data_folder(arguments)
    return _run_retrieval(arguments, "images", [load_pair(data, name, arguments.limit) for name in arguments.pairs])


def _run_retrieval(arguments: argparse.Namespace, name: str, pairs: Sequence[SpacePair]) -> int:
    with _Bars(len(pairs) * len(arguments.random_states)) as bars:
        result = reproduce_retrieval(name, pairs, _plan(arguments, bars))
    return _conclude(arguments, result)


def run_reviews(arguments: argparse.Namespace) -> int:
    """Run the reviews experiment, encoding texts first, then write and print its results."""
    data = _data_folder(arguments)
    _prepare(arguments)
    chosen = Encoders(arguments.encoder_x, arguments.encoder_y)
    if (arguments.encoder_x or arguments.encoder_y) and len(arguments.tasks) > 1:
        raise InputError("--encoder-x and --encoder-y are for one task, each has its own languages; add --tasks NAME")

    with _Bars(len(arguments.tasks) * len(arguments.random_states)) as bars:

        def load(name: str) -> StitchingTask:
            bars.close()  # two live displays would write over each other
            with counting_bar(f"encoding {name}") as on_progress:
                place = EncodingPlace(arguments.out / "encoded", str(resolve_device(arguments.device)), on_progress)
                return load_task(name, data, place, chosen, arguments.limit)

        result = reproduce_reviews(map(load, arguments.tasks), _plan(arguments, bars), head=arguments.head)
    return _conclude(arguments, result)


def _prepare(arguments: argparse.Namespace) -> None:
    """Check before the work, not after it, that results can be written and figures drawn."""
    if arguments.out.is_file():
        raise InputError(f"{arguments.out}: is a file; --out needs a folder")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in ("random_states", "pairs", "tasks"):
        given = getattr(arguments, name, [])
        if len(set(given)) < len(given):
            raise InputError(f"--{name.replace('_', '-')}: something is given twice: {' '.join(map(str, given))}")
    if not arguments.no_figures:
        require_matplotlib(", or pass --no-figures")


def _data_folder(arguments: argparse.Namespace) -> Path:
    folder = arguments.data or os.environ.get("KEDGE_DATA")
    if not folder:
        raise InputError("no data: give their folder with --data, or in the environment as KEDGE_DATA")
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such folder; give the folder of the data with --data or KEDGE_DATA")
    return Path(folder)


def _plan(arguments: argparse.Namespace, bars: _Bars) -> Plan:
    wanted = arguments.paper_optimiser
    return Plan(
        out=arguments.out,
        random_states=arguments.random_states,
        on_part=bars.begin,
        on_step=bars.draw,
        device=arguments.device,
        paper_optimiser=resolve_device(arguments.device).type == "cuda" if wanted is None else wanted,
        figures=not arguments.no_figures,
    )


class _Bars(ExitStack):
    """Show the progress of a run in parts: each gets a line, and its own bars from its first step on."""

    _on_step: OnStep | None = None

    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts, self._begun, self._computed = parts, 0, 0
        self._since: float | None = None

    def begin(self, name: str, finished: bool) -> None:
        """Announce a part that begins, or that was finished before."""
        self.close()
        left = ""
        if self._since is not None and self._computed and not finished:
            each = (time.perf_counter() - self._since) / self._computed
            left = f", {about(each * max(self._parts - self._begun, 1))} left"
        self._begun += 1
        note(f"{name}: done before" if finished else f"{name} ({self._begun} of {self._parts}{left})")
        if not finished:
            self._since = self._since or time.perf_counter()
            self._computed += 1

    def draw(self, step: Step) -> None:
        """Show a step of the current part."""
        if self._on_step is None:
            self._on_step = self.enter_context(progress_bar())
            self.callback(setattr, self, "_on_step", None)
        self._on_step(step)


def _conclude(arguments: argparse.Namespace, result: Result) -> int:
    written = result.write(arguments.out)
    if arguments.json:
        print_json(result.details)
        return 0
    for table in result.tables:
        print_line((table.title, "bold"))
        print_table(table.columns, table.rows)
        for remark in table.remarks:
            print_line(remark)
        print_line()
    print_line(f"Written: {', '.join(str(path) for path in written)}")
    return 0

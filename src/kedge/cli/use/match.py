"""`kedge match`: all rows of both spaces matched by a run, however many they are."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, add_overwrite, add_run, add_spaces, probability
from kedge.cli.use.engine_options import add_engine, add_resume, chosen_engine, run_digest

if TYPE_CHECKING:
    from kedge.tasks.all_rows import MatchSummary


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "match",
        run,
        "match all rows of both spaces, however many",
        "Match all rows of both spaces by a run that was discovered on some; memory does not grow with the rows.",
        """  kedge discover x.npy y.npy --limit 50000 --seeds seeds.tsv -o RUN     a sample is enough to learn from
  kedge match RUN x.npy y.npy -o pairs/                                all rows, on this machine
  kedge match RUN parquet:x/ parquet:y/ -o pairs/ --engine ray         on all cores, by Ray
  kedge match RUN parquet:x/ parquet:y/ -o pairs/ --engine ray --ray ray-head:6379
  kedge match RUN x.npy y.npy -o pairs/ --resume                       continue after an interruption
  kedge match RUN x.npy y.npy -o pairs/ --min-confidence 0.9           only pairs at least this probable

pairs/ is a folder of Parquet files with the columns x and y (keys), similarity (CSLS), margin, mutual and confidence:
a line for every row of X with its best partner; with --min-confidence, only mutual pairs at least that probable.

.npy files, Parquet and LanceDB are read in place, a range of rows at a time; anything else (other files, stores) is
copied to Parquet first. Unfinished work is kept in pairs.unfinished/. On a cluster, all machines must see the same
files under the same names, and have kedge installed.""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument(
        "-o", "--out", metavar="FOLDER", type=Path, required=True, help="folder of Parquet files to write"
    )
    add_overwrite(parser)
    parser.add_argument(
        "--min-confidence",
        metavar="P",
        type=probability,
        help="list only mutual pairs at least this probable (every row of X)",
    )
    add_engine(parser)
    add_resume(parser, "match")


def run(arguments: argparse.Namespace) -> int:
    """Match, and print the result."""
    from kedge.engines.job_folder import job_folder
    from kedge.estimators import load
    from kedge.spaces.row_ranges import open_ranges
    from kedge.tasks.all_rows import PAIRS, match_all

    discovery = load(arguments.run_folder)
    began = time.perf_counter()
    options = {"resume": arguments.resume, "overwrite": arguments.overwrite, "activity": "match"}
    with job_folder(arguments.out, PAIRS, **options) as folder:
        x, y = open_ranges(arguments.x, folder, "x"), open_ranges(arguments.y, folder, "y")
        with chosen_engine(arguments, folder) as engine, _bars() as on_pass:
            summary = match_all(
                discovery,
                x,
                y,
                folder,
                engine,
                min_confidence=arguments.min_confidence,
                call={"run": run_digest(arguments.run_folder)},
                on_pass=on_pass,
            )
    return _print_summary(arguments, summary, time.perf_counter() - began)


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each pass, on a terminal."""
    from contextlib import ExitStack

    from kedge.cli.progress import counting_bar

    with ExitStack() as stack:
        bars: dict[str, Callable[[int, int], None]] = {}

        def on_pass(name: str, done: int, total: int) -> None:
            if name not in bars:
                stack.close()
                bars[name] = stack.enter_context(counting_bar(name))
            bars[name](done, total)

        yield on_pass


def _print_summary(arguments: argparse.Namespace, summary: MatchSummary, seconds: float) -> int:
    from dataclasses import asdict

    from kedge.cli.output import print_json, print_line

    if arguments.json:
        print_json({"out": str(arguments.out), **asdict(summary), "seconds": round(seconds, 3)})
        return 0
    found = summary.listed - summary.seeds
    right = f" (about {summary.expected_right / found:.0%} right)" if found else ""
    kind = "rows of X with their best partner" if arguments.min_confidence is None else "pairs"
    besides_seeds = f" besides {summary.seeds} seeds" if summary.seeds else ""
    rate = (summary.rows_x + summary.rows_y) / max(seconds, 1e-9)
    print_line(
        f"{found} {kind}{besides_seeds}{right} in {arguments.out}, {summary.mutual} of {summary.rows_x} rows mutual"
    )
    who, besides = "", ""
    if summary.counted < summary.checked:
        who = "that probably have a counterpart "
        besides = f" ({summary.met:.1%} of all {summary.checked} checked rows)"
    print_line(
        f"approximate: {summary.met_counted:.1%} of {summary.counted} checked rows {who}met their nearest of all "
        f"{summary.rows_y} rows of Y{besides}; a row looks into {summary.probes:.1f} of {summary.clusters} clusters; "
        f"{rate:.0f} rows per second"
    )
    return 0

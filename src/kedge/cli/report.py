"""`kedge report`: a run as a page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import add_device, add_limit, add_rows_shown, add_run, add_spaces, add_verb
from kedge.cli.evaluate import add_gold, described, read_gold
from kedge.cli.rehearse import add_known, read_known


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "report",
        run,
        "Write a run as one HTML page: the verdict, both spaces, search, pairs, and how sure they are.",
        """  kedge report RUN x.vec y.vec
  kedge report RUN en.vec fr.vec --gold dictionary.tsv -o report.html
  kedge report RUN new.npy old.npy --known keys     with a rehearsal: what searches would lose

The page needs no network and no other file.""",
    )
    add_run(parser)
    add_spaces(parser)
    add_page(parser, "-o", "--out", default=Path("report.html"))
    add_gold(parser, required=False)
    add_known(parser)
    add_rows_shown(parser)
    add_device(parser)
    add_limit(parser)


def add_page(parser: argparse.ArgumentParser, *names: str, default: Path | None) -> None:
    """The page to write."""
    told = f"page to write, .html{f' ({default})' if default else ''}; needs kedge[report]"
    parser.add_argument(*names, metavar="FILE", type=Path, default=default, help=told)


def run(arguments: argparse.Namespace) -> int:
    """Load, compare if there is something to compare with, write."""
    from kedge.cli.output import note, print_json, tell_page
    from kedge.discovery import load
    from kedge.report import Comparison, require_page_target, write_report
    from kedge.spaces import read_embeddings
    from kedge.tasks import Truth, evaluate, rehearse

    require_page_target(arguments.out)
    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    comparison = None
    if arguments.gold:
        gold = read_gold(arguments, x, y)
        note(f"gold: {described(gold)}")
        evaluation = evaluate(discovery, x, y, gold.pairs, complete=gold.complete, device=arguments.device)
        comparison = Comparison(evaluation, Truth(x, y, gold.pairs, complete=gold.complete))
    rehearsal = None
    if known := read_known(arguments, x, y):
        note(f"known: {described(known)}")
        rehearsal = rehearse(discovery, x, y, known.pairs, device=arguments.device)
    write_report(
        arguments.out,
        discovery,
        x,
        y,
        gold=comparison,
        rehearsal=rehearsal,
        run=str(arguments.run_folder),
        most=arguments.rows,
    )
    if arguments.json:
        print_json(
            {"out": str(arguments.out), "map": discovery.health_.map.verdict, "pairs": discovery.health_.pairs.verdict}
        )
    else:
        tell_page(arguments.out)
    return 0

"""`kedge report`: a run as a page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import (
    add_command,
    add_device,
    add_limit,
    add_overwrite,
    add_rows_shown,
    add_run,
    add_spaces,
    space_name,
)
from kedge.cli.look.members import read_members
from kedge.cli.page_options import (
    add_labels,
    add_listed,
    add_page,
    compare_with_gold,
    load_listed,
    read_labels,
    read_row_texts,
)
from kedge.cli.true_pairs import add_gold, add_known, describe_pairs, read_known


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "report",
        run,
        "write a run as one HTML page",
        "Write a run as one HTML page: the verdict, both spaces, search, pairs, and how sure they are.",
        """  kedge report RUN x.vec y.vec
  kedge report RUN en.vec fr.vec --gold dictionary.tsv -o report.html
  kedge report COMMON a.npz b.npz c.npz             all members of a run by `kedge unite`
  kedge report RUN new.npy old.npy --known keys     with a rehearsal: what searches would lose
  kedge report RUN a.npz b.npz --labels labels.tsv --layout tsne     points coloured by label, and laid out by t-SNE

The page needs no network and no other file.""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument(
        "more", metavar="Z", type=space_name, nargs="*", help="more members, for a run by `kedge unite`"
    )
    add_page(parser, "-o", "--out", default=Path("report.html"))
    add_overwrite(parser)
    add_gold(parser, required=False)
    add_known(parser)
    add_labels(parser)
    parser.add_argument(
        "--layout", choices=("tsne",), help="draw both spaces also with t-SNE (a minute or more); needs kedge[layout]"
    )
    add_listed(parser)
    add_rows_shown(parser)
    add_device(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, compare with the truth if it is given, write."""
    from kedge.cli.output import note, print_json, print_page
    from kedge.cli.output_files import require_free
    from kedge.errors import InputError
    from kedge.report import require_layout, require_page_target, write_report
    from kedge.runs.description import holds_common_space
    from kedge.spaces import read_embeddings
    from kedge.tasks import rehearse

    require_page_target(arguments.out)
    if arguments.layout:
        require_layout()
    require_free(arguments)
    if holds_common_space(arguments.run_folder):
        return _report_common(arguments)
    if arguments.more:
        raise InputError(f"{arguments.more[0]}: {arguments.run_folder} is a run of two spaces; omit it")
    discovery = load_listed(arguments)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    labels = read_labels(arguments, x, y)
    rehearsal = None
    if known := read_known(arguments, x, y):
        note(f"known: {describe_pairs(known)}")
        rehearsal = rehearse(discovery, x, y, known.pairs, device=arguments.device)
    write_report(
        arguments.out,
        discovery,
        x,
        y,
        gold=compare_with_gold(arguments, discovery, x, y),
        rehearsal=rehearsal,
        labels=labels,
        texts=read_row_texts(arguments, x, y),
        layout=arguments.layout is not None,
        run=str(arguments.run_folder),
        max_rows=arguments.rows,
    )
    if arguments.json:
        print_json(
            {"out": str(arguments.out)} | {use: answer.verdict for use, answer in discovery.health_.answers.items()}
        )
    else:
        print_page(arguments.out)
    return 0


def _report_common(arguments: argparse.Namespace) -> int:
    """Write the page of a run of many spaces; its members are known by their vectors, in any order."""
    from kedge.cli.output import print_json, print_page
    from kedge.errors import InputError
    from kedge.many.common_space import CommonSpace
    from kedge.report import write_common_page

    for option in ("gold", "known", "labels", "layout", "min_confidence"):
        if getattr(arguments, option) is not None:
            raise InputError(f"--{option.replace('_', '-')}: the page of a run of many spaces has none; omit it")
    common = CommonSpace.load(arguments.run_folder)
    places = (arguments.x, arguments.y, *arguments.more)
    spaces = read_members(common, arguments.run_folder, places, arguments.limit)
    missing = [name for name in common.members_ if name not in spaces]
    if missing:
        raise InputError(
            f"{arguments.run_folder}: the page needs all of its members; also give the file of {missing[0]}"
        )
    write_common_page(arguments.out, common, spaces)
    if arguments.json:
        health = common.health_
        print_json({"out": str(arguments.out), "map": health.map.verdict, "pairs": health.pairs.verdict})
    else:
        print_page(arguments.out)
    return 0

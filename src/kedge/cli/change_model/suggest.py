"""`kedge suggest`: which texts to encode by both models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import (
    add_command,
    add_limit,
    add_overwrite,
    add_random_state,
    add_run,
    add_spaces,
    add_spreadsheet_safe,
    positive,
)


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "suggest",
        run,
        "name the texts worth encoding by both models",
        "Name the rows whose counterparts would help most: the texts to encode by both models, within a budget.",
        """  kedge suggest RUN new.npz old.npz -k 100                   texts of Y to encode by X's model
  kedge suggest RUN new.npz old.npz -k 100 --side x          texts of X to encode by Y's model
  kedge suggest RUN new.npz old.npz -k 100 -o again.tsv

Encode them, add them to the space that lacks them, append the pairs to the seeds, and discover again.""",
    )
    add_run(parser)
    add_spaces(parser)
    parser.add_argument("-k", metavar="K", type=positive, required=True, help="how many rows to name")
    parser.add_argument("--side", choices=("x", "y"), default="y", help="the space to choose rows from (y)")
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, help="write them as a table: .tsv")
    add_overwrite(parser)
    add_spreadsheet_safe(parser)
    add_random_state(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Choose, and print or write."""
    from kedge.cli.output import print_json, print_line
    from kedge.cli.output_files import require_free
    from kedge.estimators import load
    from kedge.spaces import read_embeddings, write_table
    from kedge.spaces.writing.atomic import atomic_path, require_target
    from kedge.tasks import suggest

    if arguments.out:
        require_target(arguments.out)
        require_free(arguments)
    discovery = load(arguments.run_folder)
    x, y = (read_embeddings(path, limit=arguments.limit) for path in (arguments.x, arguments.y))
    found = suggest(discovery, x, y, arguments.k, side=arguments.side, random_state=arguments.random_state)
    if arguments.out:
        with atomic_path(arguments.out) as temporary:
            write_table(
                temporary,
                ("key", "doubt", "cluster"),
                ((s.key, f"{s.doubt:.4f}", str(s.cluster)) for s in found),
                spreadsheet_safe=arguments.spreadsheet_safe,
            )
    if arguments.json:
        print_json({"side": arguments.side, "suggested": [suggestion._asdict() for suggestion in found]})
    elif arguments.out:
        print_line(f"{len(found)} rows to encode by both models in {arguments.out}")
    else:
        for suggestion in found:
            print_line(suggestion.key)
    return 0

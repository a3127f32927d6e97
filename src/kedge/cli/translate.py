"""`kedge translate`: carry vectors of X into Y's space."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import FORMATS, add_limit, add_output, add_run, add_verb


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "translate",
        run,
        "Carry vectors of X into Y's space, to search an index of Y with them.",
        """  kedge translate RUN queries.npy -o queries-in-y.npy""",
    )
    add_run(parser)
    parser.add_argument("file", metavar="FILE", type=Path, help=f"vectors of X: {FORMATS}")
    add_output(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate and write."""
    from kedge.cli.writing import write_derived
    from kedge.discovery import load
    from kedge.spaces import read_embeddings

    discovery = load(arguments.run_folder)
    space = read_embeddings(arguments.file, limit=arguments.limit)
    return write_derived(arguments, space, discovery.translate(space), "translated vectors")

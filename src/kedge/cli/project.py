"""`kedge project`: relative coordinates of a file of vectors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kedge.cli.arguments import FORMATS, add_limit, add_output, add_run, add_verb


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "project",
        run,
        "Write the relative coordinates of vectors: their cosines to the run's anchors.",
        """  kedge project RUN X x.vec -o x-relative.npz
  kedge project RUN Y new-rows.npy -o y-relative.safetensors --snapped""",
    )
    add_run(parser)
    parser.add_argument("side", choices=("X", "Y"), help="which space the vectors belong to")
    parser.add_argument("file", metavar="FILE", type=Path, help=f"vectors: {FORMATS}")
    add_output(parser)
    parser.add_argument("--snapped", action="store_true", help="use snapped instead of free anchors")
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Project and write."""
    from kedge.cli.writing import write_derived
    from kedge.discovery import load
    from kedge.spaces import read_embeddings

    discovery = load(arguments.run_folder)
    space = read_embeddings(arguments.file, limit=arguments.limit)
    transform = discovery.transform_x if arguments.side == "X" else discovery.transform_y
    vectors = transform(space, anchors="snapped" if arguments.snapped else "free")
    return write_derived(arguments, space, vectors, "relative coordinates")

"""`kedge project`: coordinates of a file of vectors that both spaces share."""

from __future__ import annotations

import argparse
from typing import Any

from kedge.cli.arguments import FORMATS, add_command, add_limit, add_output, add_run, space_name


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "project",
        run,
        "write coordinates that compare across both spaces",
        "Write coordinates of vectors that compare across the spaces: relative to the run's anchors, or shared.",
        """  kedge project RUN X x.vec -o x-relative.npz
  kedge project RUN Y new-rows.npy -o y-relative.safetensors --snapped
  kedge project RUN Y y.vec -o y-shared.npz --coordinates shared

relative:  cosines to the anchors, one each; compare them by cosine
shared:    for search in either direction, the best that the run knows; the inner product of a row of X and one of Y is
           the log of how much likelier they are one item than two: index them by inner product, not by cosine""",
    )
    add_run(parser)
    parser.add_argument("side", choices=("X", "Y"), help="which space the vectors belong to")
    parser.add_argument("file", metavar="FILE", type=space_name, help=f"vectors: {FORMATS}")
    add_output(parser)
    parser.add_argument(
        "--coordinates", choices=("relative", "shared"), default="relative", help="which coordinates (relative)"
    )
    parser.add_argument("--snapped", action="store_true", help="relative to snapped instead of free anchors")
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Project and write."""
    from kedge.cli.output_files import require_free_space, write_derived
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.spaces import read_embeddings

    if arguments.snapped and arguments.coordinates != "relative":
        raise InputError("--snapped: shared coordinates use no anchors; omit it, or use --coordinates relative")
    require_free_space(arguments)
    discovery = load(arguments.run_folder)
    space = read_embeddings(arguments.file, limit=arguments.limit)
    of_x = arguments.side == "X"
    if arguments.coordinates == "shared":
        vectors = discovery.x_.shared(space) if of_x else discovery.y_.shared(space)
    else:
        transform = discovery.x_.relative if of_x else discovery.y_.relative
        vectors = transform(space, anchors="snapped" if arguments.snapped else "free")
    return write_derived(arguments, space, vectors, f"{arguments.coordinates} coordinates")

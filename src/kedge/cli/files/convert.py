"""`kedge convert`: from one file format to another."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_limit, add_overwrite, add_target, positive, space_name

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "convert",
        run,
        "convert vectors, or some of them, to another format",
        "Convert a file of vectors to another format, or keep part of it.",
        """  kedge convert GoogleNews-vectors-negative300.bin words.safetensors --limit 200000
  kedge convert wiki.vec.gz some.npz --keys words.txt
  kedge convert cells.h5ad#X_pca cells.npz
  kedge convert chroma:DIR#COLLECTION vectors.npz
  kedge convert vectors.npz short.npz --dims 256             if the model was trained for it (Matryoshka)
  kedge convert ubinary.npy vectors.npz --packed             binary vectors, eight dimensions to a byte

Only ids and vectors are kept; `kedge migrate` keeps the payload of a store too.""",
    )
    parser.add_argument(
        "file", metavar="IN", type=space_name, help=f"file to read: {FORMATS}; or a store (see `kedge stores`)"
    )
    add_target(parser, "out", "file to write, whose suffix names the format; or a new store")
    parser.add_argument("--keys", metavar="FILE", type=Path, help="keep only these keys, one per line")
    parser.add_argument(
        "--dims", metavar="K", type=positive, help="keep the first K dimensions, and say what that costs searches"
    )
    parser.add_argument(
        "--packed", action="store_true", help="the numbers are bytes of binary vectors: unpack them to 1 and -1"
    )
    add_overwrite(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read and write."""
    from kedge.cli.output import note
    from kedge.cli.output_files import require_free_space, write_derived
    from kedge.spaces import read_embeddings, read_key_list

    require_free_space(arguments)
    keys = set(read_key_list(arguments.keys)) if arguments.keys else None
    space = read_embeddings(arguments.file, limit=arguments.limit, keys=keys, packed=arguments.packed)
    if keys is not None and len(space) < len(keys) and arguments.limit is None:
        note(f"{len(keys) - len(space)} of {len(keys)} wanted keys are not in {arguments.file}")
    return write_derived(arguments, space, shortened(space, arguments.dims).vectors, "vectors")


def shortened(space: Embeddings, dims: int | None) -> Embeddings:
    """The space with only its first `dims` dimensions, and a note on what that costs; or as it is."""
    from kedge.cli.output import note
    from kedge.tasks import prefix_cost

    if dims is None:
        return space
    short = space.first_dims(dims)
    if len(space) > 1:
        kept = prefix_cost(space, dims)
        note(
            f"{space.source}: the first {dims} of {space.dim} dimensions keep {kept:.0%} of the ten nearest neighbours"
        )
    return short

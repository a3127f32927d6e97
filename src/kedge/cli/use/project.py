"""`kedge project`: coordinates of a file of vectors that both spaces share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_limit, add_output, add_run, space_name
from kedge.cli.use.engine_options import add_engine, add_resume, require_engine, rewrite_in_batches, run_digest

if TYPE_CHECKING:
    from kedge.models.side import AnchorKind


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "project",
        run,
        "write coordinates that compare across both spaces",
        "Write coordinates that compare across both spaces: relative to the run's anchors, or shared.",
        """  kedge project RUN X x.vec -o x-relative.npz
  kedge project RUN Y new-rows.npy -o y-relative.safetensors --snapped
  kedge project RUN Y y.vec -o y-shared.npz --coordinates shared
  kedge project RUN X parquet:x -o parquet:x-shared --coordinates shared --engine ray     more rows than fit into memory
  kedge project RUN bge documents.npy -o in-common.npz                of a run by `kedge unite`
  kedge project RUN minilm queries.npy -o q-in-common.npz --query     queries of any space, for all documents

relative:  cosines to the anchors, one each; compare them by cosine
shared:    the best that the run knows for search in either direction; the inner product of a row of X and one of Y is
           the log likelihood ratio of one item against two: index them by inner product, not by cosine
common:    what a run by `kedge unite` has instead, compared in the same way, between queries (--query) of any space
           and documents of any""",
    )
    add_run(parser)
    parser.add_argument(
        "side", metavar="SPACE", help="space of the vectors: X or Y; for a run by `kedge unite`, its name"
    )
    parser.add_argument("file", metavar="FILE", type=space_name, help=f"vectors: {FORMATS}")
    add_output(parser)
    parser.add_argument("--coordinates", choices=("relative", "shared"), help="which coordinates (relative)")
    parser.add_argument(
        "--query", action="store_true", help="for a run by `kedge unite`: these are vectors to search with"
    )
    parser.add_argument(
        "--metric",
        choices=("ip", "l2"),
        help="for a run by `kedge unite`: compare by inner product, or by distance if an index knows no other way (ip)",
    )
    parser.add_argument("--snapped", action="store_true", help="relative to snapped instead of free anchors")
    add_limit(parser)
    add_engine(parser, always=False)
    add_resume(parser, "projection by an engine")


def run(arguments: argparse.Namespace) -> int:
    """Project and write."""
    from kedge.cli.output_files import require_apart, require_free_space, write_derived
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.runs.description import holds_common_space
    from kedge.spaces import read_embeddings

    require_engine(arguments)
    require_apart([arguments.file, arguments.run_folder], [arguments.out])
    if holds_common_space(arguments.run_folder):
        if arguments.engine:
            raise InputError(
                f"--engine: {arguments.run_folder} is a run of many spaces, which is read at once; omit it"
            )
        return _project_into_common(arguments)
    if arguments.side not in ("X", "Y"):
        raise InputError(f"{arguments.side}: {arguments.run_folder} is a run of two spaces; give X or Y")
    for option in ("query", "metric"):
        if getattr(arguments, option):
            raise InputError(f"--{option}: {arguments.run_folder} is a run of two spaces; omit it")
    arguments.coordinates = arguments.coordinates or "relative"
    if arguments.snapped and arguments.coordinates != "relative":
        raise InputError("--snapped: shared coordinates use no anchors; omit it, or use --coordinates relative")
    if arguments.engine:
        return _project_in_batches(arguments)
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


def _project_in_batches(arguments: argparse.Namespace) -> int:
    """Project by an engine."""
    from dataclasses import replace
    from functools import partial

    from kedge.cli.output import print_json, print_line
    from kedge.errors import InputError
    from kedge.estimators import load

    if arguments.limit:
        raise InputError("--limit: cannot be used with --engine; omit one of the two")
    discovery = load(arguments.run_folder)
    side = replace(discovery.x_ if arguments.side == "X" else discovery.y_, unmatched_keys=())
    anchors: AnchorKind = "snapped" if arguments.snapped else "free"
    if arguments.coordinates == "shared":
        transform, dim = side.shared, discovery.effective_dims_ + 2
    else:
        transform, dim = partial(side.relative, anchors=anchors), len(discovery.anchors_x_)
    settings = {"side": arguments.side, "coordinates": arguments.coordinates, "anchors": anchors}
    call = {"run": run_digest(arguments.run_folder), **settings}
    rows = rewrite_in_batches(arguments, arguments.file, arguments.out, transform, dim=dim, call=call).rows
    if arguments.json:
        print_json({"out": str(arguments.out), "rows": rows, "dimensions": dim})
    else:
        print_line(f"{arguments.coordinates} coordinates: {rows} x {dim} in {arguments.out}")
    return 0


def _project_into_common(arguments: argparse.Namespace) -> int:
    """Write the common coordinates of a run of many spaces."""
    from kedge.cli.output_files import require_free_space, write_derived
    from kedge.errors import InputError
    from kedge.many.common_space import CommonSpace
    from kedge.spaces import read_embeddings

    if arguments.coordinates or arguments.snapped:
        option = "--coordinates" if arguments.coordinates else "--snapped"
        raise InputError(f"{option}: a run of many spaces has common coordinates only; omit it")
    require_free_space(arguments)
    common = CommonSpace.load(arguments.run_folder)
    space = read_embeddings(arguments.file, limit=arguments.limit)
    vectors = common.project(space, space=arguments.side, query=arguments.query, metric=arguments.metric or "ip")
    return write_derived(arguments, space, vectors, "common coordinates")

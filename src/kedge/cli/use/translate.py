"""`kedge translate`: vectors of one space in the other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_limit, add_output, add_run, space_name
from kedge.cli.use.ends import add_ends, refuse_ends, required_ends
from kedge.cli.use.engine_options import add_engine, add_resume, require_engine, rewrite_in_batches, run_digest

if TYPE_CHECKING:
    from kedge.estimators import AnchorDiscovery
    from kedge.models.translation_trust import Trust
    from kedge.spaces import Embeddings

# Mean lengths this close to 1 are unit length.
_TOLERANCE = 0.01
# What a service might require before it relies on a translation.
_TRUSTED, _FAMILIAR = 0.9, 0.02


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "translate",
        run,
        "translate vectors of X into Y's space, or back",
        "Translate vectors of X into Y's space, to search an index of Y with them; or back.",
        """  kedge translate RUN queries.npy -o queries-in-y.npy
  kedge translate RUN queries.npy -o queries-in-y.npy --scale raw    for an index of Y that compares by distance
  kedge translate RUN queries.npy -o queries-in-y.npy --kind query   as the run translates queries
  kedge translate RUN y-queries.npy -o queries-in-x.npy --back       from Y to X
  kedge translate RUN queries.npy -o queries-in-y.npy --trust trust.tsv     and how far to trust each
  kedge translate RUN q.npy --from bge --to minilm -o out.npy        of a run by `kedge unite`
  kedge translate RUN parquet:old -o parquet:new --engine ray        more rows than fit into memory, on all cores

--scale unit is for an index that compares by cosine, or by inner product over vectors of unit length.
--scale raw is for an index that compares by distance (L2) over vectors as they are.
--kind query is for runs that were given queries (`kedge discover --queries`).
--trust writes for each vector the probability that its own text is among the first ten of Y, and its familiarity: the
share of X's rows that resemble the others no more than it does. If either is low, a service should fall back.""",
    )
    add_run(parser)
    parser.add_argument("file", metavar="FILE", type=space_name, help=f"vectors of X, with --back of Y: {FORMATS}")
    add_output(parser)
    add_direction_and_scale(parser)
    parser.add_argument(
        "--trust", metavar="FILE", type=Path, help="write key, probability, familiarity of each vector of X (TSV)"
    )
    add_ends(parser)
    add_limit(parser)
    add_engine(parser, always=False)
    add_resume(parser, "translation by an engine")


def add_direction_and_scale(parser: argparse.ArgumentParser) -> None:
    """Which way to translate, and how long the vectors become."""
    parser.add_argument("--back", action="store_true", help="translate vectors of Y into X's space instead")
    parser.add_argument(
        "--scale",
        choices=("unit", "raw"),
        default="unit",
        help="length of the vectors: 1, or the mean length of the target's own (unit)",
    )
    parser.add_argument(
        "--kind", choices=("text", "query"), default="text", help="what the vectors of X stand for (text)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Translate and write."""
    from kedge.cli.output_files import require_apart, require_free, require_free_space, write_derived
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.many.common_space import CommonSpace
    from kedge.runs.description import holds_common_space
    from kedge.spaces import read_embeddings

    require_engine(arguments)
    require_apart([arguments.file, arguments.run_folder], [arguments.out, arguments.trust])
    if arguments.engine:
        return _translate_in_batches(arguments)
    require_free_space(arguments)
    if arguments.trust:
        require_free(arguments, "trust")
    if holds_common_space(arguments.run_folder):
        if arguments.trust:
            raise InputError("--trust: is known for runs of two spaces only; omit it")
        source, target = required_ends(arguments)
        common = CommonSpace.load(arguments.run_folder)
        space = read_embeddings(arguments.file, limit=arguments.limit)
        vectors = common.translate(space, source=source, target=target, scale=arguments.scale)
        return write_derived(arguments, space, vectors, f"vectors of {source} translated into {target}")
    refuse_ends(arguments)
    discovery = load(arguments.run_folder)
    space = read_embeddings(arguments.file, limit=arguments.limit)
    vectors = discovery.translate(space, back=arguments.back, scale=arguments.scale, kind=arguments.kind)
    note_length(discovery, arguments)
    if arguments.trust:
        if arguments.back:
            raise InputError("--trust: is about vectors of X, and --back translates those of Y; omit one of the two")
        _write_trust(arguments.trust, space, discovery.trust(space, kind=arguments.kind))
    return write_derived(arguments, space, vectors, "translated vectors")


def _write_trust(path: Path, space: Embeddings, trust: Trust) -> None:
    """Write one line per vector, and note for how many of them a service would fall back."""
    from kedge.cli.output import note
    from kedge.spaces.pairs import write_table
    from kedge.spaces.writing.atomic import atomic_path

    figures = zip(space.keys, trust.probability.tolist(), trust.familiarity.tolist(), strict=True)
    with atomic_path(path) as temporary:
        write_table(
            temporary,
            ("key", "probability", "familiarity"),
            ((str(key), f"{probability:.4f}", f"{familiarity:.4f}") for key, probability, familiarity in figures),
        )
    doubtful = int(((trust.probability < _TRUSTED) | (trust.familiarity < _FAMILIAR)).sum())
    note(
        f"{path}: {doubtful} of {len(space)} translations are doubtful (probability below {_TRUSTED}, or familiarity "
        f"below {_FAMILIAR})"
    )


def _translate_in_batches(arguments: argparse.Namespace) -> int:
    """Translate by an engine, whose workers need only NumPy."""
    from kedge.cli.output import print_json, print_line
    from kedge.errors import InputError
    from kedge.runs.description import holds_common_space
    from kedge.runs.translators import load_translator

    if arguments.trust:
        raise InputError("--trust: cannot be used with --engine; omit one of the two")
    if holds_common_space(arguments.run_folder) or arguments.limit:
        what = "--limit" if arguments.limit else f"{arguments.run_folder}: is a run of many spaces, which"
        raise InputError(f"{what} cannot be used with --engine; omit one of the two")
    refuse_ends(arguments)
    settings = {"back": arguments.back, "scale": arguments.scale, "kind": arguments.kind}
    translator = load_translator(arguments.run_folder, **settings)
    call = {"run": run_digest(arguments.run_folder), **settings}
    dim = translator.dims[1]
    rows = rewrite_in_batches(arguments, arguments.file, arguments.out, translator, dim=dim, call=call).rows
    if arguments.json:
        print_json({"out": str(arguments.out), "rows": rows, "dimensions": dim})
    else:
        print_line(f"translated vectors: {rows} x {dim} in {arguments.out}")
    return 0


def note_length(discovery: AnchorDiscovery, arguments: argparse.Namespace) -> None:
    """Say so if vectors of unit length do not fit an index by distance of the target's own."""
    from kedge.cli.output import note

    target, length = ("X", discovery.x_.mean_norm) if arguments.back else ("Y", discovery.y_.mean_norm)
    if arguments.scale == "unit" and abs(length - 1) > _TOLERANCE:
        note(
            f"{target}'s own vectors have mean length {length:.4g}: compare by cosine, or use --scale raw for an index "
            "by distance"
        )

"""`kedge discover`: the main job, from two files and a few pairs, or none, to a run folder."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.cli.arguments import (
    PAIR_FORMATS,
    add_command,
    add_device,
    add_limit,
    add_min_confidence,
    add_overwrite,
    add_random_state,
    add_spaces,
    byte_count,
    positive,
    space_name,
    whitening,
)
from kedge.cli.exit_codes import EXIT_NOT_PASSED
from kedge.cli.files.convert import shortened
from kedge.cli.page_options import add_page, read_row_texts
from kedge.cli.signals import was_interrupted
from kedge.cli.true_pairs import describe_skipped

if TYPE_CHECKING:
    from kedge.spaces import Embeddings

# Memory that a row's fingerprint takes while it is computed.
_FINGERPRINT_BYTES = 16_384
# From this many rows on, a sample of them is enough.
_MANY = 200_000
# Shared coordinates that a row has beyond the dimensions of Y.
_SHARED_BESIDES = 12


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "discover",
        run,
        "find pairs, anchors and a map between two spaces",
        "Find pairs, anchors and a map between two spaces, from a few known pairs or none.",
        """  kedge discover en.vec fr.vec --seeds seeds.tsv -o RUN
  kedge discover x.vec y.vec -o RUN                                         no seeds at all
  kedge discover x.npy y.npy --seeds s.tsv -o RUN --resume                  continue after a stop
  kedge discover queries.npy index.npy --seeds s.tsv --disjoint -o RUN      no other items in common
  kedge discover new.npy old.npy --seeds s.tsv --queries asked.npy -o RUN   queries get a translation of their own
  kedge discover old.npy new.safetensors --seeds seeds.csv --seed-format rows --anchors 500 -o RUN
  kedge discover new.npy old.npy --seeds s.tsv --dims-x 256 -o RUN          of a Matryoshka model
  kedge discover x.npz y.npz --seeds s.tsv --method paper --init random --no-center -o RUN      as in the paper

The seeds are two columns of keys (X, then Y): .tsv, .csv, or separated by white space.
RUN will hold anchors.tsv, pairs.tsv, seeds.tsv (with those that look wrong), unmatched.tsv (rows without a pair),
run.json, and the vectors and the map as .safetensors.
Until RUN is written, the progress made is kept in RUN.checkpoint; --overwrite replaces that too.
There are two verdicts (ok, uncertain or failed): for searching with translated vectors, and for the pairs. Exit code 3:
RUN is written, but the verdict that --require names is not ok.""",
    )
    parser.usage = "kedge discover X Y [--seeds FILE] -o RUN [options]"
    add_spaces(parser)
    _add_common(parser)
    _add_advanced(parser.add_argument_group("advanced"))


def _add_common(parser: argparse.ArgumentParser) -> None:
    """The options that people use."""
    parser.add_argument("--seeds", metavar="FILE", type=Path, help="the known pairs; omit it to try without any")
    parser.add_argument("-o", "--out", metavar="RUN", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--anchors",
        metavar="N",
        type=positive,
        help="number of anchors (300, or as many as the smaller space has rows)",
    )
    add_min_confidence(parser)
    parser.add_argument(
        "--disjoint",
        action="store_true",
        help="the files have no items in common except the seeds: find the map without pairs, and list none",
    )
    add_page(parser, "--report", default=None)
    add_limit(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue a stopped discovery of the same files, if there is one",
    )
    add_overwrite(parser)


def _add_advanced(group: argparse._ArgumentGroup) -> None:
    """The rest, which is rarely needed."""
    group.add_argument(
        "--queries",
        metavar="FILE",
        type=space_name,
        help="vectors of at least 20 queries by X's model, in the same formats; if it helps, queries get a "
        "translation of their own, which other commands use with `--kind query`",
    )
    add_random_state(group)
    add_device(group)
    group.add_argument("--seed-format", choices=PAIR_FORMATS, default="keys", help="what the seed file holds (keys)")
    group.add_argument(
        "--strict", action="store_true", help="refuse a seed file with unknown keys, instead of skipping those lines"
    )
    group.add_argument(
        "--anchor-keys",
        metavar="FILE",
        type=Path,
        help="keys of X to use as anchors, one per line, instead of --anchors",
    )
    group.add_argument(
        "--anchor-choice", choices=("random", "farthest"), default="random", help="how to choose anchors (random)"
    )
    for name in ("X", "Y"):
        group.add_argument(
            f"--dims-{name.lower()}",
            metavar="K",
            type=positive,
            help=f"use only the first K dimensions of {name}, if its model was trained for that (Matryoshka), and say "
            "what that costs searches; translators then take vectors of K dimensions or of all",
        )
    group.add_argument("--no-center", action="store_true", help="do not subtract the mean")
    group.add_argument(
        "--whiten",
        metavar="A",
        type=whitening,
        default="auto",
        help="divide each principal axis by its standard deviation to this power, 0 to 1, so that a few axes do not "
        "drown out the others; auto takes 0, and tries 0.5 if the result is poor (auto)",
    )
    group.add_argument(
        "--method",
        choices=("alternate", "paper"),
        default="alternate",
        help="kedge's own, or the paper's optimiser (alternate)",
    )
    group.add_argument(
        "--init", choices=("seeds", "random"), default="seeds", help="where the paper's optimiser starts (seeds)"
    )
    group.add_argument(
        "--exact",
        action="store_true",
        help="compare every pair of rows, even if candidates would be quicker (above some 15,000 rows on a CPU)",
    )
    group.add_argument(
        "--precision",
        choices=("tf32", "bf16", "float32"),
        default="tf32",
        help="number format for matching on a GPU (tf32); a CPU always uses float32",
    )
    group.add_argument(
        "--memory",
        metavar="SIZE",
        type=byte_count,
        default="256M",
        help="memory for temporary arrays, e.g. 500M or 2G (256M)",
    )
    group.add_argument(
        "--require",
        choices=("searching", "pairs"),
        default="searching",
        help="the verdict that must be ok for exit code 0 (searching)",
    )
    group.add_argument("--ignore-verdict", action="store_true", help="exit with 0 regardless of the verdicts")


def run(arguments: argparse.Namespace) -> int:
    """Read, check, discover, write, and print how it went."""
    from kedge.spaces.writing.lock import FolderLock

    try:
        with FolderLock(arguments.out):
            return _run(arguments)
    except BaseException as error:
        if was_interrupted(error) and _checkpoint(arguments).is_dir():
            from kedge.cli.output import note

            note(f"what was reached is kept in {_checkpoint(arguments)}; the same command with --resume continues")
        raise


def _run(arguments: argparse.Namespace) -> int:
    from kedge.cli.find.discovery_summary import print_discovery, required_answer
    from kedge.cli.find.provenance import describe_machine
    from kedge.cli.output import note, print_page
    from kedge.cli.progress import progress_bar
    from kedge.estimators import AnchorDiscovery
    from kedge.runs.checkpoint import discard

    _check_outputs(arguments)
    began = time.perf_counter()
    given = _read(arguments)
    x, y = given.x, given.y
    skipped = describe_skipped(given.skipped, arguments.limit)
    note(f"{x.source}: {len(x)} x {x.dim}, {y.source}: {len(y)} x {y.dim}, {len(given.seeds) or 'no'} seeds{skipped}")
    _require_memory(arguments, x, y)
    if arguments.overwrite and not arguments.resume:
        discard(_checkpoint(arguments))
    keeps_state = arguments.method == "alternate"
    resumed = keeps_state and _checkpoint(arguments).is_dir()
    read_seconds = time.perf_counter() - began

    with progress_bar() as on_step:
        discovery = AnchorDiscovery(
            n_anchors=arguments.anchors,
            method=arguments.method,
            init=arguments.init,
            anchor_choice=arguments.anchor_choice,
            center=not arguments.no_center,
            whiten=arguments.whiten,
            disjoint=arguments.disjoint,
            min_confidence=arguments.min_confidence,
            memory_budget=arguments.memory,
            device=arguments.device,
            precision=arguments.precision,
            exact=arguments.exact,
            random_state=arguments.random_state,
            checkpoint=_checkpoint(arguments) if keeps_state else None,
            on_step=on_step,
        ).fit(x, y, given.seeds, given.anchors, queries=given.queries)
    seconds = time.perf_counter() - began
    timings = {"read_seconds": round(read_seconds, 3), "fit_seconds": round(seconds - read_seconds, 3)}
    extra = {
        "inputs": given.described,
        "limit": arguments.limit,
        "timings": timings,
        "machine": describe_machine(arguments.device),
        "resumed": resumed,
    }
    discovery.save(arguments.out, overwrite=arguments.overwrite, extra=extra)
    if keeps_state:
        discard(_checkpoint(arguments))
    print_discovery(discovery, arguments, x, y, seconds, given.skipped)
    if arguments.report:
        from kedge.report import write_report

        texts = read_row_texts(arguments, x, y)
        write_report(arguments.report, discovery, x, y, texts=texts, run=str(arguments.out))
        if not arguments.json:
            print_page(arguments.report)
    passed = required_answer(discovery, arguments).verdict == "ok"
    return 0 if passed or arguments.ignore_verdict else EXIT_NOT_PASSED


class _Given(NamedTuple):
    """What the files hold, and what `run.json` says about them."""

    x: Embeddings
    y: Embeddings
    seeds: Any
    skipped: int
    anchors: list[str] | None
    queries: Embeddings | None
    described: dict[str, Any]


def _read(arguments: argparse.Namespace) -> _Given:
    from kedge.cli.find.provenance import read_described
    from kedge.cli.output import note
    from kedge.spaces import read_dictionary, read_embeddings, read_key_list, read_pairs

    described: dict[str, Any] = {}

    def read(name: str, reader: Callable[..., Any], *more: Any, **options: Any) -> Any:
        path = getattr(arguments, name)
        content, described[name] = read_described(path, lambda: reader(path, *more, **options))
        return content

    x, y = (
        shortened(read(name, read_embeddings, limit=arguments.limit), getattr(arguments, f"dims_{name}"))
        for name in ("x", "y")
    )
    if max(len(x), len(y)) > _MANY:
        note(
            f"{max(len(x), len(y)):,} rows take long; a discovery on some that both spaces have (--limit N) is enough "
            "to learn the map, and `kedge match` then matches all rows"
        )
    seeds, skipped, by = (), 0, PAIR_FORMATS[arguments.seed_format]
    if arguments.seeds and arguments.strict:
        seeds = read("seeds", read_pairs, x, y, by=by)
    elif arguments.seeds:
        seeds, skipped, _ = read("seeds", read_dictionary, x, y, by=by)
    anchors = read("anchor_keys", read_key_list) if arguments.anchor_keys else None
    queries = read("queries", read_embeddings, limit=arguments.limit) if arguments.queries else None
    return _Given(x, y, seeds, skipped, anchors, queries, described)


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse at the start what could not be written at the end, or would destroy something."""
    from kedge.cli.output_files import require_free
    from kedge.errors import InputError
    from kedge.runs.folder import check_target

    if arguments.anchors and arguments.anchor_keys:
        raise InputError("--anchors: --anchor-keys names the anchors already; omit one of the two")
    check_target(arguments.out, overwrite=True)  # could it be replaced? whether it may be is asked next
    require_free(arguments)
    if arguments.report:
        from kedge.report import require_page_target

        require_page_target(arguments.report)
        require_free(arguments, "report")
    _check_checkpoint(arguments)


def _checkpoint(arguments: argparse.Namespace) -> Path:
    """Where the state of an unfinished run is kept: beside the run."""
    out: Path = arguments.out.resolve()
    return out.with_name(f"{out.name}.checkpoint")


def _check_checkpoint(arguments: argparse.Namespace) -> None:
    """Refuse to lose an unfinished run, or to continue one that cannot be."""
    from kedge.cli.output import note
    from kedge.errors import InputError

    folder = _checkpoint(arguments)
    if arguments.resume and arguments.method == "paper":
        raise InputError("--resume: the paper's optimiser keeps no state to go on from; omit it")
    if arguments.resume:
        note(f"going on from {folder}" if folder.is_dir() else f"no unfinished discovery in {folder}; starting")
    elif folder.is_dir() and not arguments.overwrite:
        raise InputError(
            f"{folder}: holds an unfinished discovery; continue it with --resume, or start over with --overwrite"
        )


def _require_memory(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> None:
    """Refuse spaces that this machine cannot hold."""
    from kedge.estimators.devices import resolve_device
    from kedge.matching import exact_is_quick
    from kedge.solving.schedule import FINGERPRINT_ROWS
    from kedge.spaces.memory import require_memory

    device = resolve_device(arguments.device)
    if device.type != "cpu":
        return
    # Both spaces are held normalised and in shared coordinates.
    shared = y.dim + _SHARED_BESIDES  # as confidence reads them; canonical ones are fewer
    exact = arguments.exact or exact_is_quick(len(x), len(y), device)
    number = 4 if exact else 2  # bytes; where rows are many, they are held in half precision
    held = number * (len(x) * (x.dim + shared) + len(y) * (y.dim + shared))
    needed = arguments.memory + held
    needed += _FINGERPRINT_BYTES * (min(len(x), FINGERPRINT_ROWS) + min(len(y), FINGERPRINT_ROWS))
    require_memory(needed, "--memory and the spaces", "give a smaller --memory, or fewer rows with --limit")

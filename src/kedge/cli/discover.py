"""`kedge discover`: the main job, from two files and a few pairs, or none, to a run folder."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.cli.arguments import (
    add_device,
    add_limit,
    add_overwrite,
    add_random_state,
    add_spaces,
    add_verb,
    byte_count,
    positive,
    probability,
    whitening,
)
from kedge.cli.interruption import interrupted
from kedge.cli.report import add_page

if TYPE_CHECKING:
    from kedge.matching import Processes
    from kedge.spaces import Embeddings

EXIT_UNHEALTHY = 3
# What a row's fingerprint takes while it is made.
_FINGERPRINT_BYTES = 16_384
# Shared coordinates that a row has besides those it is multiplied in.
_SHARED_BESIDES = 12


def add_parser(verbs: Any) -> None:
    """Describe the verb."""
    parser = add_verb(
        verbs,
        "discover",
        run,
        "Find anchors, pairs and a map between two spaces, from a few known pairs or none.",
        """  kedge discover en.vec fr.vec --seeds seeds.tsv --out RUN
  kedge discover x.vec y.vec --out RUN                                                          no seeds at all
  kedge discover old.npy new.safetensors --seeds seeds.csv --pairs-by row --anchors 500 --out RUN
  kedge discover x.npz y.npz --seeds s.tsv --method paper --init random --no-center --out RUN   as printed
  kedge discover queries.npy index.npy --seeds s.tsv --disjoint --out RUN                       nothing else in common
  kedge discover x.npy y.npy --seeds s.tsv --out RUN --resume                                   go on after a stop
  torchrun --nproc-per-node 4 -m kedge discover x.npy y.npy --seeds s.tsv --out RUN             many processes

The seeds are two columns of keys (X, then Y): .tsv, .csv, or separated by white space.
RUN gets anchors.tsv, pairs.tsv, seeds.tsv (which says which seeds look wrong), unmatched.tsv (the rows in no pair),
run.json, and the vectors and the map as .safetensors.
What a discovery has reached is kept in RUN.checkpoint after every round, until RUN is written; --overwrite replaces
that too.
Two questions are answered: is the map right, and are the pairs right? Exit code 3: written, but what was asked for, the
map or with --require pairs the pairs, is not vouched for (see --force); torchrun turns that into 1.""",
    )
    parser.set_defaults(divides_work=True)
    add_spaces(parser)
    parser.add_argument(
        "--seeds", metavar="FILE", type=Path, help="the known pairs; without it kedge tries to do without"
    )
    parser.add_argument("--out", metavar="RUN", type=Path, required=True, help="folder to write")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--anchors",
        metavar="N",
        type=positive,
        help="number of anchors (300, or as many as the smaller space has rows)",
    )
    chosen.add_argument("--anchor-keys", metavar="FILE", type=Path, help="keys of X to use as anchors, one a line")
    parser.add_argument(
        "--anchor-choice",
        choices=("random", "farthest"),
        default="random",
        help="how to choose anchors (random)",
    )
    parser.add_argument("--pairs-by", choices=("key", "row"), default="key", help="what the seed file holds (key)")
    parser.add_argument(
        "--method", choices=("alternate", "paper"), default="alternate", help="ours, or the paper's optimiser"
    )
    parser.add_argument(
        "--init", choices=("seeds", "random"), default="seeds", help="start of the paper's optimiser (seeds)"
    )
    parser.add_argument(
        "--min-confidence",
        metavar="P",
        type=probability,
        default=0.5,
        help="list only pairs at least this probable (0.5)",
    )
    add_random_state(parser)
    add_device(parser)
    parser.add_argument(
        "--precision",
        choices=("tf32", "bf16", "float32"),
        default="tf32",
        help="what matching multiplies in on a GPU (tf32); a CPU always uses float32",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=byte_count,
        default="256M",
        help="memory for temporaries, e.g. 500M or 2G (256M)",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="compare all rows with all, also where candidates would be quicker (more than some 15,000 rows on a CPU)",
    )
    parser.add_argument("--no-center", action="store_true", help="do not take the mean off the spaces")
    parser.add_argument(
        "--whiten",
        metavar="A",
        type=whitening,
        default="auto",
        help="divide each axis of the spaces by its deviation to this power, 0 to 1, where a few drown the others; "
        "auto takes 0, and tries 0.5 where that is not healthy enough (auto)",
    )
    add_limit(parser)
    add_page(parser, "--report", default=None)
    add_overwrite(parser)
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with a discovery of the same files that was stopped, if there is one",
    )
    parser.add_argument(
        "--disjoint",
        action="store_true",
        help="the files have no item in common but the seeds: find the map without pairs, and list none",
    )
    parser.add_argument(
        "--require",
        choices=("map", "pairs"),
        default="map",
        help="what must be right for exit code 0 (map)",
    )
    parser.add_argument("--force", action="store_true", help="exit with 0 whatever the verdicts are")


def run(arguments: argparse.Namespace) -> int:
    """Read, check, discover, write, and say how it went; alone, or one of several processes."""
    from kedge.estimators.devices import resolve_device
    from kedge.matching import several_processes
    from kedge.spaces.lock import FolderLock

    with several_processes(resolve_device(arguments.device)) as here:
        try:
            with FolderLock(arguments.out) if here.leads else nullcontext():
                return _run(arguments, here)
        except BaseException as error:
            if interrupted(error) and here.leads and _checkpoint(arguments).is_dir():
                from kedge.cli.output import note

                note(f"what was reached is kept in {_checkpoint(arguments)}; the same command with --resume goes on")
            raise


def _run(arguments: argparse.Namespace, here: Processes) -> int:
    from kedge.cli.discovered import required_answer, tell
    from kedge.cli.output import note, tell_page
    from kedge.cli.progress import progress_bar
    from kedge.cli.provenance import describe_machine
    from kedge.estimators import AnchorDiscovery
    from kedge.runs.checkpoint import discard

    if here.leads:
        _check_outputs(arguments)
    began = time.perf_counter()
    given = _read(arguments, here)
    x, y = given.x, given.y
    if here.leads:
        together = "" if here.alone else f", {here.count} processes"
        seeds = len(given.seeds) or "no"
        note(f"{x.source}: {len(x)} x {x.dim}, {y.source}: {len(y)} x {y.dim}, {seeds} seeds{together}")
    _require_memory(arguments, x, y)
    if here.leads and arguments.overwrite and not arguments.resume:
        discard(_checkpoint(arguments))
    keeps_state = arguments.method == "alternate"
    resumed = keeps_state and _checkpoint(arguments).is_dir()
    read_seconds = time.perf_counter() - began

    with progress_bar() if here.leads else nullcontext() as on_step:
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
        ).fit(x, y, given.seeds, given.anchors)
    if here.leads:
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
        tell(discovery, arguments, len(x), len(y), seconds)
        if arguments.report:
            from kedge.report import write_report

            write_report(arguments.report, discovery, x, y, run=str(arguments.out))
            if not arguments.json:
                tell_page(arguments.report)
    here.object_from_first(None)  # the others wait until it is written, and fail if it cannot be
    vouched_for = required_answer(discovery, arguments).verdict == "ok"
    return 0 if arguments.force or vouched_for else EXIT_UNHEALTHY


class _Given(NamedTuple):
    """What the files hold, and what `run.json` says about them, which only the leading process knows."""

    x: Embeddings
    y: Embeddings
    seeds: Any
    anchors: list[str] | None
    described: dict[str, Any]


def _read(arguments: argparse.Namespace, here: Processes) -> _Given:
    from kedge.cli.provenance import read_described
    from kedge.spaces import read_embeddings, read_key_list, read_pairs

    described: dict[str, Any] = {}

    def read(name: str, reader: Callable[..., Any], *more: Any, **options: Any) -> Any:
        path = getattr(arguments, name)
        if not here.leads:
            return reader(path, *more, **options)
        content, described[name] = read_described(path, lambda: reader(path, *more, **options))
        return content

    x, y = (read(name, read_embeddings, limit=arguments.limit, share=(here.rank, here.count)) for name in ("x", "y"))
    seeds = read("seeds", read_pairs, x, y, by=arguments.pairs_by) if arguments.seeds else ()
    anchors = read("anchor_keys", read_key_list) if arguments.anchor_keys else None
    return _Given(x, y, seeds, anchors, described)


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse at the start what could not be written at the end, or would cost something."""
    from kedge.cli.writing import require_free
    from kedge.runs.folder import check_target

    check_target(arguments.out, overwrite=True)  # whether it could be; whether it may be, is the next question
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
    """Refuse to lose an unfinished run, or to go on where that cannot be."""
    from kedge.cli.output import note
    from kedge.errors import InputError

    folder = _checkpoint(arguments)
    if arguments.resume and arguments.method == "paper":
        raise InputError("--resume: the paper's optimiser keeps no state to go on from; leave it out")
    if arguments.resume:
        note(f"going on from {folder}" if folder.is_dir() else f"nothing to go on from in {folder}; starting")
    elif folder.is_dir() and not arguments.overwrite:
        raise InputError(
            f"{folder}: an unfinished discovery is kept there; go on with it by --resume, or start over by --overwrite"
        )


def _require_memory(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> None:
    """Refuse spaces that this machine cannot hold."""
    from kedge.estimators.devices import resolve_device
    from kedge.matching import exact_is_quick, processes
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
    each = arguments.memory + held // processes().count
    each += _FINGERPRINT_BYTES * (min(len(x), FINGERPRINT_ROWS) + min(len(y), FINGERPRINT_ROWS))
    needed = each * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    require_memory(needed, "--memory and the spaces", "give a smaller --memory, or fewer rows with --limit")

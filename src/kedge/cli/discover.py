"""`kedge discover`: the main job, from two files and a few pairs, or none, to a run folder."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.cli.arguments import (
    add_device,
    add_limit,
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
    from kedge.discovery import AnchorDiscovery, Answer
    from kedge.matching import Processes
    from kedge.spaces import Embeddings

EXIT_UNHEALTHY = 3
# What a row's fingerprint takes while it is made.
_FINGERPRINT_BYTES = 16_384
# Shared coordinates that a row has besides those it is multiplied in.
_SHARED_BESIDES = 12
_SEEDS_SHOWN = 10


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
What a discovery has reached is kept in RUN.checkpoint after every round, until RUN is written.
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
    chosen.add_argument("--anchors", metavar="N", type=positive, default=300, help="number of anchors (300)")
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
        help="compare all rows with all, also where candidates would be quicker (more than some 30,000 rows on a CPU)",
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
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a run, finished or not, that is there already"
    )
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
    from kedge.discovery.devices import resolve_device
    from kedge.matching import several_processes

    with several_processes(resolve_device(arguments.device)) as here:
        try:
            return _run(arguments, here)
        except BaseException as error:
            if interrupted(error) and here.leads and _checkpoint(arguments).is_dir():
                from kedge.cli.output import note

                note(f"what was reached is kept in {_checkpoint(arguments)}; the same command with --resume goes on")
            raise


def _run(arguments: argparse.Namespace, here: Processes) -> int:
    from kedge.cli.output import note, tell_page
    from kedge.cli.progress import progress_bar
    from kedge.cli.provenance import describe_machine
    from kedge.discovery import AnchorDiscovery, check_target, discard
    from kedge.spaces import read_embeddings, read_key_list, read_pairs

    if here.leads:
        check_target(arguments.out, overwrite=arguments.overwrite)
        if arguments.report:
            from kedge.report import require_page_target

            require_page_target(arguments.report)
        _check_checkpoint(arguments)
    began = time.perf_counter()
    share = (here.rank, here.count)
    x = read_embeddings(arguments.x, limit=arguments.limit, share=share)
    y = read_embeddings(arguments.y, limit=arguments.limit, share=share)
    seeds = read_pairs(arguments.seeds, x, y, by=arguments.pairs_by) if arguments.seeds else ()
    anchors = read_key_list(arguments.anchor_keys) if arguments.anchor_keys else None
    if here.leads:
        together = "" if here.alone else f", {here.count} processes"
        note(f"{x.source}: {len(x)} x {x.dim}, {y.source}: {len(y)} x {y.dim}, {len(seeds) or 'no'} seeds{together}")
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
        ).fit(x, y, seeds, anchors)
    if here.leads:
        seconds = time.perf_counter() - began
        timings = {"read_seconds": round(read_seconds, 3), "fit_seconds": round(seconds - read_seconds, 3)}
        extra = {
            "inputs": _inputs(arguments, x, y),
            "limit": arguments.limit,
            "timings": timings,
            "machine": describe_machine(arguments.device),
            "resumed": resumed,
        }
        discovery.save(arguments.out, overwrite=arguments.overwrite, extra=extra)
        if keeps_state:
            discard(_checkpoint(arguments))
        _tell(discovery, arguments, len(x), len(y), seconds)
        if arguments.report:
            from kedge.report import write_report

            write_report(arguments.report, discovery, x, y, run=str(arguments.out))
            if not arguments.json:
                tell_page(arguments.report)
    here.object_from_first(None)  # the others wait until it is written, and fail if it cannot be
    return 0 if arguments.force or _required(discovery, arguments).verdict == "right" else EXIT_UNHEALTHY


def _required(discovery: AnchorDiscovery, arguments: argparse.Namespace) -> Answer:
    """The answer to the question that was asked for."""
    health = discovery.health_
    return health.pairs if arguments.require == "pairs" else health.map


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
    from kedge.discovery.devices import resolve_device
    from kedge.discovery.schedule import FINGERPRINT_ROWS
    from kedge.matching import exact_is_quick, processes
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


def _inputs(arguments: argparse.Namespace, x: Embeddings, y: Embeddings) -> dict[str, Any]:
    """What `run.json` says about the files."""
    from kedge.cli.provenance import describe_input

    inputs = {"x": describe_input(arguments.x, x), "y": describe_input(arguments.y, y)}
    if arguments.seeds:
        inputs["seeds"] = describe_input(arguments.seeds)
    if arguments.anchor_keys:
        inputs["anchor_keys"] = describe_input(arguments.anchor_keys)
    return inputs


def _tell(discovery: AnchorDiscovery, arguments: argparse.Namespace, rows_x: int, rows_y: int, seconds: float) -> None:
    """Print the result, for people or as JSON, and warn of an unhealthy one."""
    from kedge.cli.output import notes, print_json

    health = discovery.health_
    if arguments.json:
        print_json(
            {
                "run": str(arguments.out),
                "report": arguments.report and str(arguments.report),
                "health": health,
                "anchors": len(discovery.anchors_x_),
                "pairs": len(discovery.pairs_),
                "expected_precision": _expected_precision(discovery),
                "unmatched": {"x": len(discovery.unmatched_keys_x_), "y": len(discovery.unmatched_keys_y_)},
                "approximate": discovery.as_exact_,
                "whitening": discovery.whitening_,
                "maps": discovery.map_scores_,
                "doubtful_seeds": [seed._asdict() for seed in _doubtful_seeds(discovery)],
                "seconds": round(seconds, 2),
            }
        )
    else:
        _print_summary(discovery, arguments, rows_x, rows_y)
    required = _required(discovery, arguments)
    if required.verdict != "right":
        named = "pairs are" if arguments.require == "pairs" else "map is"
        notes().print(f"[bold red]WARNING[/] the {named} {required.verdict}: do not rely on it. {required.advice}")


def _print_summary(discovery: AnchorDiscovery, arguments: argparse.Namespace, rows_x: int, rows_y: int) -> None:
    """What was found, for people."""
    from kedge.cli.output import command, health_lines, results

    console = results()
    console.print(health_lines(discovery.health_))
    precision = _expected_precision(discovery)
    share = "" if precision is None else f" (about {precision * 100:.0f} % right)"
    console.print(
        f"{len(discovery.pairs_)} pairs{share} and {len(discovery.anchors_x_)} anchors in {arguments.out}", markup=False
    )
    for (left, right), confidence in list(zip(discovery.pair_keys_, discovery.pair_confidence_, strict=True))[:5]:
        console.print(f"  {left} = {right}  ({confidence:.2f})", markup=False)
    if not len(discovery.pairs_):
        console.print("  no pair is probable enough to be listed; --min-confidence 0 lists all mutual ones")
    console.print(
        f"no match: {len(discovery.unmatched_keys_x_)} of {rows_x} rows of X, "
        f"{len(discovery.unmatched_keys_y_)} of {rows_y} rows of Y"
    )
    if discovery.as_exact_ is not None:
        console.print(f"approximate: {discovery.as_exact_}")
    if discovery.whitening_:
        console.print(f"found on spaces whitened by {discovery.whitening_:g}")
    console.print(_told_of_map(discovery))
    _print_doubtful_seeds(discovery)
    files = f"{arguments.out} {arguments.x} {arguments.y}"
    if not arguments.report:
        console.print(f"next: {command()} report {files}", markup=False)
    console.print(f"next: {command()} search {files} KEY", markup=False)


def _told_of_map(discovery: AnchorDiscovery) -> str:
    """Which map `kedge translate` uses, and how a search with it does."""
    kind, own_rank, overlap = (discovery.map_scores_["map"][name] for name in ("kind", "own_rank", "overlap"))
    if own_rank is None or overlap is None:
        return f"map: {kind}; too few pairs to hold some out and try it on them"
    return (
        f"map: {kind}; held out, a translated row finds its partner with MRR {float(own_rank):.2f}, and "
        f"{100 * float(overlap):.0f} % of the partner's ten neighbours"
    )


def _expected_precision(discovery: AnchorDiscovery) -> float | None:
    """The share of the pairs that is probably right."""
    return round(float(discovery.pair_confidence_.mean()), 4) if len(discovery.pairs_) else None


class _DoubtfulSeed(NamedTuple):
    """A seed that is not what was found: its keys, what was found for the first, and how many rows are closer."""

    x: str
    y: str
    found: str
    closer: float
    suspect: bool


def _doubtful_seeds(discovery: AnchorDiscovery) -> list[_DoubtfulSeed]:
    """The seeds that disagree with what was found, the most doubtful first."""
    seeds = zip(
        discovery.seed_keys_,
        discovery.seed_found_keys_,
        discovery.seed_closer_.tolist(),
        discovery.seed_is_suspect_.tolist(),
        strict=True,
    )
    doubtful = [_DoubtfulSeed(left, right, found, *more) for (left, right), found, *more in seeds if found != right]
    return sorted(doubtful, key=lambda seed: -seed.closer)


def _print_doubtful_seeds(discovery: AnchorDiscovery) -> None:
    """Which seeds disagree with what was found, for people."""
    from kedge.cli.output import results

    doubtful, console = _doubtful_seeds(discovery), results()
    if not doubtful:
        return
    aside = sum(seed.suspect for seed in doubtful)
    set_aside = f"; {aside} of them {'looks wrong and was' if aside == 1 else 'look wrong and were'} set aside"
    disagree = "disagrees" if len(doubtful) == 1 else "disagree"
    told = f"{len(doubtful)} of {len(discovery.seeds_)} seeds {disagree} with what was found, the most doubtful first"
    console.print(f"{told}{set_aside if aside else ''}:")
    for seed in doubtful[:_SEEDS_SHOWN]:
        told = f"{seed.closer:.0f} rows are closer" + (", set aside" if seed.suspect else "")
        console.print(f"  {seed.x} = {seed.y} (found: {seed.found}; {told})", markup=False)
    if len(doubtful) > _SEEDS_SHOWN:
        console.print(f"  and {len(doubtful) - _SEEDS_SHOWN} more in seeds.tsv")

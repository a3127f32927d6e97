"""`kedge unite`: one common space for many, with the rows of every item."""

from __future__ import annotations

import argparse
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kedge.cli.arguments import (
    FORMATS,
    add_command,
    add_device,
    add_limit,
    add_overwrite,
    add_random_state,
    probability,
    space_name,
)
from kedge.cli.exit_codes import EXIT_NOT_PASSED

if TYPE_CHECKING:
    from kedge.many.common_space import CommonSpace
    from kedge.spaces import Embeddings
    from kedge.spaces.stores import Address

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)")
_GROUPS_SHOWN = 5
# Options of a new run, by the names of the parameters; a space that joins or leaves goes by what its run was made with.
_FOR_NEW_RUNS = ("disjoint", "min_confidence", "random_state")


class NamedSpace(NamedTuple):
    """A file or store, and what it is called in the run."""

    name: str
    place: Path | Address


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "unite",
        run,
        "find one common space for three spaces or more",
        "Find one common space for many: a map into it and back for each, and the rows of every item in all of them.",
        """  kedge unite minilm.npz bge.npz me5.npz -o RUN
  kedge unite minilm.npz bge.npz me5.npz --seeds tuples.tsv -o RUN
  kedge unite new=gte.npz minilm.npz bge.npz --add RUN -o RUN2     gte joins; minilm and bge stay where they are
  kedge unite bge --remove RUN -o RUN3                             bge leaves; the others stay where they are
  kedge translate RUN queries.npy --from minilm --to bge -o queries-in-bge.npy

A space is named after its file, without the suffix, or by NAME=FILE.
The seeds are a table (.tsv, .csv) with a column for each space, which the first line names; unknown keys are left
empty. RUN will hold groups.tsv (the keys of every item, and the probability that they are one item), unmatched.tsv,
run.json and the maps as .safetensors. A space that does not belong is named, and left out.
Exit code 3: RUN is written, but the map is not ok, or a space was left out.""",
    )
    parser.usage = "kedge unite A B C ... [--seeds FILE] -o RUN [options]"
    parser.add_argument(
        "spaces", metavar="SPACE", type=named_space, nargs="+", help=f"{FORMATS}; or a store (see `kedge stores`)"
    )
    parser.add_argument("--seeds", metavar="FILE", type=Path, help="items that are known, one column per space")
    parser.add_argument("-o", "--out", metavar="RUN", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--add",
        metavar="OLD",
        type=Path,
        help="add spaces to the run OLD; give at least one of its own spaces with them",
    )
    parser.add_argument(
        "--remove", metavar="OLD", type=Path, help="remove members from the run OLD: give their names as SPACE"
    )
    parser.add_argument(
        "--min-confidence",
        metavar="P",
        type=probability,
        help="group rows that are one item with at least this probability (0.5)",
    )
    parser.add_argument(
        "--disjoint",
        action="store_true",
        help="the spaces have no items in common except the seeds: look for no groups",
    )
    parser.add_argument("--ignore-verdict", action="store_true", help="exit with 0 regardless of the verdicts")
    add_limit(parser)
    add_random_state(parser)
    parser.set_defaults(**dict.fromkeys(_FOR_NEW_RUNS))  # None tells what is not given from what is
    add_device(parser)
    add_overwrite(parser)


def named_space(text: str) -> NamedSpace:
    """NAME=FILE, or a file that gives its own name."""
    found = _NAMED.fullmatch(text)
    place = space_name(found[2] if found else text)
    if found:
        return NamedSpace(found[1], place)
    if isinstance(place, Path):
        return NamedSpace(place.name.split(".")[0], place)
    raise argparse.ArgumentTypeError(f"{place}: a store has no name of its own; give NAME={place}")


def run(arguments: argparse.Namespace) -> int:
    """Read, unite, write, and print how it went."""
    from kedge.cli.output_files import require_free
    from kedge.runs.folder import check_target
    from kedge.spaces.writing.lock import FolderLock

    check_target(arguments.out, overwrite=True)
    require_free(arguments)
    with FolderLock(arguments.out):
        return _remove(arguments) if arguments.remove else _run(arguments)


def _remove(arguments: argparse.Namespace) -> int:
    """Remove members."""
    from kedge.errors import InputError
    from kedge.many.common_space import CommonSpace

    for option in ("add", "seeds", "limit", *_FOR_NEW_RUNS):
        if getattr(arguments, option) is not None:
            raise InputError(f"{_written(option)}: cannot be used with --remove; omit one of the two")
    began = time.perf_counter()
    common = CommonSpace.load(arguments.remove)
    for name, _ in arguments.spaces:
        common = common.without(name)
    common.save(arguments.out, overwrite=arguments.overwrite)
    _print(common, arguments, time.perf_counter() - began)
    return EXIT_NOT_PASSED if common.health_.map.verdict != "ok" and not arguments.ignore_verdict else 0


def _run(arguments: argparse.Namespace) -> int:
    from kedge.cli.find.provenance import describe_machine, read_described
    from kedge.cli.output import note
    from kedge.cli.progress import progress_bar
    from kedge.errors import InputError
    from kedge.many.common_space import CommonSpace
    from kedge.many.seed_tuples import read_seed_tuples
    from kedge.spaces import read_embeddings

    given = {name: getattr(arguments, name) for name in _FOR_NEW_RUNS if getattr(arguments, name) is not None}
    if arguments.add and given:
        raise InputError(
            f"{_written(next(iter(given)))}: cannot be used with --add, which goes by the settings that "
            f"{arguments.add} was made with; omit it, or unite all spaces anew"
        )
    began = time.perf_counter()
    spaces: dict[str, Embeddings] = {}
    described: dict[str, Any] = {}
    for name, place in arguments.spaces:
        if name in spaces:
            raise InputError(f"{place}: a space is called {name!r} already; give this one as NAME={place}")
        spaces[name], described[name] = read_described(place, partial(read_embeddings, place, limit=arguments.limit))
    if len(spaces) < 2:
        raise InputError(f"{arguments.spaces[0].place}: this is only one space; give at least two")
    seeds = None
    if arguments.seeds:
        seeds, described["seeds"] = read_described(arguments.seeds, lambda: read_seed_tuples(arguments.seeds, spaces))
    note(
        ", ".join(f"{name}: {len(space)} x {space.dim}" for name, space in spaces.items())
        + f", {0 if seeds is None else len(seeds) or 'no'} seeds"
    )
    with progress_bar() as on_step:
        options = {"on_step": on_step, "on_pair": _note_pair, "device": arguments.device}
        if arguments.add:
            common = CommonSpace.load(arguments.add).set_params(**options).add(spaces, seeds)
        else:
            common = CommonSpace(**given, **options).fit(spaces, seeds)
    seconds = time.perf_counter() - began
    extra = {
        "inputs": common.provenance_.get("inputs", {}) | described,
        "limit": arguments.limit,
        "timings": {"seconds": round(seconds, 3)},
        "machine": describe_machine(arguments.device),
    }
    common.save(arguments.out, overwrite=arguments.overwrite, extra=extra)
    _print(common, arguments, seconds)
    wrong = common.health_.map.verdict != "ok" or any(name in common.health_.left_out for name in spaces)
    return EXIT_NOT_PASSED if wrong and not arguments.ignore_verdict else 0


def _written(option: str) -> str:
    return "--" + option.replace("_", "-")


def _note_pair(first: str, second: str, verdict: str) -> None:
    from kedge.cli.output import note

    note(f"{first} and {second}: {verdict}")


def _print(common: CommonSpace, arguments: argparse.Namespace, seconds: float) -> None:
    """The result, for people or as JSON."""
    from kedge.cli.output import counted, print_answer, print_json, print_line, print_table, warn

    health = common.health_
    many, found = int(((common.groups_ >= 0).sum(axis=1) > 1).sum()), common.groups_found()
    if arguments.json:
        print_json(
            {
                "run": str(arguments.out),
                "members": list(common.members_),
                "health": health,
                "groups": many,
                "groups_found": int(found.sum()),
                "seconds": round(seconds, 2),
            }
        )
    else:
        for begin, answer in (("Map", health.map), ("Groups", health.pairs)):
            print_answer(f"{begin}: ", answer)
        print_table(
            ("pair", "map", "pairs", "recognised", "comes back", "how"),
            [
                (
                    f"{one.first}, {one.second}",
                    one.map.verdict,
                    one.pairs.verdict,
                    f"{one.recognised:.2f}",
                    "" if one.closure is None else f"{one.closure:.2f}",
                    one.how,
                )
                for one in health.each
            ],
        )
        known = f" besides {counted(many - int(found.sum()), 'known group')}" if many > found.sum() else ""
        print_line(f"{counted(int(found.sum()), 'group')} of two rows or more found{known}, in {arguments.out}")
        for number in found.nonzero()[0][:_GROUPS_SHOWN].tolist():
            keys, sure = common.group_keys_[number], common.group_probability_[number]
            print_line(f"  {' = '.join(str(key) for key in keys if key is not None)}  ({sure:.2f})")
    for name, reason in health.left_out.items():
        warn(f"{name} is left out: {reason}")
    if health.map.verdict != "ok":
        warn(f"the map is {health.map.verdict}: do not rely on it. {health.map.advice}")

"""`kedge audit`: does a store hold vectors of one model or of several?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import (
    FORMATS,
    add_command,
    add_limit,
    add_overwrite,
    add_random_state,
    add_spreadsheet_safe,
    space_name,
)
from kedge.cli.exit_codes import EXIT_NOT_PASSED

if TYPE_CHECKING:
    from kedge.tasks import Audit, Since

_SHOWN = 10


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "audit",
        run,
        "say whether vectors come from one model or several",
        "Say whether a store holds vectors of one model or of several, without anything to compare it with.",
        """  kedge audit chroma:DB#docs
  kedge audit chroma:DB#docs --since created -o foreign.tsv         since when, and which rows
  kedge audit chroma:DB#docs --repair RUN --to chroma:DB#repaired   translate them by RUN, into a new store
  kedge audit vectors.npz --json

At least 200 rows of 64 dimensions are needed. Of a large store a sample of 10,000 rows is looked at: a model with fewer
than some 40 rows in it is not found. A model of the same family is found if its vectors lie apart, a slightly
fine-tuned one is not: compare it with earlier vectors by `kedge drift`. Exit code 3 means several, or uncertain.
--repair never changes the source. RUN must translate vectors of the foreign model into the main one's (--back: RUN's Y
into its X), which is checked before anything is written.""",
    )
    parser.add_argument("store", metavar="STORE", type=space_name, help=f"store (see `kedge stores`), or {FORMATS}")
    parser.add_argument(
        "--since",
        metavar="FIELD",
        help="field of the payload that orders the rows, such as a date, to say since or until when",
    )
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, help="write the foreign rows as a table: .tsv")
    add_overwrite(parser)
    add_spreadsheet_safe(parser)
    parser.add_argument("--repair", metavar="RUN", type=Path, help="run that translates the foreign rows")
    parser.add_argument("--to", metavar="TARGET", type=space_name, help="new store or file for all rows, repaired")
    parser.add_argument(
        "--back", action="store_true", help="the foreign rows are vectors of RUN's Y, the others of its X"
    )
    add_random_state(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, look, print, and repair if that is asked for."""
    from kedge.cli.output_files import require_free
    from kedge.cli.watch.repair import repair
    from kedge.errors import InputError
    from kedge.spaces import write_table
    from kedge.spaces.writing.atomic import atomic_path, require_target
    from kedge.tasks import audit, since

    if (arguments.repair is None) != (arguments.to is None):
        raise InputError("--repair and --to belong together: the run that translates, and the new store to write to")
    if arguments.repair is not None and arguments.limit is not None:
        raise InputError("--limit is only for looking: --repair goes over all rows; omit it")
    if arguments.out:
        require_target(arguments.out)
        require_free(arguments)
    space, values = _read(arguments)
    found = audit(space, random_state=arguments.random_state)
    began = since(values, found.foreign) if values is not None else None
    if arguments.out:
        with atomic_path(arguments.out) as temporary:
            rows = (
                (str(space.keys[row]), str(number), f"{found.scores[row]:.1f}")
                for number, group in enumerate(found.groups[1:], start=1)
                for row in group.rows.tolist()
            )
            write_table(temporary, ("key", "group", "score"), rows, spreadsheet_safe=arguments.spreadsheet_safe)
    repaired = repair(arguments, found) if arguments.repair is not None else None
    _print(arguments, found, began, repaired)
    if repaired is not None and repaired["complete"]:
        return 0
    return 0 if found.verdict == "one model" else EXIT_NOT_PASSED


def _read(arguments: argparse.Namespace) -> tuple[Any, list[Any] | None]:
    """The space and, if asked for, the payload's field of each row."""
    from kedge.spaces import read_embeddings
    from kedge.spaces.stores.spaces import read_space_with_field

    if arguments.since is None:
        return read_embeddings(arguments.store, limit=arguments.limit), None
    return read_space_with_field(arguments.store, arguments.since, limit=arguments.limit)


def _print(arguments: argparse.Namespace, found: Audit, began: Since | None, repaired: dict[str, Any] | None) -> None:
    from kedge.cli.output import print_json, print_line

    groups = [
        {"rows": len(group.rows), "relation": group.relation, "likeness": group.likeness, "sure": group.sure}
        for group in found.groups
    ]
    if arguments.json:
        print_json(
            {
                "verdict": found.verdict,
                "reason": found.reason,
                "groups": groups,
                "foreign": [str(key) for key in found.foreign_keys],
                "since": None if began is None else began._asdict(),
                "repaired": repaired,
            }
        )
        return
    colour = {"one model": "green", "several models": "red", "uncertain": "yellow"}[found.verdict]
    print_line((found.verdict.upper(), f"bold {colour}"), f": {found.reason}")
    keys = found.foreign_keys
    if keys:
        more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        print_line(f"foreign rows: {', '.join(str(key) for key in keys[:_SHOWN])}{more}")
    if began is not None and keys:
        print_line(began.sentence(arguments.since))
    if arguments.out:
        print_line(f"{len(keys)} foreign rows in {arguments.out}")
    if repaired is not None:
        print_line(
            f"{repaired['translated']} rows translated, {repaired['kept']} kept, in {arguments.to}"
            + ("" if repaired["complete"] else "; NOT COMPLETE")
        )

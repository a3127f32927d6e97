"""`kedge drift`: two sets of vectors of the same items: is it still the same model?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import FORMATS, add_command, add_limit, add_overwrite, add_spreadsheet_safe, space_name
from kedge.cli.exit_codes import EXIT_NOT_PASSED

if TYPE_CHECKING:
    from kedge.tasks import Drift

_SHOWN = 10


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "drift",
        run,
        "say what changed between two sets of vectors",
        "Compare two sets of vectors that share ids: is it still the same model?",
        """  kedge drift january.npz today.npz
  kedge drift chroma:DB#docs today.npz --json           1,000 texts of the index, encoded again today
  kedge drift before.npz after.npz -o changed.tsv       the items that changed, the furthest first

Verdicts: same; same but for precision (rounded, quantised, binary); shortened (the first dimensions of the others);
shuffled (the same vectors, under other ids); rotated (all angles as before, other coordinates); fine-tuned (moved, most
directions kept); another model; mixed (some items changed, others not). Exit code 3 means anything but the first
two.""",
    )
    parser.add_argument("a", metavar="A", type=space_name, help=f"vectors as they were: {FORMATS}; or a store")
    parser.add_argument("b", metavar="B", type=space_name, help="vectors as they are now, in the same formats")
    parser.add_argument(
        "-o", "--out", metavar="FILE", type=Path, help="write the ids of changed items as a table: .tsv"
    )
    add_overwrite(parser)
    add_spreadsheet_safe(parser)
    add_limit(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print what changed."""
    from kedge.cli.output import print_line
    from kedge.cli.output_files import require_free
    from kedge.spaces import read_embeddings, write_table
    from kedge.spaces.writing.atomic import atomic_path, require_target
    from kedge.tasks import drift

    if arguments.out:
        require_target(arguments.out)
        require_free(arguments)
    a, b = (read_embeddings(path, limit=arguments.limit) for path in (arguments.a, arguments.b))
    found = drift(a, b)
    if arguments.out:
        with atomic_path(arguments.out) as temporary:
            rows = ((str(key),) for key in found.changed_keys)
            write_table(temporary, ("key",), rows, spreadsheet_safe=arguments.spreadsheet_safe)
    code = print_drift(found, as_json=arguments.json)
    if arguments.out and not arguments.json:
        print_line(f"{len(found.changed_keys)} changed items in {arguments.out}")
    return code


def print_drift(found: Drift, *, as_json: bool) -> int:
    """Print the verdict and the figures behind it; return the exit code."""
    from kedge.cli.output import print_json, print_line

    code = 0 if found.unchanged else EXIT_NOT_PASSED
    if as_json:
        print_json(found.as_dict())
        return code
    print_line((found.verdict.upper(), "bold green" if found.unchanged else "bold red"), f": {found.reason}")
    print_line(f"items in both: {found.common}, in A only: {found.only_a}, in B only: {found.only_b}")
    if found.cosine is not None:
        rotated = "" if found.rotation_cosine is None else f", after the best rotation {found.rotation_cosine:.4f}"
        print_line(
            f"cosine of an item with itself: mean {found.cosine:.4f}, lowest 1 % {found.cosine_low:.4f}{rotated}"
        )
    print_line(f"neighbours kept: {found.overlap:.1%}; correlation of all cosines: {found.pairwise:.4f}")
    if found.changed_keys:
        shown = ", ".join(str(key) for key in found.changed_keys[:_SHOWN])
        more = len(found.changed_keys) - _SHOWN
        print_line(f"changed: {shown}" + (f" and {more} more" if more > 0 else ""))
    return code

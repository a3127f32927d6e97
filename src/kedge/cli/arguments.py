"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kedge.spaces.stores import Address

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
PAIR_FORMATS = {"keys": "key", "rows": "row"}
"""What a pair file may hold, and what `read_pairs` calls it."""
FORMATS = ".vec .txt .bin (each also .gz), .npz, .npy, .safetensors, .parquet or .h5ad"


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], line: str, description: str, examples: str
) -> argparse.ArgumentParser:
    """Add the parser of a command that calls `run`; `line` describes it in the list of commands."""
    parser = _add_parser(commands, name, line, description, examples)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    return parser


def add_command_group(commands: Any, name: str, line: str, description: str, examples: str, kind: str) -> Any:
    """Add a command that comes in several kinds, which `add_command` adds to what this returns."""
    parser = _add_parser(commands, name, line, description, examples)
    return parser.add_subparsers(title=f"{kind}s", metavar=kind.upper(), required=True)


def _add_parser(commands: Any, name: str, line: str, description: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=line,
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_run(parser: argparse.ArgumentParser) -> None:
    """The run folder."""
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="folder written by `kedge discover`")


def add_spaces(parser: argparse.ArgumentParser) -> None:
    """The two spaces."""
    parser.add_argument(
        "x", metavar="X", type=space_name, help=f"source space: {FORMATS}; or a store (see `kedge stores`)"
    )
    parser.add_argument("y", metavar="Y", type=space_name, help="target space, in the same formats")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """How many rows to read."""
    parser.add_argument("--limit", type=positive, metavar="N", help="read only the first N rows of each file")


def add_rows_shown(parser: argparse.ArgumentParser) -> None:
    """How much a page shows."""
    parser.add_argument(
        "--rows", metavar="N", type=positive, default=20_000, help="draw at most N rows of each space (20000)"
    )


def add_device(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Where to compute."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (auto)")


def add_random_state(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """What random choices depend on."""
    parser.add_argument(
        "--random-state", metavar="N", type=seed_number, default=0, help="the same number gives the same result (0)"
    )


def add_output(parser: argparse.ArgumentParser, *, stores: bool = True) -> None:
    """The file to write, or a new store, and whether it may be replaced."""
    kind, more = (space_name, "; or a new store") if stores else (Path, "")
    parser.add_argument("-o", "--out", metavar="OUT", type=kind, required=True, help=f"file to write: {FORMATS}{more}")
    add_overwrite(parser)


class _SetIfGiven(argparse.Action):
    """Stores the name if one is given, and otherwise leaves what another option has set."""

    def __call__(self, _: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *__: Any) -> None:
        if value is not None:
            setattr(namespace, self.dest, value)


def add_target(parser: argparse.ArgumentParser, name: str, purpose: str) -> None:
    """The output of a command that takes it after its input, as `cp` does; -o names it too."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(name, metavar=name.upper(), type=space_name, nargs="?", action=_SetIfGiven, help=purpose)
    group.add_argument("-o", "--out", dest=name, metavar=name.upper(), type=space_name, help=f"same as {name.upper()}")


def add_overwrite(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Whether an existing output may be replaced, which `require_free` in `output_files.py` checks."""
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output, but never an input")


def add_table(parser: argparse.ArgumentParser) -> None:
    """The table to write, whether it may be replaced, and how it is written."""
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, required=True, help="table to write, tab-separated")
    add_overwrite(parser)
    add_spreadsheet_safe(parser)


def add_min_confidence(parser: argparse.ArgumentParser, listed: str = "pairs") -> None:
    """How probable what is listed must be."""
    parser.add_argument(
        "--min-confidence",
        metavar="P",
        type=probability,
        default=0.5,
        help=f"list only {listed} at least this probable (0.5)",
    )


def add_spreadsheet_safe(parser: argparse.ArgumentParser) -> None:
    """How a table for people is written."""
    parser.add_argument(
        "--spreadsheet-safe",
        action="store_true",
        help="put an apostrophe before what a spreadsheet would take for a formula; not for tables that kedge reads",
    )


def space_name(text: str) -> Path | Address:
    """The name of a file, or the address of a store."""
    from kedge.errors import InputError
    from kedge.spaces.stores.address import as_address, file_name, is_address

    try:
        return as_address(text) if is_address(text) else file_name(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def path_name(text: str) -> Path:
    """The name of a file or folder, not the address of a store."""
    from kedge.errors import InputError
    from kedge.spaces.stores.address import file_name

    try:
        return file_name(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def byte_count(text: str) -> int:
    """A number of bytes such as 500M or 2G."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", text.strip(), flags=re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a size such as 500M or 2G, got {text!r}")
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if size < 1:
        raise argparse.ArgumentTypeError(f"must be at least one byte, got {text!r}")
    return size


def probability(text: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return number


def whitening(text: str) -> float | Literal["auto"]:
    """A strength for `--whiten`: "auto", or a number from 0 to 1."""
    if text == "auto":
        return "auto"
    try:
        return probability(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"expected auto or a number from 0 to 1, got {text!r}") from error


def seed_number(text: str) -> int:
    """A number for `--random-state`."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**63 - 1, got {text!r}")
    return int(text)


def port_number(text: str) -> int:
    """A number for `--port`."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 65535, got {text!r}")
    return int(text)

"""Shell completion of commands, options and file names; shtab makes the script from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kedge.cli.arguments import space_name

_SHELLS = ("bash", "zsh", "fish")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """The option that prints the script."""
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=_SHELLS,
        help="print a script that completes commands, options and files in this shell, and exit",
    )


class _PrintCompletion(argparse.Action):
    """Print and exit, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> None:
        import shtab

        for action in _all_actions(parser):
            if action.type in (Path, space_name) or "FILE" in str(action.metavar):
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        print(shtab.complete(parser, values[1]))  # noqa: T201
        parser.exit()


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments and options of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_actions(command)

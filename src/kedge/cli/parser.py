"""The parser of the whole command line: all commands, by what they are for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from kedge import __version__
from kedge.cli.arguments import path_name
from kedge.cli.change_model import migrate, rehearse, stores, suggest
from kedge.cli.completion import add_completion
from kedge.cli.exit_codes import EXIT_CODES
from kedge.cli.files import convert, encode
from kedge.cli.find import check, demo, discover, reproduce, unite
from kedge.cli.look import compare, evaluate, explore, info, plot, report
from kedge.cli.main import fail
from kedge.cli.use import export, lexicon, match, pairs, project, search, serve, stitch, translate
from kedge.cli.watch import audit, canary, drift
from kedge.errors import did_you_mean

GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "find pairs and a map": (demo, check, discover, unite, reproduce),
    "look at a run": (report, explore, evaluate, compare, info, plot),
    "use a run": (search, lexicon, pairs, match, translate, project, stitch, export, serve),
    "change a model": (rehearse, suggest, migrate, stores),
    "watch an index": (drift, audit, canary),
    "make files of vectors": (encode, convert),
}
"""The commands under the headings of `kedge --help`; a module has the name of its command."""


class _Parser(argparse.ArgumentParser):
    """Reports its errors in one line, like all others."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("type", Path, path_name)  # for `type=Path`: a password is not a path, and never shown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices, and name the one that was probably meant."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        meant = did_you_mean(str(value), choices) or f"; choose from {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{meant}")

    def _match_arguments_partial(self, actions: Sequence[argparse.Action], arg_strings_pattern: str) -> list[int]:
        """Do not count an optional name as missing while one may still follow an option; later Pythons do this too."""
        counts: list[int] = super()._match_arguments_partial(actions, arg_strings_pattern)
        while counts and not counts[-1] and "A" in arg_strings_pattern[sum(counts) :]:
            counts.pop()
        return counts

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse unknown options; name the one that was probably meant, and the help of the command."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            meant = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        see = " See" if message.endswith("?") else "; see"
        sys.exit(fail(f"{message}{see} `{self.prog} --help`"))


class _GroupedHelp(argparse.RawDescriptionHelpFormatter):
    """Lists the commands under the headings of `GROUPS`."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        lines = {each.dest: each for each in action._get_subactions()}
        text = []
        for heading, modules in GROUPS.items():
            text.append(f"{' ' * self._current_indent}{heading}:\n")
            self._indent()
            text += [super(_GroupedHelp, self)._format_action(lines[_name(module)]) for module in modules]
            self._dedent()
        return "".join(text)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="kedge",
        description="Find the pairs between two embedding spaces, from a handful of known ones or none.",
        epilog=f"""examples:
  kedge demo                                           see it work on real words
  kedge discover x.vec y.npz --seeds seeds.tsv -o RUN  find anchors and pairs
  kedge check x.vec y.npz                              can it be done, and with how many seeds?
  kedge search RUN x.vec y.npz cat dog                 neighbours of X's words in Y
  kedge COMMAND --help                                 options and examples of one command

{EXIT_CODES}""",
        formatter_class=_GroupedHelp,
    )
    parser.add_argument("--version", action="version", version=f"kedge {__version__}")
    add_completion(parser)
    parser._positionals.title = "commands"  # above the options, where an added group would not be
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for modules in GROUPS.values():
        for module in modules:
            module.add_parser(commands)
    return parser


def _name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]

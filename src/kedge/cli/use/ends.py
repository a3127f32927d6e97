"""Which two spaces of a common space a command is about: `--from` and `--to`."""

from __future__ import annotations

import argparse


def add_ends(parser: argparse.ArgumentParser) -> None:
    """The two options."""
    parser.add_argument(
        "--from", dest="source", metavar="NAME", help="for a run by `kedge unite`: the space to start from"
    )
    parser.add_argument("--to", dest="target", metavar="NAME", help="for a run by `kedge unite`: the space to end in")


def required_ends(arguments: argparse.Namespace, to: str = "--to") -> tuple[str, str]:
    """Both names, which a run of many spaces needs; `to` is what the second option is called."""
    from kedge.errors import InputError

    if getattr(arguments, "back", False):
        raise InputError(
            f"--back: a run of many spaces has no X and Y; name them the other way round with --from and {to}"
        )
    if getattr(arguments, "kind", "text") != "text":
        raise InputError("--kind: a run of many spaces has one map for texts and queries; omit it")
    if arguments.source is None or arguments.target is None:
        raise InputError(
            f"{arguments.run_folder}: is a run of many spaces; name two of them with --from and {to} (`kedge info` "
            "lists them)"
        )
    return arguments.source, arguments.target


def refuse_ends(
    arguments: argparse.Namespace, source: str = "source", target: str = "target", to: str = "--to"
) -> None:
    """Refuse both names for a run of two spaces, which has none to choose from."""
    from kedge.errors import InputError

    for option, name in ((source, "--from"), (target, to)):
        if getattr(arguments, option) is not None:
            raise InputError(f"{name}: {arguments.run_folder} is a run of two spaces, from X to Y; omit it")

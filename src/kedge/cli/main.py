"""The `kedge` command: parse, run a verb, turn errors into one clear line and an exit code.

Exit codes: 0 done; 2 bad input, nothing written; 3 done, but not vouched for, or less than asked for; 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from kedge import __version__
from kedge.cli import (
    check,
    compare,
    convert,
    demo,
    discover,
    encode,
    evaluate,
    explore,
    export,
    info,
    migrate,
    plot,
    project,
    rehearse,
    report,
    reproduce,
    search,
    stitch,
    stores,
    suggest,
    translate,
)
from kedge.cli.arguments import path_name
from kedge.cli.completion import add_completion
from kedge.cli.escaping import shown
from kedge.cli.interruption import interrupted
from kedge.cli.sigbus import tell_of_sigbus
from kedge.errors import KedgeError, did_you_mean
from kedge.masking import mask

_VERBS = (
    demo,
    discover,
    check,
    report,
    explore,
    evaluate,
    compare,
    rehearse,
    suggest,
    search,
    translate,
    export,
    migrate,
    project,
    plot,
    stitch,
    encode,
    convert,
    info,
    stores,
    reproduce,
)

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like every other error."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.register("type", Path, path_name)  # what `type=Path` means: a password is no path, and shown nowhere

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of the choices, with the one that was probably meant."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        meant = did_you_mean(str(value), choices) or f"; choose from {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{meant}")

    def error(self, message: str) -> NoReturn:
        see = " See" if message.endswith("?") else "; see"
        sys.exit(_fail(f"{message}{see} `{self.prog} --help`"))


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="kedge",
        description="Find the pairs between two embedding spaces, from a handful of known ones or none.",
        epilog="""examples:
  kedge demo                                              see it work on real words
  kedge discover x.vec y.npz --seeds seeds.tsv --out RUN  find anchors and pairs
  kedge check x.vec y.npz                                 can it be done, and with how many seeds?
  kedge search RUN x.vec y.npz cat dog                    neighbours of X's words in Y
  kedge VERB --help                                       more about one verb""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kedge {__version__}")
    add_completion(parser)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=_Parser)
    for verb in _VERBS:
        verb.add_parser(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parsed = build_parser().parse_args(arguments)
    if _one_of_several() and not getattr(parsed, "divides_work", False):
        return _fail("only `discover` divides its work among processes; run this verb without torchrun")
    try:
        return _run(parsed)
    except BaseException as error:
        if not interrupted(error):
            raise
        print("kedge: interrupted; nothing half-written is left", file=sys.stderr)  # noqa: T201
        return EXIT_INTERRUPTED


def _run(parsed: argparse.Namespace) -> int:
    """Run the verb; what is wrong with the input or the machine becomes one line."""
    try:
        return int(parsed.run(parsed))
    except KedgeError as error:
        return _fail(str(error))
    except (MemoryError, RuntimeError) as error:
        # torch reports exhausted memory, of the machine or of a GPU, as a RuntimeError that says so.
        if isinstance(error, MemoryError) or "memory" in str(error):
            return _fail(
                "not enough memory; read fewer rows with --limit, or give a smaller --memory, where there is one"
            )
        raise
    except BrokenPipeError:  # the reader of stdout, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # What is written to files is named by who writes it, so that a full disk without a name is where stdout goes.
        named = error.filename or ("standard output" if error.errno in _DISK_IS_FULL else None)
        return _fail(f"{named}: {error.strerror}" if named else str(error))


def entry_point() -> NoReturn:
    """What the `kedge` script calls."""
    signal.signal(signal.SIGTERM, _stop)
    tell_of_sigbus()
    # Threads that wait for each other sleep. Spinning is no quicker, and where others use the same cores, much slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    code = main()
    if code == EXIT_INTERRUPTED or _one_of_several():
        # Python dies of the signal instead, whatever is returned, if it arrived inside an eval() of some import; and
        # gloo aborts when it is taken down after another process has died.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _one_of_several() -> bool:
    """Whether torchrun has started more than this process."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _stop(*_: object) -> NoReturn:
    """Asked to stop politely, clean up as on Ctrl-C, also where that is ignored, as in the background of a script."""
    raise KeyboardInterrupt


def _fail(message: str) -> int:
    print("kedge: error: " + shown(mask(" ".join(message.split()))), file=sys.stderr)  # noqa: T201
    return EXIT_BAD_INPUT

"""The `kedge` command: what surrounds every command, which is signals, errors in one clear line, and exit codes.

Little is imported up here: until `entry_point` begins, Python itself answers Ctrl-C, with a traceback.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys

from kedge.cli.exit_codes import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from kedge.cli.signals import (
    INTERRUPTED,
    answer_signals,
    exit_at_once,
    raise_interrupts,
    report_sigbus,
    was_interrupted,
)

TYPE_CHECKING = False  # not from typing, whose import is long enough to be interrupted
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import NoReturn

_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; signals are left as they are."""
    from kedge.cli.parser import build_parser

    parsed = build_parser().parse_args(arguments)
    try:
        return _run(parsed)
    except BaseException as error:
        if not was_interrupted(error):
            raise
        print(INTERRUPTED, file=sys.stderr)  # noqa: T201
        return EXIT_INTERRUPTED


def entry_point() -> NoReturn:
    """What the `kedge` script calls: `main`, with signals handled from beginning to end."""
    answer_signals(exit_at_once)
    atexit.register(answer_signals, signal.SIG_IGN)  # called last: a signal after it would kill Python
    from kedge.cli.parser import build_parser

    report_sigbus()
    parsed = build_parser().parse_args()
    try:
        raise_interrupts()
        code = _run(parsed)
        answer_signals(lambda *_: os._exit(code))  # the work is done, but Python takes a moment to exit
    except BaseException as error:
        answer_signals(exit_at_once)
        if not was_interrupted(error):
            raise
        # Not sys.exit: if the signal arrived inside an eval(), Python dies of it whatever the exit code.
        exit_at_once()
    sys.exit(code)


def _run(parsed: argparse.Namespace) -> int:
    """Run the command; an error in the input or of the machine becomes one line."""
    from kedge.errors import KedgeError

    try:
        code = int(parsed.run(parsed))
        sys.stdout.flush()
        return code
    except KedgeError as error:
        return fail(f"{error}{_beyond_limit(error, parsed)}")
    except (MemoryError, RuntimeError) as error:
        # torch reports exhausted memory, of the machine or of a GPU, as a RuntimeError that says so.
        if isinstance(error, MemoryError) or "memory" in str(error):
            return fail(
                "not enough memory; read fewer rows with --limit, or give a smaller --memory if the command has it"
            )
        raise
    except BrokenPipeError:  # the reader of stdout, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # Errors of writing a file name it, so a full disk without a name is the one that stdout goes to.
        named = error.filename or ("standard output" if error.errno in _DISK_IS_FULL else None)
        return fail(f"{named}: {error.strerror}" if named else str(error))


def _beyond_limit(error: Exception, parsed: argparse.Namespace) -> str:
    """The hint for unknown keys that the file may have, but not among the rows that --limit leaves."""
    from kedge.errors import KedgeError, UnknownKeyError

    limit = getattr(parsed, "limit", None)
    if limit is None:
        return ""
    from kedge.spaces import read_embeddings
    from kedge.spaces.pairs import NoKnownPairError

    if isinstance(error, NoKnownPairError):
        return f" Or are they beyond --limit {limit}?"
    if not isinstance(error, UnknownKeyError):
        return ""

    for given in vars(parsed).values():
        if str(given) == error.source:
            try:
                read_embeddings(given, keys={error.key})
            except (KedgeError, OSError):
                return ""
            return f"; the file has it, but not among its first {limit} rows: raise --limit, or omit it"
    return ""


def fail(message: str) -> int:
    """Print one line on stderr, and return the exit code for it."""
    from kedge.cli.escaping import shown
    from kedge.masking import mask

    print("kedge: error: " + shown(mask(" ".join(message.split()))), file=sys.stderr)  # noqa: T201
    return EXIT_BAD_INPUT

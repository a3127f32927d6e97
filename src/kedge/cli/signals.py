"""What signals do: print one line and exit with a code, never with a traceback or in silence.

Ctrl-C and SIGTERM: while kedge is loading there is nothing to clean up, and the process ends at once. While a command
runs, they become a `KeyboardInterrupt`; inside an import that waits until the import is over, because modules that are
being loaded wrap, swallow or print what is raised in them.

SIGBUS: a memory-mapped file was shortened while in use.
"""

from __future__ import annotations

import os
import signal
import sys

from kedge.cli.exit_codes import EXIT_BAD_INPUT, EXIT_INTERRUPTED

TYPE_CHECKING = False  # not from typing, whose import is long enough to be interrupted
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn

INTERRUPTED = "kedge: interrupted; nothing half-written is left"

_IMPORTING = "<frozen importlib._bootstrap>"
_WAIT_SECONDS = 0.02
# Kept alive as long as the process: C does not count references.
_KEPT: list[object] = []


def answer_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """Let Ctrl-C and SIGTERM call `handler` from now on; not Ctrl-C if it is ignored, as in a background job."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)  # stop waiting for the end of an import
    signal.signal(signal.SIGTERM, handler)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handler)


def exit_at_once(*_: object) -> NoReturn:
    """The handler while there is nothing to clean up."""
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def raise_interrupts() -> None:
    """Let Ctrl-C and SIGTERM raise `KeyboardInterrupt` from now on; one inside an import waits for its end."""
    if not hasattr(signal, "setitimer"):  # Windows
        answer_signals(_raise)
        return
    waiting = False

    def arrive(_: int, frame: FrameType | None) -> None:
        if waiting or not _is_importing(frame):
            raise KeyboardInterrupt
        wait()

    def wait() -> None:
        nonlocal waiting
        waiting = True
        signal.setitimer(signal.ITIMER_REAL, _WAIT_SECONDS)

    def try_again(_: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if _is_importing(frame):
            wait()
            return
        waiting = False
        raise KeyboardInterrupt

    def catch_unraisable(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):  # raised in a finaliser, where Python can only print it
            wait()
        else:
            sys.__unraisablehook__(unraisable)

    signal.signal(signal.SIGALRM, try_again)
    sys.unraisablehook = catch_unraisable
    answer_signals(arrive)


def report_sigbus() -> None:
    """Let SIGBUS end the process with one line and exit code 2 from now on.

    A handler set by Python's `signal` would never run: the failed instruction would be retried before it, for ever.
    One that C calls runs at once, and must not return.
    """
    if hasattr(signal, "SIGBUS"):
        import ctypes

        _KEPT.append(handler := ctypes.CFUNCTYPE(None, ctypes.c_int)(_exit_by_sigbus))
        ctypes.CDLL(None).signal(signal.SIGBUS, handler)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an interruption ended the work, even if it was turned into another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _raise(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != _IMPORTING:
        frame = frame.f_back
    return frame is not None


def _exit_by_sigbus(_: int) -> NoReturn:
    from kedge.cli.escaping import shown
    from kedge.spaces.mapped_files import shrunken_files  # loaded by whoever has mapped a file

    names = ", ".join(shown(str(path)) for path in shrunken_files())
    what = f"{names}: became shorter while it was being used" if names else "a memory-mapped file could not be read"
    advice = "write files under another name and rename them, and run this again"
    os.write(2, f"kedge: error: {what}; {advice}\n".encode(errors="replace"))
    os._exit(EXIT_BAD_INPUT)

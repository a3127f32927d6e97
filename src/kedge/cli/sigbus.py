"""Say what happened when a memory-mapped file becomes shorter while it is used, instead of ending in silence."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import NoReturn

from kedge.cli.escaping import shown

_EXIT_BAD_INPUT = 2


def tell_of_sigbus() -> None:
    """From now on SIGBUS ends the process with a line and exit code 2.

    A handler by Python's `signal` would never run: the instruction that failed would be tried again before it, for
    ever. One that C calls runs at once, and must not return.
    """
    if hasattr(signal, "SIGBUS"):
        ctypes.CDLL(None).signal(signal.SIGBUS, _HANDLER)


def _tell(_: int) -> NoReturn:
    from kedge.spaces.mapped_files import shrunken_files  # loaded by whoever has mapped a file

    names = ", ".join(shown(str(path)) for path in shrunken_files())
    what = f"{names}: became shorter while it was being used" if names else "a memory-mapped file could not be read"
    advice = "write files under another name and rename them, and run this again"
    os.write(2, f"kedge: error: {what}; {advice}\n".encode(errors="replace"))
    os._exit(_EXIT_BAD_INPUT)


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)(_tell)  # kept for as long as the process: C does not count references

"""Telling an interruption from a failure."""

from __future__ import annotations


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C, or a polite request to stop, is what ended the work.

    It arrives between any two instructions; where that is inside the body of a class, as while a library is imported,
    Python wraps it in an error of its own.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None

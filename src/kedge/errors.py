"""The exceptions kedge raises on purpose; anything else that escapes is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from itertools import islice

from kedge.masking import mask

# Limits on the number of names compared and on the length of the word, so that the cost is bounded for any input.
_MAX_NAMES = 50_000
_MAX_LETTERS = 64


class KedgeError(Exception):
    """Base class of all errors kedge raises on purpose; secrets in its message are masked."""

    def __str__(self) -> str:
        return mask(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class InputError(KedgeError, ValueError):
    """An argument or a file is invalid; the message names it, the rule, what was received and what to do."""


class UnknownKeyError(InputError):
    """An argument or a file names a `key` that the space read from `source` does not have."""

    def __init__(self, message: str, key: str, source: str) -> None:
        super().__init__(message)
        self.key, self.source = key, source


class OutputError(KedgeError, OSError):
    """Something cannot be written, for example to a full disk: `filename` says what, `strerror` why."""

    def __str__(self) -> str:
        return mask(f"{self.filename}: could not be written ({self.strerror}); nothing half-written is left")


class NotFittedError(KedgeError, AttributeError):
    """A learned attribute was asked for before `fit`."""


class MissingExtraError(KedgeError, ImportError):
    """A format or feature needs an optional package that is not installed, or that cannot be imported."""


def did_you_mean(word: str, known: Collection[object]) -> str:
    """The end of a message about an unknown word: `; did you mean 'cat'?`, or nothing if no known word is close."""
    tidied = word.strip()
    variants = (tidied, tidied.lower(), tidied.capitalize(), tidied.upper())
    close = [variant for variant in variants if variant in known]
    if not close and len(tidied) <= _MAX_LETTERS:
        names = (name for name in islice(known, _MAX_NAMES) if isinstance(name, str))
        close = difflib.get_close_matches(tidied, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

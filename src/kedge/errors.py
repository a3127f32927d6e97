"""The exceptions kedge raises on purpose; anything else that escapes is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from itertools import islice

from kedge.masking import mask

# Of more names than this the first are compared, and of longer words none: the cost is bounded, whatever is asked for.
_MOST_NAMES = 50_000
_LONGEST_WORD = 64


class KedgeError(Exception):
    """Base of every error kedge raises on purpose; as text it shows no password, whatever it quotes."""

    def __str__(self) -> str:
        return mask(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class InputError(KedgeError, ValueError):
    """An argument or a file breaks a rule; the message names it, the rule, what came and what to do."""


class OutputError(KedgeError, OSError):
    """Something cannot be written, as where a disk is full: `filename` says what, `strerror` why."""

    def __str__(self) -> str:
        return mask(f"{self.filename}: could not be written ({self.strerror}); nothing half-written is left")


class NotFittedError(KedgeError, AttributeError):
    """A learned attribute was asked for before `fit`."""


class MissingExtraError(KedgeError, ImportError):
    """A format or feature needs an optional package that is not installed, or that cannot be imported."""


def did_you_mean(word: str, known: Collection[object]) -> str:
    """What a message adds about an unknown word: `; did you mean 'cat'?`, or nothing where no known one is near."""
    tidied = word.strip()
    variants = (tidied, tidied.lower(), tidied.capitalize(), tidied.upper())
    near = [variant for variant in variants if variant in known]
    if not near and len(tidied) <= _LONGEST_WORD:
        names = (name for name in islice(known, _MOST_NAMES) if isinstance(name, str))
        near = difflib.get_close_matches(tidied, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

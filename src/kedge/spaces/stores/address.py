"""Addresses: one line of text that names a store. They are parsed only here.

The form is KIND:PLACE#NAME. PLACE is a folder, a file or a URL; NAME is a collection, a table, a table and its column,
or the columns of a folder of Parquet files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard
from urllib.parse import unquote

from kedge.errors import InputError, did_you_mean
from kedge.masking import MASK, mask, secrets_in

KINDS = ("chroma", "lancedb", "qdrant", "qdrant-edge", "pgvector", "sqlite-vec", "faiss", "parquet")
_NAMELESS = ("qdrant-edge", "faiss")
_NAME_OPTIONAL = (*_NAMELESS, "parquet")
_CHROMA_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")
# Keys sent in HTTP headers: a client's error quotes one that is not valid there. (PGPASSWORD is never quoted.)
_IN_ENVIRONMENT = ("QDRANT_API_KEY", "CHROMA_TOKEN")


@dataclass(frozen=True)
class Address:
    """Where a store is. `str` masks passwords; `place` contains them.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    place : str
        A folder, a file or a URL.
    name : str
        The collection, table, table and column, or columns; empty if the place says it all.
    """

    kind: str
    place: str = field(repr=False)
    name: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse an address; raises `InputError` if it is not valid."""
        kind, _, rest = text.partition(":")
        place, _, name = rest.rpartition("#") if "#" in rest else (rest, "", "")
        address = cls(kind, place, name)
        form = f"{kind}:PLACE" if kind in _NAME_OPTIONAL else f"{kind}:PLACE#NAME"
        if kind not in KINDS:
            raise InputError(f"{address}: no such kind of store; known are {', '.join(KINDS)}")
        if not place or (not name and kind not in _NAME_OPTIONAL):
            raise InputError(f"{address}: an address of this kind has the form {form}; see `kedge stores`")
        if name and kind in _NAMELESS:
            raise InputError(f"{address}: an address of this kind has the form {form}, without a name after #")
        if address._is_ambiguous:
            raise InputError(
                f"{address}: it is unclear where the password ends; in it write @ as %40, # as %23, / as %2F and ? as "
                "%3F, or leave it to the environment, see `kedge stores --help`"
            )
        if kind == "chroma" and not _CHROMA_NAME.fullmatch(name):  # Chroma says so too, but makes a folder before that
            raise InputError(
                f"{address}: a name in Chroma has 3 to 512 letters a-z and A-Z, digits, dots, hyphens and underscores, "
                "and begins and ends with a letter or digit"
            )
        return address

    @classmethod
    def of_file(cls, path: Path) -> Address:
        """The address of a plain file; as text it is the path."""
        return cls("", str(path), "")

    @property
    def is_url(self) -> bool:
        """Whether the place is a URL."""
        return "://" in self.place

    def __str__(self) -> str:
        return mask(self._text, whole=True)

    @property
    def _text(self) -> str:
        kind, name = f"{self.kind}:" if self.kind else "", f"#{self.name}" if self.name else ""
        return f"{kind}{self.place}{name}"

    @property
    def _is_ambiguous(self) -> bool:
        """Whether the name may be the end of a password, or a client may mistake part of a password for the host."""
        login = self.place.partition("://")[2].rpartition("@")[0]
        return not str(self).endswith(f"#{self.name}" if self.name else "") or any(
            mark in login.partition(":")[2] for mark in "@#/?"
        )

    def hide(self, text: str) -> str:
        """Mask the secrets of this address in a text, such as an error message of a client."""
        found = secrets_in(self._text)
        keys = {os.environ[name] for name in _IN_ENVIRONMENT if os.environ.get(name)}
        hidden = found | {unquote(secret) for secret in found} | keys | {repr(key)[1:-1] for key in keys}
        for secret in sorted(hidden, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return mask(text)


def is_address(text: object) -> TypeGuard[str | Address]:
    """Whether this is the address of a store rather than the name of a file."""
    return isinstance(text, Address) or (isinstance(text, str) and ":" in text and text.partition(":")[0] in KINDS)


def as_address(text: str | Address) -> Address:
    """Parse an address given as text."""
    return text if isinstance(text, Address) else Address.parse(text)


def file_name(text: str) -> Path:
    """Convert a text to a path; raises `InputError` if it looks like an address, or like part of one.

    This way no text with a password goes on to be shown or written somewhere.
    """
    shown = mask(text, whole=True)
    if os.path.exists(text):  # noqa: PTH110 - Path.exists may raise if the text is too long
        return Path(text)
    if is_address(text):
        raise InputError(
            f"{shown}: is the address of a store, but a file or folder is needed here; write ./ before its name"
        )
    if "://" in text or shown != text:
        meant = did_you_mean(text.partition(":")[0], KINDS)
        raise InputError(
            f"{shown}: looks like an address, but begins with none of {', '.join(f'{kind}:' for kind in KINDS)}"
            f"{meant or '; see `kedge stores`'}"
        )
    return Path(text)

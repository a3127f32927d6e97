"""Addresses: one line of text that names a store, parsed here and nowhere else.

KIND:PLACE#NAME, where PLACE is a folder, a file or a URL, and NAME a collection, a table, a table and its column, or
the columns of a folder of Parquet files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard
from urllib.parse import unquote

from kedge.errors import InputError

KINDS = ("chroma", "lancedb", "qdrant", "qdrant-edge", "pgvector", "sqlite-vec", "faiss", "parquet")
_NAMELESS = ("qdrant-edge", "faiss")
_NAME_OPTIONAL = (*_NAMELESS, "parquet")
# What stands between the user and the last @, and options of such names. Not `urlsplit`, which gives up on odd ports.
_SECRETS = (
    re.compile(r"(://[^/?#@:]*:)(.+)(?=@)"),
    re.compile(r"((?:^|[?&\s])\w*(?:pass(?:word)?|token|secret|api_?key)=)([^&\s]+)", re.IGNORECASE),
)
_MASK = "***"


@dataclass(frozen=True)
class Address:
    """Where a store is. As text it shows no password; `place` has it.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    place : str
        A folder, a file or a URL.
    name : str
        The collection, table, table and column, or columns; empty where the place is all there is to say.
    """

    kind: str
    place: str = field(repr=False)
    name: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; what is wrong with it is an `InputError`."""
        kind, _, rest = text.partition(":")
        place, _, name = rest.rpartition("#") if "#" in rest else (rest, "", "")
        address = cls(kind, place, name)
        form = f"{kind}:PLACE" if kind in _NAME_OPTIONAL else f"{kind}:PLACE#NAME"
        if kind not in KINDS:
            raise InputError(f"{address}: no such kind of store; known are {', '.join(KINDS)}")
        if not place or (not name and kind not in _NAME_OPTIONAL):
            raise InputError(f"{address}: an address of this kind reads {form}; see `kedge stores`")
        if name and kind in _NAMELESS:
            raise InputError(f"{address}: an address of this kind reads {form}, without a name after #")
        return address

    @classmethod
    def of_file(cls, path: Path) -> Address:
        """The address of a plain file, which reads like its path."""
        return cls("", str(path), "")

    @property
    def is_url(self) -> bool:
        """Whether the store is somewhere behind a URL."""
        return "://" in self.place

    def __str__(self) -> str:
        kind, name, place = f"{self.kind}:" if self.kind else "", f"#{self.name}" if self.name else "", self.place
        for pattern in _SECRETS:
            place = pattern.sub(rf"\1{_MASK}", place)
        return f"{kind}{place}{name}"

    def hide(self, text: str) -> str:
        """The text, such as the message of a client, without the secrets of this address."""
        found = {match[2] for pattern in _SECRETS for match in pattern.finditer(self.place)}
        for secret in sorted(found | set(map(unquote, found)), key=len, reverse=True):
            text = text.replace(secret, _MASK)
        return text


def is_address(text: object) -> TypeGuard[str | Address]:
    """Whether this is meant as the address of a store, not as the name of a file."""
    return isinstance(text, Address) or (isinstance(text, str) and ":" in text and text.partition(":")[0] in KINDS)


def as_address(text: str | Address) -> Address:
    """The address that a text is."""
    return text if isinstance(text, Address) else Address.parse(text)

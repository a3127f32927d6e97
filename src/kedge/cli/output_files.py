"""Files that commands write: whether they may, checked before any work; and how new vectors are written."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kedge.spaces import Embeddings
    from kedge.spaces.stores import Address

# Kinds of stores of which one place holds several, by name.
_HOLD_SEVERAL = ("chroma", "lancedb", "qdrant", "pgvector", "sqlite-vec")
# What kedge and SQLite keep beside a file, under its name and this.
_BESIDE = (".kedge.json", "-journal", "-shm", "-wal")


def require_free(arguments: argparse.Namespace, option: str = "out", *, allowed_by: str = "overwrite") -> None:
    """Refuse an output that already exists, unless it may be replaced, and in any case one that is also an input.

    `allowed_by` is the option that allows replacing it. Every other argument that names a file counts as an input.
    A store is never replaced.
    """
    from kedge.errors import InputError
    from kedge.spaces.files import files_written
    from kedge.spaces.stores import Address, open_store
    from kedge.spaces.writing.staging import clear_leftovers

    out = getattr(arguments, option)
    if isinstance(out, Address):
        with open_store(out) as store:
            if store.exists():
                raise InputError(f"{out}: already exists; choose another name, or delete it with its own client")
        return
    clear_leftovers(out.absolute().parent)
    read = [path for name, value in vars(arguments).items() if name != option for path in _files_read(value)]
    for path in filter(_holds_something, files_written(out)):
        if any(_shared(path, other) for other in read):
            raise InputError(f"{path}: is also read here, and is not overwritten; choose another name")
        if not getattr(arguments, allowed_by):
            raise InputError(f"{path}: already exists; choose another name, or replace it with --{allowed_by}")


def require_free_space(arguments: argparse.Namespace) -> None:
    """Like `require_free`, for an output of vectors, whose suffix must also name a format."""
    from kedge.spaces.files import require_writable

    if isinstance(arguments.out, Path):
        require_writable(arguments.out)
    require_free(arguments)


def require_apart(inputs: Sequence[Path | Address], outputs: Sequence[Path | Address | None]) -> None:
    """Refuse an output that would replace or spoil an input or an earlier output, before any work.

    `require_free` compares files that exist. Here they need not exist yet, and a store is all the files that it keeps.
    """
    from kedge.errors import InputError

    given = [out for out in outputs if out is not None]
    for number, out in enumerate(given):
        for other in inputs:
            if _spoils(out, other):
                raise InputError(f"{out}: is also read here, and is not overwritten; choose another name")
        for other in given[:number]:
            if _spoils(out, other):
                raise InputError(f"{out}: is also written here, for {other}; choose another name")


def _spoils(out: Path | Address, other: Path | Address) -> bool:
    """Whether writing one place would replace or spoil the other."""
    from kedge.spaces.stores import Address

    mine, others = _files_of(out), _files_of(other)
    if isinstance(out, Address) and isinstance(other, Address) and {out.kind, other.kind} <= set(_HOLD_SEVERAL):
        there = out.place == other.place if out.is_url else mine == others
        return there and (out.kind, out.name) == (other.kind, other.name)
    if mine & others:
        return True
    if isinstance(out, Address):  # a folder of Parquet files is replaced as a whole
        return out.kind == "parquet" and any(path.is_relative_to(folder) for path in others for folder in mine)
    inside = isinstance(other, Address) and any(path.is_relative_to(folder) for path in mine for folder in others)
    return inside and (out.exists() or out.suffix.lower() in (".parquet", ".json"))


def _files_of(place: Path | Address) -> set[Path]:
    """The files that are kept under a name, whether they exist or not, or the folder of a store."""
    from kedge.spaces.files import files_written, split_name
    from kedge.spaces.formats.npy import key_file

    if isinstance(place, Path):
        path = split_name(place)[0]
        found = files_written(path)
    elif place.is_url:
        return set()
    else:
        path = Path(place.place)
        found = [path, key_file(path)] if place.kind == "faiss" else [path]
    beside = [Path(f"{path}{end}") for end in _BESIDE]
    return {Path(os.path.realpath(each)) for each in (*found, *beside)}  # raises nothing, even for circular links


def _holds_something(path: Path) -> bool:
    """Whether replacing it would lose anything; an empty folder holds nothing."""
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _files_read(value: object) -> Iterator[Path]:
    """The files and run folders that an argument names, if it names any."""
    from kedge.spaces.files import files_read
    from kedge.spaces.formats.npy import key_file
    from kedge.spaces.stores import Address

    if isinstance(value, list | tuple):
        for each in value:
            yield from _files_read(each)
        return
    if isinstance(value, Address):
        named = [Path(value.place), key_file(Path(value.place))]
    elif isinstance(value, str | Path) and str(value) not in ("", "."):
        named = files_read(Path(value))
    else:
        return
    for path in named:
        if os.path.isfile(path) or os.path.isfile(path / "run.json"):  # noqa: PTH113 - any text may be too long for a name
            yield path


def _shared(one: Path, other: Path) -> bool:
    """Whether two paths that exist are the same, or one is inside the other."""
    first, second = one.resolve(), other.resolve()
    return first.is_relative_to(second) or second.is_relative_to(first) or first.samefile(second)


def write_derived(arguments: argparse.Namespace, space: Embeddings, vectors: NDArray[np.float32], what: str) -> int:
    """Write new vectors (n, d) under the keys of `space` to `--out`, and print what was written."""
    from kedge.cli.output import print_json, print_line
    from kedge.spaces import Embeddings, write_embeddings

    write_embeddings(Embeddings(space.keys, vectors, what), arguments.out)
    if arguments.json:
        print_json({"out": str(arguments.out), "rows": len(vectors), "dimensions": vectors.shape[1]})
    else:
        print_line(f"{what}: {len(vectors)} x {vectors.shape[1]} in {arguments.out}")
    return 0

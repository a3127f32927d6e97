"""Files that commands write: whether they may, checked before any work; and how new vectors are written."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


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

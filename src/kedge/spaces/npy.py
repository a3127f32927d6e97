"""A plain NumPy matrix `NAME.npy`, memory-mapped, with its keys in `NAME.keys.txt`, one a line.

Without a key file the row numbers "0", "1", ... are the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.selection import Selection


def key_file(path: Path) -> Path:
    """Where the keys of `path` live."""
    return path.with_suffix(".keys.txt")


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[Any]]:
    """Keys and the memory-mapped matrix (n, d)."""
    vectors = np.lib.format.open_memmap(path, mode="r")
    if vectors.ndim != 2:
        raise InputError(f"{path}: a matrix (rows, dimensions) is needed, got shape {vectors.shape}")
    keys = read_keys(path, len(vectors))
    if selection.everything:
        return keys, vectors
    rows = selection.rows(keys)
    if rows == list(range(len(rows))):  # a plain head stays memory-mapped
        return keys[: len(rows)], vectors[: len(rows)]
    return [keys[row] for row in rows], vectors[rows]


def read_keys(path: Path, count: int) -> list[str]:
    """The `count` keys that belong to the matrix in `path`."""
    names = key_file(path)
    if not names.exists():
        return [str(row) for row in range(count)]
    try:
        keys = names.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{names}: not valid UTF-8 ({error})") from error
    if not keys[-1]:
        keys.pop()
    if all(key.endswith("\r") for key in keys):  # written on Windows
        keys = [key[:-1] for key in keys]
    if len(keys) != count:
        raise InputError(f"{names}: one key a line is needed for the {count} rows of {path.name}, got {len(keys)} keys")
    return keys


def write(path: Path, keys_path: Path, space: Embeddings) -> None:
    """Write the matrix to `path` and the keys to `keys_path`."""
    write_keys(keys_path, space.keys)
    with path.open("wb") as stream:
        np.save(stream, space.vectors.astype(np.float32, copy=False))


def write_keys(path: Path, keys: Sequence[str]) -> None:
    """Write keys, one a line."""
    for key in keys:
        if "\n" in key or "\r" in key or not key:
            raise InputError(
                f"{path}: the key {key!r} is empty or holds a line break, which a key file cannot store; "
                "write .npz, .safetensors or .parquet instead"
            )
    path.write_text("".join(f"{key}\n" for key in keys), encoding="utf-8", newline="\n")

"""A plain NumPy matrix `NAME.npy`, memory-mapped, with its keys in `NAME.keys.txt`, one per line.

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
from kedge.spaces.mapped_files import remember_size
from kedge.spaces.selection import Selection
from kedge.spaces.streams import numbered_lines, require_regular_file


def key_file(path: Path) -> Path:
    """The key file of the matrix in `path`."""
    return path.with_suffix(".keys.txt")


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[Any]]:
    """Read keys and the memory-mapped matrix (n, d)."""
    vectors = np.lib.format.open_memmap(path, mode="r")
    if vectors.ndim != 2:
        raise InputError(f"{path}: a matrix (rows, dimensions) is needed, got shape {vectors.shape}")
    remember_size(path)
    keys, rows = read_chosen_keys(path, vectors.shape, selection)
    return keys, vectors[rows]


def read_keys(path: Path, count: int) -> list[str]:
    """Read the keys of the matrix in `path`, which has `count` rows."""
    return read_chosen_keys(path, (count, 1), Selection())[0]


def read_chosen_keys(path: Path, shape: tuple[int, ...], selection: Selection) -> tuple[list[str], slice | list[int]]:
    """Read the wanted keys of a matrix (n, d), and their rows: a slice, which keeps the memory map, if they come first.

    Unwanted keys are never created. A matrix without dimensions is refused: it takes no space in its file, however many
    rows it claims.
    """
    count = shape[0]
    if 0 in shape:
        raise InputError(f"{path}: the space is empty (shape {tuple(shape)}); give at least one row and dimension")
    if key_file(path).exists():
        keys, rows = _read_from_key_file(path, count, selection)
    elif selection.keys is None:
        return [str(row) for row in range(selection.max_rows(count))], slice(selection.max_rows(count))
    else:
        rows = sorted(row for row in map(_row_number, selection.keys) if 0 <= row < count)[: selection.limit]
        keys = [str(row) for row in rows]
    return keys, slice(len(rows)) if rows == list(range(len(rows))) else rows


def _read_from_key_file(path: Path, count: int, selection: Selection) -> tuple[list[str], list[int]]:
    names = key_file(path)
    require_regular_file(names)
    lines, from_windows = _survey(names)
    if lines != count:
        raise InputError(f"{names}: one key per line is needed for the {count} rows of {path.name}, got {lines} keys")
    keys: list[str] = []
    rows: list[int] = []
    with names.open("rb") as stream:
        for number, line in numbered_lines(names, stream):
            if selection.full(len(keys)):
                break
            try:
                key = line.removesuffix(b"\n").decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"{names}, line {number}: not valid UTF-8 ({error})") from error
            key = key.removesuffix("\r") if from_windows else key
            if selection.wants(key):
                keys.append(key)
                rows.append(number - 1)
    return keys, rows


def _survey(path: Path) -> tuple[int, bool]:
    """How many lines a file has, and whether all line breaks are those of Windows."""
    ends = windows_ends = 0
    last = b""
    with path.open("rb") as stream:
        while block := stream.read(2**20):
            ends += block.count(b"\n")
            windows_ends += (last + block).count(b"\r\n")
            last = block[-1:]
    return ends + (last not in (b"", b"\n")), 0 < ends == windows_ends


def _row_number(key: str) -> int:
    """The row number that a key spells, or -1."""
    is_number = key.isascii() and key.isdigit() and len(key) < 19
    return int(key) if is_number and str(int(key)) == key else -1


def write(path: Path, keys_path: Path, space: Embeddings) -> None:
    """Write the matrix to `path` and the keys to `keys_path`."""
    write_keys(keys_path, space.keys)
    write_matrix(path, space.vectors)


def write_matrix(path: Path, vectors: NDArray[Any]) -> None:
    """Write a matrix (n, d) as float32; not by `np.save`, whose error does not say that a disk is full."""
    matrix = np.ascontiguousarray(vectors, dtype=np.float32)
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(matrix))
        stream.write(matrix.data)


def key_fault(key: str) -> str | None:
    """Why a key file cannot store a key; None if it can."""
    if "\n" in key or "\r" in key or not key:
        return "has an id that is empty or holds a line break, which a key file cannot store"
    return None


def write_keys(path: Path, keys: Sequence[str]) -> None:
    """Write keys, one per line."""
    for key in keys:
        if key_fault(key):
            raise InputError(
                f"{path.name}: the key {key!r} is empty or holds a line break, which a key file cannot store; "
                "write .npz, .safetensors or .parquet instead"
            )
    path.write_text("".join(f"{key}\n" for key in keys), encoding="utf-8", newline="\n")

"""word2vec binary: `rows dimensions` as text, then for each row the key, a space and float32 numbers."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.formats.word2vec_text import MAX_DIM, refuse_whitespace
from kedge.spaces.selection import Selection
from kedge.spaces.streams import open_binary, require_room_for

_MAX_HEADER_BYTES = 100
_MAX_KEY_BYTES = 10_000


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[np.float32]]:
    """Read keys and vectors (n, d) of a binary file, row by row."""
    with open_binary(path, "rb") as stream:
        declared_rows, dim = _read_header(path, stream)
        require_room_for(4 * dim * selection.max_rows(declared_rows), path)
        keys: list[str] = []
        numbers = bytearray()
        for row in range(declared_rows):
            if selection.full(len(keys)):
                break
            key = _read_key(path, stream, row, declared_rows)
            vector = stream.read(4 * dim)
            if len(vector) != 4 * dim:
                raise InputError(
                    f"{path}: ends inside row {row} of the {declared_rows} its header declares; the file is truncated"
                )
            if selection.wants(key):
                keys.append(key)
                numbers += vector
        else:
            if stream.read(64).strip():
                raise InputError(
                    f"{path}: holds more than the {declared_rows} rows its header declares; the header is wrong"
                )
    return keys, np.frombuffer(numbers, dtype="<f4").reshape(len(keys), dim)


def write(path: Path, space: Embeddings) -> None:
    """Write word2vec binary."""
    refuse_whitespace(space)
    with open_binary(path, "wb") as stream:
        stream.write(f"{len(space)} {space.dim}\n".encode())
        for key, vector in zip(space.keys, space.vectors, strict=True):
            stream.write(key.encode() + b" " + np.asarray(vector, dtype="<f4").tobytes() + b"\n")


def _read_header(path: Path, stream: IO[bytes]) -> tuple[int, int]:
    fields = stream.readline(_MAX_HEADER_BYTES).split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise InputError(f"{path}: not a word2vec binary file: its first line is not `rows dimensions`")
    rows, dim = int(fields[0]), int(fields[1])
    if rows < 1 or not 1 <= dim <= MAX_DIM:
        raise InputError(f"{path}: the header declares {rows} rows of {dim} dimensions, which is impossible")
    return rows, dim


def _read_key(path: Path, stream: IO[bytes], row: int, declared_rows: int) -> str:
    key = bytearray()
    for _ in range(_MAX_KEY_BYTES + 1):
        byte = stream.read(1)
        if byte == b" ":
            break
        if not byte:
            raise InputError(f"{path}: ends after {row} of the {declared_rows} rows its header declares; truncated")
        if key or byte != b"\n":  # the line break after the previous row
            key += byte
    else:
        raise InputError(f"{path}: the key of row {row} is longer than {_MAX_KEY_BYTES} bytes; not word2vec binary")
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: the key of row {row} is not valid UTF-8 ({error}); wrong header or format"
        ) from error

"""word2vec text (`rows dimensions` on the first line) and GloVe text (no such line).

A row is the key, then the numbers, separated by single spaces. Keys may contain spaces, since the numbers are counted
from the right.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.selection import Selection
from kedge.spaces.streams import numbered_lines, open_binary, require_room_for

# No encoder has more. While a line is parsed, its fields are objects, many times the size of their numbers.
MAX_DIM = 1_000_000


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[np.float32]]:
    """Read keys and vectors (n, d) of a text file, line by line."""
    keys: list[str] = []
    numbers = bytearray()  # grows in place: the declared row count is not trusted for an allocation
    dim: int | None = None
    declared_rows: int | None = None
    rows_seen = 0
    with open_binary(path, "rb") as stream:
        for line_number, line in numbered_lines(path, stream):
            where = f"{path}, line {line_number}"
            line = line.rstrip()  # fastText ends its lines with a space
            if line_number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # a byte-order mark
                header = _parse_header(where, line)
                if header is not None:
                    declared_rows, dim = header
                    require_room_for(4 * dim * selection.max_rows(declared_rows), path)
                    continue
                dim = line.count(b" ")  # GloVe: taken from the first row
            assert dim is not None
            if dim > MAX_DIM:
                raise InputError(f"{where}: {dim} dimensions are declared, but at most {MAX_DIM} are possible")
            if dim < 1:
                raise InputError(f"{where}: expected a key and numbers separated by spaces, got {_shown(line)}")
            if not line:
                raise InputError(f"{where}: empty line; every line must hold a key and {dim} numbers")
            rows_seen += 1
            if selection.full(len(keys)):
                break
            fields = line.rsplit(b" ", dim)
            if len(fields) != dim + 1:
                raise InputError(
                    f"{where}: expected a key and {dim} numbers, got {len(fields) - 1} numbers in {_shown(line)}"
                )
            if b" " in fields[0] and _is_number(fields[0].rsplit(b" ", 1)[1]):
                raise InputError(f"{where}: expected a key and {dim} numbers, got more numbers in {_shown(line)}")
            try:
                key = fields[0].decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"{where}: the key is not valid UTF-8 ({error})") from error
            if not selection.wants(key):
                continue
            try:
                with np.errstate(over="ignore"):  # values too large become infinite, and are reported as such
                    row = np.array(fields[1:], dtype=np.float32)
            except ValueError as error:
                raise InputError(f"{where}: expected {dim} numbers after the key {key!r}: {error}") from error
            keys.append(key)
            numbers += row.tobytes()
    if dim is None:
        raise InputError(f"{path}: the file is empty")
    if declared_rows is not None and not selection.full(len(keys)) and rows_seen != declared_rows:
        raise InputError(
            f"{path}, line 1: the header declares {declared_rows} rows, the file holds {rows_seen}; "
            "the file is truncated or its header wrong"
        )
    return keys, np.frombuffer(numbers, dtype=np.float32).reshape(len(keys), dim)


def write(path: Path, space: Embeddings) -> None:
    """Write word2vec text with a header; float32 values survive the round trip exactly."""
    refuse_whitespace(space)
    with open_binary(path, "wb") as stream:
        stream.write(f"{len(space)} {space.dim}\n".encode())
        for key, vector in zip(space.keys, space.vectors, strict=True):
            stream.write(f"{key} {' '.join(map(str, vector.astype(np.float32, copy=False)))}\n".encode())


def refuse_whitespace(space: Embeddings) -> None:
    """Refuse keys with white space, which separates fields in the word2vec formats."""
    for key in space.keys:
        if not key or key.split() != [key]:
            raise InputError(
                f"{space.source}: the key {key!r} is empty or holds white space, which word2vec files cannot store; "
                "write .npz, .safetensors or .parquet instead"
            )


def _parse_header(where: str, line: bytes) -> tuple[int, int] | None:
    fields = line.split()
    if len(fields) != 2 or not all(_is_number(field) for field in fields):
        return None
    if not all(field.isdigit() and len(field) < 19 for field in fields):
        raise InputError(f"{where}: looks like a header, but is not `rows dimensions`: {_shown(line)}")
    return int(fields[0]), int(fields[1])


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(line: bytes) -> str:
    return repr(line[:40].decode("utf-8", "replace")) + ("..." if len(line) > 40 else "")

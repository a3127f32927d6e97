"""NumPy archives with the two arrays `keys` (strings or integers) and `vectors` (n, d).

NumPy stores every string of an array at the length of the longest. If one key is so long that padding would make up
most of the file, `key_bytes` (all keys as UTF-8, concatenated) and `key_ends` (n,: where each ends) replace `keys`.
"""

from __future__ import annotations

import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.memory import require_room
from kedge.spaces.selection import Selection

_SMALL_BYTES = 16 * 2**20


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[Any]]:
    """Read keys and vectors (n, d); never unpickles."""
    with zipfile.ZipFile(path) as archive:
        require_room(sum(member.file_size for member in archive.infolist()), path)
    with np.load(path, allow_pickle=False) as arrays:
        here = set(arrays.files)
        if "vectors" not in here or not ("keys" in here or {"key_bytes", "key_ends"} <= here):
            raise InputError(f"{path}: the arrays `keys` and `vectors` are needed, the file holds {sorted(here)}")
        vectors = _load(path, arrays, "vectors", "numbers, all rows of the same length")
        if "keys" in here:
            names = _decode_strings(path, _load(path, arrays, "keys", "text: keys=np.asarray(keys, dtype=str)"))
        else:
            names = _decode_bytes(path, arrays["key_bytes"], arrays["key_ends"])
    if selection.everything or vectors.ndim != 2 or len(names) != len(vectors):
        return names, vectors
    rows = selection.rows(names)
    return [names[row] for row in rows], vectors[rows]


def write(path: Path, space: Embeddings) -> None:
    """Write keys and float32 vectors."""
    if any(key.endswith("\0") for key in space.keys):
        raise InputError(f"{path.name}: a key ends with a NUL character, which .npz cannot store; write .safetensors")
    with path.open("wb") as stream:
        arrays = {"vectors": space.vectors.astype(np.float32, copy=False)} | _encode_keys(space)
        np.savez(stream, allow_pickle=False, **arrays)


def _encode_keys(space: Embeddings) -> dict[str, NDArray[Any]]:
    """The keys as an array of strings, unless that would be several times larger than the rest of the file."""
    encoded = [key.encode() for key in space.keys]
    ends = np.cumsum([len(key) for key in encoded])
    as_strings = 4 * len(encoded) * max(map(len, space.keys))
    if as_strings <= max(_SMALL_BYTES, 4 * (int(ends[-1]) + space.vectors.nbytes)):
        return {"keys": np.asarray(space.keys, dtype=np.str_)}
    return {"key_bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8), "key_ends": ends}


def _load(path: Path, arrays: Any, name: str, better: str) -> NDArray[Any]:
    """Load an array; refuse one of Python objects."""
    try:
        array: NDArray[Any] = arrays[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise InputError(
            f"{path}: `{name}` holds Python objects (pickled), which are not loaded because that could run code; "
            f"save it as {better}"
        ) from error
    return array


def _decode_strings(path: Path, keys: NDArray[Any]) -> list[str]:
    if keys.ndim == 1 and keys.dtype.kind in "iu":
        return [str(key) for key in keys.tolist()]
    # Strings of width 0 take no space in a file, however many it claims to hold.
    if keys.ndim != 1 or keys.dtype.kind not in "US" or not keys.dtype.itemsize:
        raise InputError(
            f"{path}: `keys` must be a list of strings or integers, got shape {keys.shape}, dtype {keys.dtype}"
        )
    return [key.decode("utf-8") for key in keys] if keys.dtype.kind == "S" else keys.tolist()


def _decode_bytes(path: Path, stored: NDArray[Any], ends: NDArray[Any]) -> list[str]:
    fits = stored.dtype == np.uint8 and ends.dtype == np.int64 and stored.ndim == ends.ndim == 1
    if not fits or np.any(np.diff(ends, prepend=0) < 0) or ends[-1:].tolist() != [len(stored)]:
        raise InputError(f"{path}: `key_ends` must say, in ascending order, where each key in `key_bytes` ends")
    data = stored.tobytes()
    return [data[begin:end].decode("utf-8") for begin, end in pairwise([0, *ends.tolist()])]

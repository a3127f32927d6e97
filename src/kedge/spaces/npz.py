"""NumPy archives with the two arrays `keys` (strings) and `vectors` (n, d)."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.memory import require_memory
from kedge.spaces.selection import Selection


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[Any]]:
    """Keys and vectors (n, d); never unpickles."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
    require_memory(size, str(path), "give a machine with more, or convert the file where it fits")
    with np.load(path, allow_pickle=False) as arrays:
        if not {"keys", "vectors"} <= set(arrays.files):
            raise InputError(
                f"{path}: the arrays `keys` and `vectors` are needed, the file holds {sorted(arrays.files)}"
            )
        keys, vectors = arrays["keys"], arrays["vectors"]
    if keys.ndim != 1 or keys.dtype.kind not in "US":
        raise InputError(f"{path}: `keys` must be a list of strings, got shape {keys.shape}, dtype {keys.dtype}")
    names = [key.decode("utf-8") for key in keys] if keys.dtype.kind == "S" else keys.tolist()
    if selection.everything or vectors.ndim != 2 or len(names) != len(vectors):
        return names, vectors
    rows = selection.rows(names)
    return [names[row] for row in rows], vectors[rows]


def write(path: Path, space: Embeddings) -> None:
    """Write keys and float32 vectors."""
    if any(key.endswith("\0") for key in space.keys):
        raise InputError(f"{path}: a key ends with a NUL character, which .npz cannot store; write .safetensors")
    with path.open("wb") as stream:
        np.savez(
            stream, keys=np.asarray(space.keys, dtype=np.str_), vectors=space.vectors.astype(np.float32, copy=False)
        )

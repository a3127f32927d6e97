"""safetensors files with a matrix `vectors`, and a tensor `keys` whose bytes are a JSON list.

If a file has one matrix and no keys, as other tools write, keys come from `NAME.keys.txt`, else from the row numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.formats.npy import read_chosen_keys
from kedge.spaces.mapped_files import remember_size
from kedge.spaces.selection import Selection


def read(path: Path, selection: Selection) -> tuple[list[str], NDArray[np.float32]]:
    """Read keys and vectors (n, d); a float32 matrix stays memory-mapped."""
    import torch  # for bfloat16 and memory mapping; no other format needs torch

    remember_size(path)
    with safe_open(path, framework="pt") as tensors:
        names = set(tensors.keys())
        matrices = sorted(name for name in names if len(tensors.get_slice(name).get_shape()) == 2)
        name = "vectors" if "vectors" in matrices else matrices[0] if len(matrices) == 1 else None
        if name is None:
            raise InputError(f"{path}: a matrix named `vectors` is needed, the file holds {sorted(names)}")
        vectors = tensors.get_tensor(name)
        stored = tensors.get_tensor("keys").numpy().tobytes() if "keys" in names else None
    if vectors.is_complex() or vectors.dtype == torch.bool:
        raise InputError(f"{path}: `{name}` must hold real numbers, got {vectors.dtype}")
    if stored is None:
        keys, chosen = read_chosen_keys(path, tuple(vectors.shape), selection)
        return keys, vectors[chosen].to(torch.float32).numpy()
    keys = _decode_keys(path, stored, len(vectors))
    if not selection.everything:
        rows = selection.rows(keys)
        keys, vectors = [keys[row] for row in rows], vectors[rows]
    return keys, vectors.to(torch.float32).numpy()


def write(path: Path, space: Embeddings) -> None:
    """Write float32 vectors and the keys."""
    encoded = np.frombuffer(json.dumps(list(space.keys)).encode(), dtype=np.uint8)
    save_file(
        {
            "vectors": np.ascontiguousarray(space.vectors, dtype=np.float32),
            "keys": encoded,
        },
        path,
        metadata={"format": "kedge-embeddings"},
    )


def _decode_keys(path: Path, stored: bytes, count: int) -> list[str]:
    keys = json.loads(stored)
    if not isinstance(keys, list) or len(keys) != count:
        raise InputError(f"{path}: `keys` must be a JSON list of {count} strings, one for each row")
    return keys

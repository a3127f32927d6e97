"""What a run says about the files it was made from, and about the machine."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kedge.errors import InputError
from kedge.spaces.files import files_read, split_name
from kedge.spaces.formats.dataset_folder import is_dataset
from kedge.spaces.formats.npy import key_file
from kedge.spaces.stores.address import Address

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


_Read = TypeVar("_Read")


def read_described(path: Path | Address, read: Callable[[], _Read]) -> tuple[_Read, dict[str, Any]]:
    """The result of `read`, and what a run says about the file: as it was when read, whatever happens to it later.

    Raises `InputError` if the file changes before both are done.
    """
    from kedge.spaces import Embeddings

    before = _versions(path)
    content = read()
    try:
        described = describe_input(path, content if isinstance(content, Embeddings) else None)
        same = _versions(path) == before
    except FileNotFoundError:
        same = False
    if not same:
        raise InputError(
            f"{path}: was changed, replaced or deleted while it was read; run this again when it is complete"
        )
    return content, described


def describe_input(path: Path | Address, space: Embeddings | None = None) -> dict[str, Any]:
    """Name and SHA-256 of a file (and of the keys beside it), and the size of the space read from it.

    For a store or a dataset it is the SHA-256 of the keys and vectors that were read. A store's address is given
    without secrets.
    """
    file, named = (None, str(path)) if isinstance(path, Address) else (split_name(path)[0], path.name)
    if file is None or is_dataset(file):
        assert space is not None, "a store is read as a space"
        digest = hashlib.sha256("\n".join(space.keys).encode())
        digest.update(space.vectors.tobytes())
        return {"file": named, "sha256": digest.hexdigest(), "rows": len(space), "dimensions": space.dim}
    described: dict[str, Any] = {"file": named, "sha256": _sha256(file)}
    if space is not None:
        described |= {"rows": len(space), "dimensions": space.dim}
        keys = key_file(file)
        if file.suffix in (".npy", ".safetensors") and keys.exists():
            described["keys_sha256"] = _sha256(keys)
    return described


def describe_machine(device: str) -> dict[str, str]:
    """The device, and the versions of the libraries."""
    import numpy as np
    import torch

    from kedge.estimators.devices import resolve_device

    place = resolve_device(device)
    return {
        "device": torch.cuda.get_device_name(place)
        if place.type == "cuda"
        else f"cpu, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def _versions(path: Path | Address) -> dict[Path, tuple[int, ...]]:
    """What changes when a file changes, or is replaced by another; empty for a store, whose files are unknown."""
    files = [] if isinstance(path, Address) else [file for file in files_read(path) if file.is_file()]
    states = {file: file.stat() for file in files}
    return {
        file: (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        for file, state in states.items()
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

"""What a run says about the files it was made from, and about the machine."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.spaces.npy import key_file
from kedge.spaces.stores.address import Address

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


def describe_input(path: Path | Address, space: Embeddings | None = None) -> dict[str, Any]:
    """Name and SHA-256 of a file (and of the keys beside it), and the size of the space read from it.

    Of a store it is the SHA-256 of the keys and vectors that were read; its address is named without secrets.
    """
    if isinstance(path, Address):
        assert space is not None, "a store is read as a space"
        digest = hashlib.sha256("\n".join(space.keys).encode())
        digest.update(space.vectors.tobytes())
        return {"file": str(path), "sha256": digest.hexdigest(), "rows": len(space), "dimensions": space.dim}
    described: dict[str, Any] = {"file": path.name, "sha256": _sha256(path)}
    if space is not None:
        described |= {"rows": len(space), "dimensions": space.dim}
        keys = key_file(path)
        if path.suffix in (".npy", ".safetensors") and keys.exists():
            described["keys_sha256"] = _sha256(keys)
    return described


def describe_machine(device: str) -> dict[str, str]:
    """What computed, and by which versions."""
    import numpy as np
    import torch

    from kedge.discovery.devices import resolve_device

    place = resolve_device(device)
    return {
        "device": torch.cuda.get_device_name(place)
        if place.type == "cuda"
        else f"cpu, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

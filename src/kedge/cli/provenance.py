"""What a run says about the files it was made from."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


def describe_input(path: Path, space: Embeddings | None = None) -> dict[str, Any]:
    """Name and SHA-256 of a file, and the size of the space read from it."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    described: dict[str, Any] = {"file": path.name, "sha256": digest}
    if space is not None:
        described |= {"rows": len(space), "dimensions": space.dim}
    return described

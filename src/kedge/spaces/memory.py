"""Refuse what cannot fit into memory before trying: a clear error is better than a killed process."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.errors import InputError

# Vectors compress to a half or a tenth of their size, those of single bits to a hundredth.
_MAX_RATIO = 250
_FREE_BYTES = 64 * 2**20


def available_memory() -> int | None:
    """Bytes of memory available without swapping (where that is unknown, all physical memory), or None."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raise `InputError` if `needed` bytes are more than the machine has free."""
    available = available_memory()
    if available is not None and needed > available:
        raise InputError(
            f"{what}: needs about {needed / 1e9:.1f} GB of memory, but {available / 1e9:.1f} GB are free; {advice}"
        )


def require_in_proportion(unpacked: int, path: Path) -> None:
    """Raise `InputError` if a file unpacks to so many times its size that it looks like a decompression bomb."""
    if unpacked > _FREE_BYTES and unpacked > _MAX_RATIO * (size := path.stat().st_size):
        raise InputError(
            f"{path}: unpacks to {unpacked / 1e6:.0f} MB or more, over {_MAX_RATIO} times its {size / 1e6:.3f} MB, "
            "which real vectors and keys do not; if the file is right, give it unpacked, as .npy"
        )


def require_room(unpacked: int, path: Path) -> None:
    """Raise `InputError` if the `unpacked` bytes are out of proportion to the file or more than the free memory."""
    require_in_proportion(unpacked, path)
    require_memory(unpacked, str(path), "read fewer rows with limit, or use .npy or .safetensors")

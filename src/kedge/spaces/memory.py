"""Refuse what cannot fit before trying: a clear line is better than a killed process."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.errors import InputError

# Vectors pack to a half of their size, or a tenth; those of single bits to a hundredth.
_MAX_RATIO = 250
_FREE_BYTES = 64 * 2**20


def available_memory() -> int | None:
    """Bytes of memory that can be used without swapping, or None where the system does not say."""
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
    """Raise `InputError` when `needed` bytes are more than the machine has free."""
    available = available_memory()
    if available is not None and needed > available:
        raise InputError(
            f"{what}: needs about {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are free; {advice}"
        )


def require_in_proportion(unpacked: int, path: Path) -> None:
    """Raise `InputError` when a file unpacks to so many bytes that it was made to fill the memory."""
    if unpacked > _FREE_BYTES and unpacked > _MAX_RATIO * (size := path.stat().st_size):
        raise InputError(
            f"{path}: unpacks to {unpacked / 1e6:.0f} MB or more, over {_MAX_RATIO} times its {size / 1e6:.3f} MB, "
            "which vectors and keys do not; if they are meant, give them unpacked, as .npy"
        )


def require_room(unpacked: int, path: Path) -> None:
    """Raise `InputError` when what is wanted of a file, in bytes, fits neither the file's size nor the memory."""
    require_in_proportion(unpacked, path)
    require_memory(unpacked, str(path), "read fewer rows with limit, or use .npy or .safetensors")

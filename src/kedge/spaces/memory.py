"""Refuse what cannot fit before trying: a clear line is better than a killed process."""

from __future__ import annotations

import os
from pathlib import Path

from kedge.errors import InputError


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

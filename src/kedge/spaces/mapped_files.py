"""Files whose vectors are used in place, through a memory map.

If such a file is truncated while in use, e.g. by a program that rewrites it in place, touching a lost row kills the
process with SIGBUS, which Python cannot turn into an exception. All we can do is say afterwards which file it was.
"""

from __future__ import annotations

from pathlib import Path

_sizes: dict[Path, int] = {}


def remember_size(path: Path) -> None:
    """Note the size of a file that is about to be mapped."""
    _sizes[path.absolute()] = path.stat().st_size


def shrunken_files() -> list[Path]:
    """The noted files that have become shorter."""
    return [path for path, size in _sizes.items() if path.is_file() and path.stat().st_size < size]

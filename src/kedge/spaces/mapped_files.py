"""Files whose vectors are used where they lie, through a memory map.

Who makes such a file shorter while it is used, as a program that writes it anew in its place does, takes the rows away
from under the map, and the system ends whoever touches them with the signal SIGBUS. Python cannot make an exception of
it. What can be said afterwards is which file it was.
"""

from __future__ import annotations

from pathlib import Path

_sizes: dict[Path, int] = {}


def remember_size(path: Path) -> None:
    """Note how many bytes a file has that is about to be mapped."""
    _sizes[path.absolute()] = path.stat().st_size


def shrunken_files() -> list[Path]:
    """Those of the noted files that are shorter by now."""
    return [path for path, size in _sizes.items() if path.is_file() and path.stat().st_size < size]

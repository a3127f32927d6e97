"""Open plain or gzip-compressed files alike."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast


def open_binary(path: Path, mode: str) -> IO[bytes]:
    """Open `path` for "rb" or "wb"; a name that ends in .gz is (de)compressed on the fly."""
    if path.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(path, mode))
    return cast(IO[bytes], path.open(mode))

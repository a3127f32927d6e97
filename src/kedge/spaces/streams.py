"""Open plain and gzip-compressed files alike, refuse what is not a regular file, and iterate over lines."""

from __future__ import annotations

import gzip
import io
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from kedge.errors import InputError
from kedge.spaces.memory import require_in_proportion, require_room

# No real line is longer; without a cap, a file without line breaks would be read into memory whole.
_MAX_LINE_BYTES = 16 * 2**20


def require_regular_file(path: Path) -> None:
    """Refuse a missing file, a folder, and whatever has no end of its own, such as a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: is a pipe, socket or device, not a file; write what it gives to a file first")


def require_room_for(declared: int, path: Path) -> None:
    """Refuse a compressed file that declares implausibly many bytes; a plain file is bounded by its size."""
    if _is_compressed(path):
        require_room(declared, path)


def open_binary(path: Path, mode: str) -> IO[bytes]:
    """Open `path` in mode "rb" or "wb"; a file whose name ends in .gz is (de)compressed on the fly."""
    if not _is_compressed(path):
        return cast(IO[bytes], path.open(mode))
    packed = gzip.GzipFile(path, mode)
    return cast(IO[bytes], io.BufferedReader(_Unpacked(path, packed), 2**16) if mode == "rb" else packed)


def numbered_lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their line breaks, numbered from 1."""
    for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE_BYTES), b""), start=1):
        if len(line) == _MAX_LINE_BYTES:
            raise InputError(f"{path}, line {number}: longer than {_MAX_LINE_BYTES} bytes; this is not a text file")
        yield number, line


class _Unpacked(io.RawIOBase):
    """The unpacked content of a gzip file; reading fails once it is out of proportion to the file's size."""

    def __init__(self, path: Path, packed: Any) -> None:
        self._path, self._packed, self._size = path, packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._packed.readinto(buffer))
        self._size += count
        require_in_proportion(self._size, self._path)
        return count

    def close(self) -> None:
        self._packed.close()
        super().close()


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"

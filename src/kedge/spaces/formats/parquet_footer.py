"""What the footer of a Parquet file claims about its columns.

pyarrow has these figures too, but asking for them aborts the process if they contradict each other. The footer is a
struct in Thrift's compact protocol, with the field numbers of `parquet.thrift`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROWS, _GROUPS, _CHUNKS, _ABOUT, _PATH, _VALUES, _UNPACKED = 3, 4, 1, 3, 3, 5, 6
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)


@dataclass(frozen=True)
class Claims:
    """The rows of a file; of some columns, the values, the unpacked bytes, and the bytes of the largest chunk."""

    rows: int
    values: int
    unpacked: int
    largest: int


def read_claims(path: Path, columns: Collection[str]) -> Claims:
    """Read what the file claims about these columns; a broken footer raises, commonly `ValueError` or `KeyError`."""
    with path.open("rb") as stream:
        stream.seek(-8, 2)
        length, mark = struct.unpack("<I4s", stream.read())
        if mark != b"PAR1" or length + 8 > stream.tell():
            raise ValueError("it does not end as Parquet files do")
        stream.seek(-8 - length, 2)
        footer = _Compact(stream.read(length)).struct()
    values = unpacked = largest = 0
    for group in footer.get(_GROUPS, []):
        for chunk in group[_CHUNKS]:
            about = chunk[_ABOUT]
            if about[_PATH][0].decode() in columns:
                values += about[_VALUES]
                unpacked += about[_UNPACKED]
                largest = max(largest, 4 * about[_VALUES], about[_UNPACKED])
    return Claims(footer[_ROWS], values, unpacked, largest)


class _Compact:
    """A parser of Thrift's compact protocol: structs become dicts by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) & 15 != _STOP:
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            is_flag = head & 15 in (_TRUE, _FALSE)  # in a list, each of these is a byte of its own
            return [self._byte() if is_flag else self._value(head & 15) for _ in range(count)]
        if kind in (_BYTE, _DOUBLE):
            return self._bytes(1 if kind == _BYTE else 8)
        raise ValueError(f"its footer has a field of the unknown kind {kind}")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("its footer is cut short")
        return self._data[self._at - count : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("its footer has a number that is too long")
        return value | byte << shift

    def _integer(self) -> int:
        zigzag = self._varint()
        return zigzag >> 1 ^ -(zigzag & 1)

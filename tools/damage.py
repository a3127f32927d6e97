"""Damage files as bad disks, bad programs and bad people do: bytes anywhere, claims in headers, values in JSON.

Everything is drawn from a `random.Random`, so that the same state gives the same damage.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import PurePath
from random import Random
from typing import Any

_ODD_NUMBERS = (0, 1, 2, 127, 255, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 10**12)
_ODD_TEXTS = (
    b"", b" ", b"\t", b"\n", b"\r", b"\r\n", b"\0", b",", b'"', b"\\", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf",
    "\u2028".encode(), b"nan", b"-inf", b"1e999", b"-1", b"0x1", b"x", b"y", b"x_row", b"key", b"../", b"k" * 20_000,
)  # fmt: skip
_ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(2**70), 0.5, 1e308, float("nan"), float("inf"), "", "x", "\ud800",
    "ALIGNED", [], [[]], [None], [0, 1], {}, {"x": 1},
)  # fmt: skip


def damaged(name: str, data: bytes, chance: Random) -> bytes:
    """A file of this name with one to three damages; half of the time behind its compression and its lengths."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        inside = _INSIDE.get(PurePath(name).suffix)
        if inside is not None and chance.random() < 0.6:
            try:
                data = inside(data, chance)
                continue
            except Exception:  # the damage before has left nothing to unpack
                pass
        data = damaged_bytes(data, chance)
    return data


def damaged_bytes(data: bytes, chance: Random) -> bytes:
    """One damage to plain bytes."""
    begin, end = _stretch(data, chance)
    match chance.randrange(9):
        case 0:
            return data[:begin]
        case 1:
            return data[:begin] + data[end:]
        case 2:
            return data[:end] + data[begin:end] * chance.choice((1, 2, 50)) + data[end:]
        case 3:
            return data[:begin] + chance.randbytes(end - begin) + data[end:]
        case 4:
            return data[:begin] + chance.choice(_ODD_TEXTS) + data[end if chance.random() < 0.5 else begin :]
        case 5:
            number = chance.choice(_ODD_NUMBERS).to_bytes(8, "little")[: chance.choice((1, 2, 4, 8))]
            return data[:begin] + number + data[begin + len(number) :]
        case 6:
            numbers = list(re.finditer(rb"\d+", data[:4096])) or [re.match(rb"", data)]
            found = chance.choice(numbers)
            assert found is not None
            return data[: found.start()] + str(chance.choice(_ODD_NUMBERS)).encode() + data[found.end() :]
        case _:
            place = chance.randrange(len(data)) if data else 0
            return (
                data[:place]
                + bytes(byte ^ 1 << chance.randrange(8) for byte in data[place : place + 1])
                + data[place + 1 :]
            )


def damaged_json(data: bytes, chance: Random) -> bytes:
    """One value somewhere in a JSON text exchanged, taken out or put in twice."""
    whole = json.loads(data)
    place: Any = whole
    while isinstance(place, dict | list) and place:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or chance.random() < 0.3:
            match chance.randrange(4):
                case 0:
                    del place[key]
                case 1 if isinstance(place, list):
                    place.append(place[key])
                case _:
                    place[key] = chance.choice(_ODD_VALUES)
            break
        place = place[key]
    else:
        whole = chance.choice(_ODD_VALUES)
    return json.dumps(whole).encode()


def _stretch(data: bytes, chance: Random) -> tuple[int, int]:
    """Where to begin and end: anywhere, but more often where headers and footers are."""
    near = min(len(data), 400)
    begin = chance.choice(
        (chance.randrange(len(data) + 1), chance.randrange(near + 1), len(data) - chance.randrange(near + 1))
    )
    return begin, min(len(data), begin + chance.choice((1, 2, 8, 100)))


def _damaged_gzip(data: bytes, chance: Random) -> bytes:
    return gzip.compress(damaged_bytes(gzip.decompress(data), chance), 1, mtime=0)


def _damaged_zip(data: bytes, chance: Random) -> bytes:
    """One member damaged, left out, or put in under another name."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(packed, "w", chance.choice((0, 8))) as new,
        warnings.catch_warnings(action="ignore"),  # of a name that is there twice
    ):
        members = [(name, old.read(name)) for name in old.namelist()]
        chosen = chance.randrange(len(members)) if members else 0
        for index, (name, content) in enumerate(members):
            how = chance.random() if index == chosen else 1
            if how < 0.8:
                content = damaged_bytes(content, chance)
            elif how < 0.9:
                name = chance.choice(("keys.npy", "key_ends.npy", "vectors.npy", "../x.npy", "x"))
            if how >= 1 or how < 0.95:
                new.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def _damaged_safetensors(data: bytes, chance: Random) -> bytes:
    """The header damaged, with its new length before it."""
    (length,) = struct.unpack("<Q", data[:8])
    header = chance.choice((damaged_json, damaged_bytes))(data[8 : 8 + length], chance)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


_INSIDE: dict[str, Callable[[bytes, Random], bytes]] = {
    ".gz": _damaged_gzip,
    ".npz": _damaged_zip,
    ".safetensors": _damaged_safetensors,
    ".json": damaged_json,
}

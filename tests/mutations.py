"""Random edits of the files that kedge writes: structural ones of JSON, tables and tensor files, and of any bytes.

Each function changes one file in place, by what a generator of NumPy draws, and says what it did. For tests and for
`tools/fuzz.py`; the same seed makes the same edits.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Mutation = Callable[[Path, np.random.Generator], str]

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 10**30, 2**63, -(10**400), 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x",
    "ok", "\ud800", "\x1b[2J", "nan", [], {}, [[]], [1, 2], {"x": 1}, [[[[[[]]]]]],
)  # fmt: skip
ODD_FIELDS = (
    "",
    "7",
    "-1",
    "nan",
    "inf",
    "1e400",
    "0,5",
    "X",
    "\\",
    "\\t",
    "\x00",
    "\ufeff",
    "0x1",
    "1" * 500,
    "\u2028",
)
_DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
    "F16": np.float16, "F32": np.float32, "F64": np.float64,
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _DTYPES.items()}


def mutate(path: Path, chance: np.random.Generator) -> str:
    """Change one file: two times of three by what its format invites, else by bytes."""
    structural = {".json": mutate_json, ".tsv": mutate_table, ".safetensors": mutate_tensors}.get(path.suffix)
    if structural is None or chance.random() < 1 / 3:
        return f"{path.name}: {mutate_bytes(path, chance)}"
    try:
        return f"{path.name}: {structural(path, chance)}"
    except Exception:  # an earlier edit has left nothing of the structure
        return f"{path.name}: {mutate_bytes(path, chance)}"


def mutate_bytes(path: Path, chance: np.random.Generator) -> str:
    """Flip, replace, cut, insert, repeat or delete bytes, or the whole file."""
    data = bytearray(path.read_bytes())
    at = int(chance.integers(len(data) + 1))
    length = int(chance.integers(1, 17))
    kind = chance.choice(["flip", "replace", "cut", "truncate", "insert", "repeat", "empty", "delete"])
    if kind == "flip" and data:
        data[at % len(data)] ^= 1 << int(chance.integers(8))
    elif kind == "replace":
        data[at : at + length] = chance.bytes(len(data[at : at + length]))
    elif kind == "cut":
        del data[at : at + length]
    elif kind == "truncate":
        del data[at:]
    elif kind == "insert":
        data[at:at] = chance.bytes(length)
    elif kind == "repeat":
        data[at:at] = data[at : at + 100 * length]
    elif kind == "empty":
        data.clear()
    elif kind == "delete":
        path.unlink()
        return "deleted"
    path.write_bytes(data)
    return f"{kind} at {at}"


def mutate_json(path: Path, chance: np.random.Generator) -> str:
    """Replace, delete, rename, double or add a value somewhere in a JSON file."""
    document = json.loads(path.read_bytes())
    places = list(_places(document))
    where, holder, name = places[int(chance.integers(len(places)))]
    kind = str(chance.choice(["replace", "replace", "replace", "delete", "rename", "add", "double", "nest"]))
    told = f"{kind} {where}"
    if kind == "replace":
        holder[name] = _draw(ODD_VALUES, chance)
        told += f" by {holder[name]!r:.40}"
    elif kind == "delete":
        del holder[name]
    elif kind == "nest":
        holder[name] = [holder[name]]
    elif isinstance(holder, dict) and kind == "rename":
        holder[f"{name}_"] = holder.pop(name)
    elif isinstance(holder, dict) and kind == "add":
        holder["unheard of"] = _draw(ODD_VALUES, chance)
    elif isinstance(holder, dict):
        holder["DOUBLE"] = _draw(ODD_VALUES, chance)
        path.write_text(json.dumps(document, indent=2).replace('"DOUBLE"', json.dumps(name)))
        return told
    else:
        holder.append(holder[name])
    path.write_text(json.dumps(document, indent=2))
    return told


def mutate_table(path: Path, chance: np.random.Generator) -> str:
    """Change a field, a line, a column or the header of a tab-separated table."""
    table = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")]
    row, other = (int(chance.integers(len(table))) for _ in range(2))
    column = int(chance.integers(len(table[row])))
    kind = str(chance.choice(["field", "field", "swap", "delete", "double", "column", "wider", "header", "copy"]))
    if kind == "field":
        table[row][column] = _draw(ODD_FIELDS, chance)
    elif kind == "swap":
        table[row], table[other] = table[other], table[row]
    elif kind == "delete":
        del table[row]
    elif kind == "double":
        table.insert(other, table[row])
    elif kind == "column":
        table = [[field for place, field in enumerate(line) if place != column] for line in table]
    elif kind == "wider":
        table[row].append(_draw(ODD_FIELDS, chance))
    elif kind == "header":
        table[0][column % len(table[0])] = _draw(("x", "y", "key", *ODD_FIELDS), chance)
    else:
        table[row][column] = table[other][column]
    path.write_text("\n".join("\t".join(line) for line in table), encoding="utf-8")
    return f"{kind}, line {row + 1}"


def mutate_tensors(path: Path, chance: np.random.Generator) -> str:
    """Change the numbers, shape, dtype or name of a tensor in a safetensors file, or what is said beside them."""
    tensors, metadata = read_tensors(path)
    names = sorted(tensors)
    name, other = (names[int(chance.integers(len(names)))] for _ in range(2))
    array = tensors[name]
    kind = str(
        chance.choice(
            ["value", "value", "value", "permute", "drop", "rename", "swap", "fewer", "more", "flat", "turn", "dtype",
             "none", "scale", "metadata"]
        )
    )  # fmt: skip
    if kind == "value" and array.size:
        value = _draw((np.nan, np.inf, -np.inf, -1, 7, 2.0**62, 1e30, 0, 10**6), chance)
        with np.errstate(all="ignore"):
            array.reshape(-1)[int(chance.integers(array.size))] = np.array(value).astype(array.dtype)
    elif kind == "permute" and array.ndim:
        tensors[name] = chance.permutation(array)
    elif kind == "drop":
        del tensors[name]
    elif kind == "rename":
        tensors[f"{name}_"] = tensors.pop(name)
    elif kind == "swap":
        tensors[name], tensors[other] = tensors[other], array
    elif kind == "fewer" and array.ndim:
        tensors[name] = array[: len(array) // 2]
    elif kind == "more" and array.ndim:
        tensors[name] = np.concatenate([array, array[:1]])
    elif kind == "flat":
        tensors[name] = array.reshape(-1) if array.ndim != 1 else array[:, None]
    elif kind == "turn":
        tensors[name] = array.T
    elif kind == "dtype":
        with np.errstate(all="ignore"):
            tensors[name] = array.astype(_draw(tuple(_DTYPES.values()), chance))
    elif kind == "none":
        tensors[name] = array.reshape(-1)[:0]
    elif kind == "scale" and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            tensors[name] = array * array.dtype.type(_draw((-1, 2, 1e4, 1e30, 0), chance))
    elif kind == "metadata" and metadata:
        entry = sorted(metadata)[int(chance.integers(len(metadata)))]
        if chance.random() < 0.3:
            del metadata[entry]
        else:
            metadata[entry] = str(_draw((json.dumps(_draw(ODD_VALUES, chance)), metadata[entry][1:], "[[]]"), chance))
    write_tensors(path, tensors, metadata)
    return f"{kind} of {name}"


def _draw(choices: tuple[Any, ...], chance: np.random.Generator) -> Any:
    return choices[int(chance.integers(len(choices)))]


def _places(holder: Any, where: str = "") -> Any:
    """Every value inside a JSON value: where it is, what holds it, and under which name or number."""
    items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
    for name, value in items:
        yield f"{where}.{name}", holder, name
        yield from _places(value, f"{where}.{name}")


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, told in header.items():
        first, last = told["data_offsets"]
        numbers = np.frombuffer(data[begin + first : begin + last], dtype=_DTYPES[told["dtype"]])
        tensors[name] = numbers.reshape(told["shape"]).copy()
    return tensors, metadata


def write_tensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, array in tensors.items():
        stored = array.tobytes()
        place = [len(data), len(data) + len(stored)]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": place}
        data += stored
    told = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(told)) + told + data)

"""Convert seeds between many spaces, in any of the accepted forms, to tuples of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators.inputs import as_list, describe_unknown, row_named
from kedge.estimators.pair_inputs import as_pair_rows
from kedge.spaces import Embeddings
from kedge.spaces.conversion import is_frame
from kedge.spaces.pairs import read_fields

UNKNOWN = -1
"""Stands for a row that a tuple does not name."""


def as_seed_tuples(seeds: Any, spaces: Mapping[str, Embeddings]) -> NDArray[np.int64]:
    """Seeds as rows (a, k) of the spaces in order, -1 where unknown; tuples that share a row are merged.

    They are given as a dict from two names to pairs, {("minilm", "bge"): [...]}; or as tuples with a key or row for
    each space, None where unknown: a list, an array, a DataFrame with names of spaces as columns, or dicts from names
    to keys.
    """
    names = list(spaces)
    if seeds is None:
        return np.empty((0, len(names)), dtype=np.int64)
    if isinstance(seeds, Mapping):
        tuples = _from_pairs(seeds, spaces)
    else:
        tuples = [_as_tuple(item, number, spaces) for number, item in enumerate(_listed(seeds), start=1)]
    return _merged(tuples, spaces)


def read_seed_tuples(path: Path, spaces: Mapping[str, Embeddings]) -> NDArray[np.int64]:
    """Read seeds from a table with one column per space, named in the header; cells are empty where unknown."""
    table = read_fields(path)
    if not table:
        raise InputError(f"{path}: holds no seeds; the first line must name the spaces: {', '.join(spaces)}")
    header = table[0][1]
    unknown = [name for name in header if name not in spaces]
    if unknown or len(header) < 2 or len(set(header)) < len(header):
        raise InputError(
            f"{path}, line {table[0][0]}: must name at least two of the spaces {', '.join(spaces)}, each once; "
            f"got {', '.join(header)}"
        )
    tuples = []
    for line, fields in table[1:]:
        if len(fields) > len(header):
            raise InputError(f"{path}, line {line}: {len(header)} columns are needed, got {len(fields)}")
        item = {name: key for name, key in zip(header, fields, strict=False) if key}
        tuples.append(_as_tuple(item, f"{path}, line {line}", spaces))
    return _merged(tuples, spaces)


def _listed(seeds: Any) -> list[Any]:
    if is_frame(seeds):
        return list(seeds.to_dict("records"))
    listed = as_list(seeds)
    if listed is None:
        raise InputError(
            "seeds must be tuples with one entry per space, or a dict from pairs of space names to pairs, "
            f"got {type(seeds).__name__}"
        )
    return listed


def _from_pairs(seeds: Mapping[Any, Any], spaces: Mapping[str, Embeddings]) -> list[list[int]]:
    names = list(spaces)
    tuples = []
    for pair, given in seeds.items():
        known = isinstance(pair, tuple) and len(pair) == 2 and set(pair) <= set(names) and pair[0] != pair[1]
        if not known:
            raise InputError(f"seeds: {pair!r} must be the names of two of the spaces {', '.join(names)}")
        first, second = pair
        for row, other in as_pair_rows(given, spaces[first], spaces[second], f"seeds of {first} and {second}").tolist():
            item = [UNKNOWN] * len(names)
            item[names.index(first)], item[names.index(second)] = row, other
            tuples.append(item)
    return tuples


def _as_tuple(item: Any, number: int | str, spaces: Mapping[str, Embeddings]) -> list[int]:
    where = f"seeds, number {number}" if isinstance(number, int) else number
    names = list(spaces)
    if isinstance(item, Mapping):
        unknown = [name for name in item if name not in spaces]
        if unknown:
            raise InputError(f"{where}: there is no space {unknown[0]!r}; the spaces are {', '.join(names)}")
        values: Sequence[Any] = [item.get(name) for name in names]
    else:
        values = list(item) if isinstance(item, Sequence) and not isinstance(item, str) else []
        if len(values) != len(names):
            raise InputError(f"{where}: needs {len(names)} keys or rows, one for each space, None if unknown")
    rows = []
    for name, value in zip(names, values, strict=True):
        missing = value is None or (isinstance(value, float) and np.isnan(value))
        if isinstance(value, np.integer) or (isinstance(value, float) and value.is_integer()):
            value = int(value)  # pandas holds whole numbers as floats in a column with gaps
        missing = missing or (isinstance(value, int) and value == UNKNOWN and not spaces[name].has_numbers_as_keys)
        row = UNKNOWN if missing else row_named(value, spaces[name])
        if row is None:
            raise InputError(f"{where}: {describe_unknown(value, spaces[name], name)}")
        rows.append(row)
    return rows


def _merged(tuples: Sequence[Sequence[int]], spaces: Mapping[str, Embeddings]) -> NDArray[np.int64]:
    """Merge tuples that share a row; raises if a merged tuple would have two rows of one space."""
    names = list(spaces)
    merged: list[list[int] | None] = []
    holder: dict[tuple[int, int], int] = {}
    for item in tuples:
        places = [(space, row) for space, row in enumerate(item) if row != UNKNOWN]
        whole = list(item)
        for number in sorted({holder[place] for place in places if place in holder}):
            other = merged[number]
            assert other is not None, "what was merged into another holds nothing"
            merged[number] = None
            for space, row in enumerate(other):
                if UNKNOWN not in (row, whole[space]) and row != whole[space]:
                    keys = spaces[names[space]].keys
                    raise InputError(
                        f"seeds contradict each other: {keys[row]!r} and {keys[whole[space]]!r} of {names[space]} "
                        "would be one item; remove one of the tuples that say so"
                    )
                whole[space] = max(row, whole[space])
        holder.update({(space, row): len(merged) for space, row in enumerate(whole) if row != UNKNOWN})
        merged.append(whole)
    kept = [item for item in merged if item is not None and sum(row != UNKNOWN for row in item) > 1]
    return np.asarray(kept, dtype=np.int64).reshape(-1, len(names))

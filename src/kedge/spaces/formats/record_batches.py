"""Collect keys and vectors from Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.formats.columns import Columns
from kedge.spaces.selection import Selection


def collect(
    batches: Iterable[Any], columns: Columns, selection: Selection, source: str
) -> tuple[list[str], NDArray[np.float32]]:
    """Collect keys and vectors (n, d) of the wanted rows; keys become text, even from a column of integers."""
    from pyarrow import compute

    keys: list[str] = []
    numbers = bytearray()  # grows in place: no file's row count is trusted for an allocation
    dim: int | None = None
    begin = 0
    for batch in batches:
        if not len(batch):
            continue
        lists = batch.column(columns.vector)
        for name in columns.names:
            if batch.column(name).null_count:
                raise InputError(
                    f"{source}: column `{name}` holds nulls, but every row needs a value; leave those rows out"
                )
        lengths = compute.list_value_length(lists).to_numpy(zero_copy_only=False)
        dim = int(lengths[0]) if dim is None else dim
        ragged = np.flatnonzero(lengths != dim)
        if len(ragged):
            row = int(ragged[0])
            raise InputError(f"{source}, row {begin + row}: expected {dim} numbers, got {int(lengths[row])}")
        if not dim:
            raise InputError(f"{source}: the lists in column `{columns.vector}` are empty")
        names = _names(batch, columns, begin)
        chosen = selection.rows(names)
        chosen = chosen if selection.limit is None else chosen[: selection.limit - len(keys)]
        keys += [names[row] for row in chosen]
        vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(names), dim)
        with np.errstate(over="ignore"):  # values too large become infinite, and are reported as such
            numbers += vectors[chosen].astype(np.float32).tobytes()
        begin += len(names)
        if selection.full(len(keys)):
            break
    return keys, np.frombuffer(numbers, dtype=np.float32).reshape(len(keys), dim or 0)


def _names(batch: Any, columns: Columns, begin: int) -> list[str]:
    """The keys of the rows (row numbers if there are none); equal keys of a dictionary column share one object."""
    from pyarrow import array, types

    if columns.id is None:
        return [str(row) for row in range(begin, begin + len(batch))]
    column = batch.column(columns.id)
    if not types.is_dictionary(column.type):
        return [str(value) for value in column.to_pylist()]
    places, index = np.unique(column.indices.to_numpy(), return_inverse=True)
    different = [str(value) for value in column.dictionary.take(array(places)).to_pylist()]
    return [different[place] for place in index.tolist()]

"""Find since when rows are foreign, by a field that orders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError


class Since(NamedTuple):
    """The value from which rows are foreign, and the share of foreign rows from there on and before it."""

    first: str
    after: float
    before: float


def since(values: Sequence[Any], foreign: NDArray[np.bool_]) -> Since:
    """The value of a field, such as a date, that best separates foreign rows (n,) from the others before it.

    Numbers are ordered as numbers, everything else as text, which is right for dates written year first.
    """
    if any(value is None for value in values):
        raise InputError(f"--since: {sum(value is None for value in values)} rows have no such field; choose another")
    numeric = all(isinstance(value, int | float) for value in values)
    keys = [value if numeric else str(value) for value in values]
    order = sorted(range(len(keys)), key=lambda row: keys[row])
    marks = foreign[order]
    # For a cut before position i, the foreign rows from i on and the other rows before i are on the right side.
    right = np.cumsum(np.r_[0, ~marks]) + (marks.sum() - np.cumsum(np.r_[0, marks]))
    starts = [place for place in range(len(order)) if place == 0 or keys[order[place]] != keys[order[place - 1]]]
    cut = max(starts, key=lambda place: right[place])
    return Since(str(keys[order[cut]]), float(marks[cut:].mean()), float(marks[:cut].mean()) if cut else 0.0)

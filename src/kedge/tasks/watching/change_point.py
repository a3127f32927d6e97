"""Find since when, or until when, rows are foreign, by a field that orders them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError


class Since(NamedTuple):
    """The `first` value after the change, and the share of foreign rows from there on (`after`) and `before` it.

    With `until`, rows were foreign before that value, not since.
    """

    first: str
    after: float
    before: float
    until: bool = False

    def sentence(self, field: str) -> str:
        """The same for people; `field` is what holds the value."""
        if self.until:
            return (
                f"until {field} = {self.first}: {self.before:.0%} of the rows before it are foreign, {self.after:.0%} "
                "of those from there on"
            )
        return (
            f"since {field} = {self.first}: {self.after:.0%} of the rows from there on are foreign, {self.before:.0%} "
            "of those before"
        )


def since(values: Sequence[Any], foreign: NDArray[np.bool_]) -> Since:
    """The value of a field, such as a date, that best separates foreign rows (n,) from the others, on either side.

    Numbers are ordered as numbers, everything else as text, which is right for dates written year first.
    """
    if any(value is None for value in values):
        raise InputError(f"--since: {sum(value is None for value in values)} rows have no such field; choose another")
    numeric = all(isinstance(value, int | float) for value in values)
    keys = [value if numeric else str(value) for value in values]
    order = sorted(range(len(keys)), key=lambda row: keys[row])
    marks = foreign[order]
    # For a cut before position i, how many more foreign rows are on one side than if they were spread evenly.
    uneven = np.abs(np.cumsum(np.r_[0, marks]) - marks.mean() * np.arange(len(marks) + 1))
    starts = [place for place in range(len(order)) if place == 0 or keys[order[place]] != keys[order[place - 1]]]
    cut = max(starts, key=lambda place: uneven[place])
    after, before = float(marks[cut:].mean()), float(marks[:cut].mean()) if cut else 0.0
    return Since(str(keys[order[cut]]), after, before, until=after < before)

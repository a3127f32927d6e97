"""What users hand to the estimators, checked and turned into rows and numbers."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.spaces import Embeddings
from kedge.spaces.embeddings import Key

RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None

_WHOLE = (int, np.integer)


def as_anchor_rows(anchors: Iterable[Key] | ArrayLike, x: Embeddings) -> NDArray[np.int64]:
    """Anchors given by keys or rows, as distinct rows (a,) of X."""
    listed = as_list(anchors)
    if listed is None:
        described = f"{type(anchors).__name__} {reprlib.repr(anchors)}"
        raise InputError(f"anchors must be a list of keys or rows of x, got {described}")
    if not listed:
        raise InputError("anchors: none are given; give at least one key or row of x")
    rows: dict[int, int] = {}
    for number, value in enumerate(listed, start=1):
        row = row_named(value, x)
        if row is None:
            raise InputError(f"anchors, number {number}: {describe_unknown(value, x, 'x')}")
        if rows.setdefault(row, number) != number:
            raise InputError(
                f"anchors: {x.keys[row]!r} is given twice, as number {rows[row]} and {number}; anchors must be distinct"
            )
    return np.asarray(list(rows), dtype=np.int64)


def as_random_state(given: RandomState) -> int:
    """The number that is given, or one drawn from a NumPy generator, or for None from the operating system."""
    if given is None:
        given = np.random.default_rng()
    if isinstance(given, np.random.Generator):
        return int(given.integers(2**31))
    if isinstance(given, np.random.RandomState):
        return int(given.randint(2**31 - 1))
    if not isinstance(given, _WHOLE) or not 0 <= given < 2**63:
        raise InputError(
            f"random_state must be a whole number of at least 0, None or a random generator of NumPy, got {given!r}"
        )
    return int(given)


def as_list(values: Any) -> list[Any] | None:
    """The elements of an array, tensor, table column or other iterable; None for a text, a mapping or anything else."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return None
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return listed if isinstance(listed, list) else None


def row_named(value: Key, space: Embeddings) -> int | None:
    """The row that a key names, or a row number if keys are not numbers themselves; None if there is no such row."""
    if isinstance(value, _WHOLE) and not space.has_numbers_as_keys:
        return int(value) if 0 <= value < len(space) else None
    try:
        return space.row_of.get(value)
    except TypeError:  # not hashable, so not a key
        return None


def describe_unknown(value: Key, space: Embeddings, side: str) -> str:
    """Why `row_named` finds no row."""
    described = side if space.source == side else f"{side} ({space.source})"
    if not isinstance(value, _WHOLE):
        return f"{described} has no key {value!r}; {space.describe_keys(value)}"
    if space.has_numbers_as_keys:
        return (
            f"{described} has no key {value!r}; its keys are whole numbers, so that whole numbers name keys, not rows; "
            f"{space.describe_keys(value)}"
        )
    return f"{value} is no row of {described}; rows are 0 to {len(space) - 1}"

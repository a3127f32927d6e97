"""Pairs in the forms that Python users have them in, turned into rows of two spaces."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.estimators.inputs import as_list, describe_unknown, row_named
from kedge.spaces import Embeddings
from kedge.spaces.conversion import is_frame, is_series
from kedge.spaces.embeddings import Key

PairsLike: TypeAlias = Mapping[Key, Key] | Iterable[tuple[Key, Key]] | ArrayLike | None
"""Pairs of keys or rows in one of the forms that `AnchorDiscovery.fit` takes."""


def as_seed_rows(
    seeds: PairsLike, x: Embeddings, y: Embeddings, minimum: int, name: str = "seeds"
) -> NDArray[np.int64]:
    """Seeds as distinct rows (s, 2), none of which contradicts another; messages call them `name`."""
    rows = as_pair_rows(seeds, x, y, name)
    _refuse_contradictions(rows, x, y, name)
    distinct = np.asarray(list(dict.fromkeys(map(tuple, rows.tolist()))), dtype=np.int64).reshape(-1, 2)
    if len(distinct) < minimum:
        raise InputError(f"{name}: this method needs at least {minimum} distinct pairs, got {len(distinct)}; add more")
    return distinct


def as_pair_rows(pairs: PairsLike, x: Embeddings, y: Embeddings, name: str) -> NDArray[np.int64]:
    """Pairs in any of the forms that `AnchorDiscovery.fit` takes, as rows (p, 2) in their order."""
    listed = _listed_pairs(pairs, name)
    rows = np.empty((len(listed), 2), dtype=np.int64)
    for column, (space, side) in enumerate(((x, "x"), (y, "y"))):
        found = [row_named(pair[column], space) for pair in listed]
        if None in found:
            number = found.index(None)
            described = describe_unknown(listed[number][column], space, side)
            raise InputError(f"{name}, number {number + 1}, {listed[number]!r}: {described}")
        rows[:, column] = np.asarray(found, dtype=np.int64)
    return rows


def _listed_pairs(pairs: Any, name: str) -> list[tuple[Key, Key]]:
    """The pairs as a list, whatever form they are given in."""
    if pairs is None:
        return []
    if is_frame(pairs):
        pairs = list(zip(*_two_columns(pairs, name), strict=True))
    elif is_series(pairs) or isinstance(pairs, Mapping):
        pairs = list(pairs.items())
    elif isinstance(pairs, tuple) and len(pairs) == 2 and all(map(_is_column, pairs)):
        pairs = _zipped(*pairs, name)
    listed = as_list(pairs)
    if listed is None:
        raise InputError(
            f"{name} must be pairs of keys or rows, (of x, of y): a list, dict, DataFrame or array (s, 2) of them, "
            f"got {type(pairs).__name__} {reprlib.repr(pairs)}"
        )
    for number, pair in enumerate(listed, start=1):
        if not _is_pair(pair):
            raise InputError(
                f"{name} must be pairs of keys or rows, (of x, of y), number {number} is {pair!r}; those of x and "
                "those of y apart are given as a tuple of two lists"
            )
    return [tuple(pair.tolist() if hasattr(pair, "tolist") else pair) for pair in listed]


def _is_pair(values: Any) -> bool:
    return (isinstance(values, tuple | list) or _is_column(values)) and len(values) == 2


def _two_columns(frame: Any, name: str) -> tuple[list[Key], list[Key]]:
    """The columns x and y of a DataFrame, or its only two."""
    names = list(frame.columns)
    places = [names.index("x"), names.index("y")] if {"x", "y"} <= set(names) else list(range(len(names)))
    if len(places) != 2:
        raise InputError(
            f"{name}: a DataFrame needs two columns, or columns named x and y among others, got {len(names)}: "
            f"{', '.join(map(repr, names[:8]))}"
        )
    first, second = (frame.iloc[:, place].tolist() for place in places)
    return first, second


def _is_column(values: object) -> bool:
    """Whether it is a list or 1-d array; in a tuple of two, that is a column, since a pair would be a tuple."""
    return isinstance(values, list) or (hasattr(values, "tolist") and getattr(values, "ndim", 1) == 1)


def _zipped(of_x: Any, of_y: Any, name: str) -> list[tuple[Key, Key]]:
    """Two columns of keys or rows, of x and of y, as pairs."""
    of_x, of_y = (column if isinstance(column, list) else column.tolist() for column in (of_x, of_y))
    if len(of_x) == len(of_y) == 2:
        raise InputError(
            f"{name}: two lists of two may be two pairs, or the keys of x and those of y apart; give a list of pairs, "
            "or a dict"
        )
    if len(of_x) != len(of_y):
        raise InputError(
            f"{name}: of x and of y as many are needed, to be paired in their order, got {len(of_x)} and {len(of_y)}"
        )
    return list(zip(of_x, of_y, strict=True))


def _refuse_contradictions(rows: NDArray[np.int64], x: Embeddings, y: Embeddings, name: str) -> None:
    """Raise an `InputError` if a row is in two different pairs; one pair may be given more than once."""
    pairs = rows.tolist()
    for column in (0, 1):
        first: dict[int, int] = {}
        for number, pair in enumerate(pairs):
            other = first.setdefault(pair[column], number)
            if pairs[other] != pair:
                described = ", and ".join(
                    f"number {place + 1}, {(x.keys[pairs[place][0]], y.keys[pairs[place][1]])}"
                    for place in (other, number)
                )
                raise InputError(f"{name} contradict each other: {described}; keep one of the two")

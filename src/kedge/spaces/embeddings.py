"""`Embeddings`: one space, i.e. unique keys with one vector each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, UnknownKeyError, did_you_mean
from kedge.spaces.formats.dense import as_dense

Key: TypeAlias = Any
"""The name of a row: a string or, in Python, a number or any other hashable object."""

_CHECK_ROWS = 16_384


def unusable_rows(vectors: NDArray[np.float32]) -> dict[int, str]:
    """The rows of `vectors` (n, d) that have no direction, with what is wrong with each."""
    # In float64 no square of a finite float32 overflows or underflows, so one sum is enough.
    squared = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(squared) | (squared == 0)).tolist()
    return {row: "is a zero vector" if squared[row] == 0 else "has NaN or infinite values" for row in wrong}


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Keys and vectors of one encoder.

    Parameters
    ----------
    keys : sequence of str, length n
        Unique names of the rows: strings, numbers or any other hashable objects. Files and pages hold them as text,
        see `with_text_keys`.
    vectors : array, shape (n, d)
        Any real dtype; converted to float32. A float32 array is not copied, even if it is memory-mapped. A
        memory-mapped float16 array stays as it is: its rows are converted to float32 in batches, where they are used.
    source : str
        Where the rows come from, for messages.
    prefix_of : int, optional
        The full number of dimensions, if these are only the first ones; see `first_dims`.

    Raises
    ------
    InputError
        If vectors are empty, ragged, NaN, infinite or zero, or if keys are missing or not unique.
    """

    keys: Sequence[Key]
    vectors: NDArray[np.float32]
    source: str = "embeddings"
    prefix_of: int | None = None

    def __post_init__(self) -> None:
        vectors = self.vectors if isinstance(self.vectors, np.ndarray) else as_dense(self.vectors, self.source)
        if vectors.ndim != 2:
            raise InputError(f"{self.source}: vectors must have shape (rows, dimensions), got shape {vectors.shape}")
        if not (np.issubdtype(vectors.dtype, np.floating) or np.issubdtype(vectors.dtype, np.integer)):
            raise InputError(f"{self.source}: vectors must be real numbers, got dtype {vectors.dtype}")
        if vectors.shape[0] == 0 or vectors.shape[1] == 0:
            raise InputError(
                f"{self.source}: the space is empty (shape {vectors.shape}); give at least one row and dimension"
            )
        object.__setattr__(self, "keys", _listed(self.keys))
        if vectors.shape[0] != len(self.keys):
            raise InputError(
                f"{self.source}: one key for each vector is needed, got {len(self.keys)} keys "
                f"for {vectors.shape[0]} vectors"
            )
        if not (isinstance(vectors, np.memmap) and vectors.dtype == np.float16):
            with np.errstate(over="ignore"):  # a float64 too large for float32 is reported below, as infinite
                vectors = vectors.astype(np.float32, copy=False)
        object.__setattr__(self, "vectors", vectors)
        self._check_keys()
        self._check_vectors()

    def _check_keys(self) -> None:
        if isinstance(self.keys, range):  # row numbers, which are distinct
            return
        for row, key in enumerate(self.keys):
            if not isinstance(key, str):
                self._check_other_key(row, key)
                continue
            try:
                key.encode("utf-8")
            except UnicodeEncodeError as error:
                raise InputError(f"{self.source}: the key of row {row} is not valid Unicode ({error})") from error
        if len(self.row_of) != len(self.keys):
            first: dict[Key, int] = {}
            for row, key in enumerate(self.keys):
                if key in first:
                    raise InputError(
                        f"{self.source}: duplicate key {key!r} in rows {first[key]} and {row}; "
                        "keys must be unique, remove or rename one"
                    )
                first[key] = row

    def _check_other_key(self, row: int, key: object) -> None:
        try:
            hash(key)
            missing = key is None or bool(key != key)  # NaN, which tables use for missing values, != itself
        except (TypeError, ValueError):
            missing = True
        if missing:
            raise InputError(
                f"{self.source}: keys must be strings, numbers or other hashable objects; "
                f"row {row} has {type(key).__name__} {key!r}"
            )

    def _check_vectors(self) -> None:
        for begin in range(0, len(self.vectors), _CHECK_ROWS):
            for place, what in unusable_rows(self.vectors[begin : begin + _CHECK_ROWS]).items():
                row = begin + place
                raise InputError(
                    f"{self.source}: the vector of key {self.keys[row]!r} (row {row}) {what}; "
                    "remove that row or repair it"
                )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def dim(self) -> int:
        """Number of dimensions d."""
        return int(self.vectors.shape[1])

    @cached_property
    def row_of(self) -> dict[Key, int]:
        """The row of each key."""
        return {key: row for row, key in enumerate(self.keys)}

    @cached_property
    def has_numbers_as_keys(self) -> bool:
        """Whether any key is an integer, so that an integer means a key and not a row number."""
        return any(isinstance(key, int | np.integer) for key in self.keys)

    def rows(self, keys: Iterable[Key]) -> NDArray[np.int64]:
        """Row numbers of the given keys, in the same order; an unknown key raises `UnknownKeyError`."""
        found = []
        for key in keys:
            row = self.row_of.get(key)
            if row is None:
                message = f"{self.source}: unknown key {key!r}; {self.describe_keys(key)}"
                raise UnknownKeyError(message, str(key), self.source)
            found.append(row)
        return np.asarray(found, dtype=np.int64)

    def describe_keys(self, unknown: Key) -> str:
        """What an error message about an unknown key says about the existing ones."""
        texts = [key for key in self.keys if isinstance(key, str)]
        near = did_you_mean(unknown, texts) if isinstance(unknown, str) else ""
        return f"it has {len(self)} keys, e.g. {self.keys[0]!r}{near}"

    def with_text_keys(self) -> Embeddings:
        """The same rows with each key as text, `str(key)`, as files and pages hold them.

        Raises `InputError` if two keys have the same text, such as 1 and "1".
        """
        if all(isinstance(key, str) for key in self.keys):
            return self
        same = object.__new__(Embeddings)  # without __post_init__: all is checked already
        for name, value in (
            ("keys", texts_of(self.keys, self.source)),
            ("vectors", self.vectors),
            ("source", self.source),
            ("prefix_of", self.prefix_of),
        ):
            object.__setattr__(same, name, value)
        return same

    def take(self, rows: Iterable[int]) -> Embeddings:
        """A new space with the given rows, in the given order."""
        index = np.asarray(list(rows), dtype=np.int64)
        return Embeddings([self.keys[row] for row in index], self.vectors[index], self.source, self.prefix_of)

    def first_dims(self, dims: int) -> Embeddings:
        """The same rows with only their first `dims` dimensions, as Matryoshka models allow."""
        if not 1 <= dims <= self.dim:
            raise InputError(f"{self.source}: dims must be from 1 to {self.dim}, the number of dimensions; got {dims}")
        return Embeddings(self.keys, self.vectors[:, :dims], self.source, self.prefix_of or self.dim)

    def __repr__(self) -> str:
        return f"Embeddings({len(self)} x {self.dim}, source={self.source!r})"


def texts_of(keys: Iterable[Key], source: str) -> list[str]:
    """Distinct keys as text; raises `InputError` if two have the same text."""
    key_of: dict[str, Key] = {}
    for key in keys:
        other = key_of.setdefault(str(key), key)
        if other is not key:
            raise InputError(
                f"{source}: the keys {other!r} and {key!r} become the same text in a file or on a page; rename one"
            )
    return list(key_of)


def _listed(keys: Iterable[Key]) -> Sequence[Key]:
    """Keys of arrays and tables as Python objects; other sequences unchanged."""
    if hasattr(keys, "tolist"):
        return keys.tolist()
    return keys if isinstance(keys, Sequence) else list(keys)

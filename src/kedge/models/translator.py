"""`Translator`: normalise, map, denormalise; takes vectors of one space into another, in plain NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.models.maps.protocol import Map

if TYPE_CHECKING:
    from kedge.models.translation_trust import Trust, TrustEvidence

# Rows, and numbers, translated at once, so that temporaries, some of them float64, are never as large as a space.
_ROWS, _NUMBERS = 4096, 2**21
_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Normaliser:
    """Scales to unit norm, subtracts `center` (d,) and scales again, and back; zeros if a space was not centered."""

    center: NDArray[np.float32]

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Normalise vectors (k, d)."""
        # In float64 the square of a finite float32 neither overflows nor underflows.
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        return unit_rows((rows / lengths[:, None] - self.center).astype(np.float32))

    def inverse(self, directions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The unit vectors (k, d) that are normalised to these unit rows (k, d), which are overwritten.

        They lie where the ray from the center in that direction meets the unit sphere.
        """
        along = directions @ self.center
        directions *= (np.sqrt(along * along + np.float32(self.left_over)) - along)[:, None]
        directions += self.center
        return directions

    @property
    def left_over(self) -> float:
        """1 minus the squared length of the center, in [0, 1]."""
        center = self.center.astype(np.float64)
        return max(0.0, float(1 - center @ center))


@dataclass(frozen=True)
class TranslationStep:
    """One map between two normalised spaces."""

    source: Normaliser
    map: Map
    target: Normaliser

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors (k, ds) of the source as unit vectors (k, dt) of the target."""
        return self.target.inverse(unit_rows(self.map(self.source(rows))))


@dataclass(frozen=True)
class Translator:
    """Translates vectors of a source with ds dimensions into the space of a target with dt, in one step or several.

    Called with vectors (k, ds) it gives (k, dt), with one (ds,) one (dt,), all of norm `length`. It needs only NumPy:
    `kedge.load_translator(RUN)` loads that of a run without torch. `evidence` is what `trust` rests on, and
    `score_offset` what to add to the similarity of a translated row in an index that also holds rows of the target's
    own model; both are None if they are not known. If the ds dimensions are the first of more, `prefix_of` says of how
    many, and vectors of that length are taken, too.
    """

    steps: tuple[TranslationStep, ...]
    length: float = 1.0
    evidence: TrustEvidence | None = None
    score_offset: float | None = None
    prefix_of: int | None = None

    @property
    def dims(self) -> tuple[int, int]:
        """Dimensions ds and dt."""
        return self.steps[0].map.dims[0], self.steps[-1].map.dims[1]

    @property
    def dims_taken(self) -> tuple[int, ...]:
        """How many dimensions given vectors may have: ds, or `prefix_of`."""
        return (self.dims[0],) if self.prefix_of is None else (self.dims[0], self.prefix_of)

    def then(self, other: Translator) -> Translator:
        """A translator by this one and then another, whose source is this one's target: A to B, then B to C."""
        if self.dims[1] != other.dims[0]:
            raise InputError(
                f"a translator into {self.dims[1]} dimensions cannot be followed by one from {other.dims[0]}; "
                "give one whose source is this one's target"
            )
        steps = self.steps + other.steps
        return replace(other, steps=steps, evidence=None, score_offset=None, prefix_of=self.prefix_of)

    def __call__(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Vectors (k, ds), or one (ds,), of the source as vectors (k, dt), or one (dt,), of the target."""
        given, rows = self._as_rows(vectors)
        translated = np.empty((len(rows), self.dims[1]), dtype=np.float32)
        for some in self._pieces(len(rows)):
            translated[some] = self._translate(rows[some])
        return translated.reshape(*given.shape[:-1], self.dims[1])

    def trust(self, vectors: ArrayLike) -> Trust:
        """How far to trust the translations of vectors (k, ds), or of one (ds,): see `Trust`."""
        if self.evidence is None:
            raise InputError(
                "it is not known how far this translator can be trusted: a run folder says so for vectors of X, if at "
                "least 40 pairs could be held out; exported files and chains of translators do not"
            )
        given, rows = self._as_rows(vectors)
        parts = [self.evidence(self.steps[0].source, rows[some]) for some in self._pieces(max(1, len(rows)))]
        shape = given.shape[:-1]
        return type(parts[0])(*(np.concatenate(figures).reshape(shape) for figures in zip(*parts, strict=True)))

    def _pieces(self, rows: int) -> Iterator[slice]:
        """Slices of `rows` rows, some at a time."""
        count = max(1, min(_ROWS, _NUMBERS // max(self.dims)))
        return (slice(begin, begin + count) for begin in range(0, rows, count))

    def _as_rows(self, vectors: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Check vectors; returns them as given, (k, ds) or (ds,), and as rows (k, ds), which all have a direction."""
        source = self.dims[0]
        try:
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
                given = np.asarray(vectors, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"vectors must be numbers, of shape (k, {source}) or ({source},): {error}") from error
        if given.ndim not in (1, 2) or given.shape[-1] not in self.dims_taken:
            raise InputError(f"vectors must have shape (k, {source}) or ({source},), got {given.shape}")
        rows = given.reshape(-1, given.shape[-1])[:, :source]
        faulty = np.flatnonzero(~np.isfinite(rows).all(axis=1) | ~rows.any(axis=1))
        if len(faulty):
            raise InputError(
                f"vectors, row {faulty[0]}: is zero or holds NaN or infinite values, so it has no direction; "
                "omit it or encode it again"
            )
        return given, rows

    def translate(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """The same as a call, under the name that it has on a fitted discovery."""
        return self(vectors)

    def _translate(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        for step in self.steps:
            rows = step(rows)
        return rows * np.float32(self.length)


def unit_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors (k, d) scaled to unit norm."""
    return unit_rows(np.array(vectors, dtype=np.float32))


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows (k, d) scaled to unit norm, in place; a zero row stays zero."""
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), _TINY)[:, None]
    return rows

"""The uses of a fitted `CommonSpace`: translation, common coordinates, groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError, did_you_mean
from kedge.estimators.parameters import Parameters
from kedge.extras import needing
from kedge.many.common_health import CommonHealth
from kedge.many.member import CommonMetric, Member, PairOfMembers
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import TranslationStep, Translator
from kedge.spaces.conversion import SpaceLike
from kedge.spaces.embeddings import Key

if TYPE_CHECKING:
    import pandas as pd

Matrix = NDArray[np.float32]


class FittedCommonSpace(Parameters):
    """The part of `CommonSpace` that needs only what was learned, not the spaces themselves."""

    members_: dict[str, Member]
    groups_: NDArray[np.int64]
    group_probability_: Matrix
    group_keys_: list[tuple[Key | None, ...]]
    seeds_: NDArray[np.int64]
    health_: CommonHealth
    matches_: dict[tuple[str, str], NDArray[np.int64]]
    random_state_: int
    provenance_: dict[str, Any]

    def translate(self, vectors: SpaceLike, *, source: str, target: str, scale: str = "unit") -> Matrix:
        """Translate vectors (k, ds) of one space into another (k, dt), or one (ds,) into (dt,), by the common space.

        They have unit length, or with `scale="raw"` the mean length of the target's vectors.
        """
        return self.translator(source=source, target=target, scale=scale)(
            self.require_member(source).as_vectors(vectors)
        )

    def translator(self, *, source: str, target: str, scale: str = "unit") -> Translator:
        """The transformation behind `translate` as a `Translator`, which needs only NumPy."""
        if scale not in ("unit", "raw"):
            raise InputError(f"scale must be 'unit' or 'raw', got {scale!r}")
        first, second = self.require_member(source), self.require_member(target)
        if first is second:
            raise InputError(f"source and target are both {source!r}; give two spaces")
        step = TranslationStep(first.normaliser, LinearMap(first.into @ second.back), second.normaliser)
        return Translator((step,), second.mean_norm if scale == "raw" else 1.0)

    def project(self, vectors: SpaceLike, *, space: str, query: bool = False, metric: CommonMetric = "ip") -> Matrix:
        """Common coordinates of vectors (k, d) of a space, of documents or of queries.

        With "ip" (k, c + 2), the inner product of a query's and a document's coordinates, of any two members, is the
        log likelihood ratio of their being one item rather than two, so one index can hold documents of several
        encoders and answer queries of any of them. With "l2" (k, c + 1), distances give the same order.
        """
        return self.require_member(space).project(vectors, query=query, metric=metric)

    def between(self, source: str, target: str) -> PairOfMembers:
        """Two members as the sides of a pair, for functions such as `kedge.tasks.search`."""
        return PairOfMembers(self.require_member(source), self.require_member(target))

    def match(self, source: str, target: str) -> NDArray[np.int64]:
        """For every row of the source, the row of the target in its group (n,), -1 if there is none."""
        first, second = (list(self.members_).index(self.require_member(name).name) for name in (source, target))
        found = np.full(self.members_[source].rows, -1, dtype=np.int64)
        both = self.groups_[(self.groups_[:, [first, second]] >= 0).all(axis=1)]
        found[both[:, first]] = both[:, second]
        return found

    def groups_found(self) -> NDArray[np.bool_]:
        """Which groups (g,) have two rows or more that the known tuples alone do not bring together."""
        self._check_fitted()
        tuples_of: dict[tuple[int, int], list[int]] = {}
        for number, known in enumerate(self.seeds_.tolist()):
            for place, row in enumerate(known):
                if row >= 0:
                    tuples_of.setdefault((place, row), []).append(number)
        found = (self.groups_ >= 0).sum(axis=1) > 1
        for number in np.flatnonzero(found).tolist():
            rows = [(place, row) for place, row in enumerate(self.groups_[number].tolist()) if row >= 0]
            reached, tuples = {rows[0]}, list(tuples_of.get(rows[0], ()))
            while tuples:
                new = {one for one in enumerate(self.seeds_[tuples.pop()].tolist()) if one in rows} - reached
                tuples += [other for one in new for other in tuples_of[one]]
                reached |= new
            found[number] = len(reached) < len(rows)
        return found

    def groups_frame(self) -> pd.DataFrame:
        """The groups of two or more rows as a pandas DataFrame: `probability`, and a column of keys per member.

        `found` is false if the known tuples alone say so.
        """
        self._check_fitted()
        with needing("frames need", "pandas", install="kedge[pandas]", otherwise=", or use group_keys_"):
            import pandas
        many = [number for number, keys in enumerate(self.group_keys_) if sum(key is not None for key in keys) > 1]
        found = self.groups_found()
        columns: dict[str, list[Any]] = {
            "probability": [float(self.group_probability_[number]) for number in many],
            "found": [bool(found[number]) for number in many],
        }
        for place, name in enumerate(self.members_):
            columns[name] = [self.group_keys_[number][place] for number in many]
        return pandas.DataFrame(columns)

    def require_member(self, name: str) -> Member:
        """The member of this name; otherwise an `InputError` lists the members, or says why it was left out."""
        self._check_fitted()
        if name not in self.members_:
            out = self.health_.left_out.get(name)
            why = f"it was left out: {out}" if out else f"its spaces are {', '.join(self.members_)}"
            near = did_you_mean(name, self.members_)
            raise InputError(f"there is no space {name!r} in this common space{near}; {why}")
        return self.members_[name]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "members_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this CommonSpace is not fitted yet; call fit first")

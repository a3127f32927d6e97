"""What a discovery is used for once it is fitted: coordinates, translation, tables of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError
from kedge.estimators.parameters import Parameters
from kedge.extras import needing
from kedge.judging.health import Health
from kedge.matching import CandidateRecall
from kedge.models.maps.protocol import Map
from kedge.models.pair_model import PairModel
from kedge.models.query_map import QueryTranslation
from kedge.models.side import Side
from kedge.models.translator import TranslationStep, Translator
from kedge.runs.translators import Kind, Scale, require_kind, require_scale
from kedge.solving.steps import Step
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings, Key, texts_of

if TYPE_CHECKING:
    import pandas as pd


class FittedDiscovery(Parameters):
    """What `AnchorDiscovery` can do once it is fitted; its text says what the attributes are."""

    x_: Side
    y_: Side
    anchors_x_: NDArray[np.int64]
    anchors_y_: NDArray[np.int64]
    anchor_keys_: list[tuple[Key, Key]]
    anchor_confidence_: NDArray[np.float32]
    anchor_is_seed_: NDArray[np.bool_]
    seeds_: NDArray[np.int64]
    seed_keys_: list[tuple[Key, Key]]
    seed_found_keys_: list[Key]
    seed_is_suspect_: NDArray[np.bool_]
    seed_rank_: NDArray[np.float64]
    match_: NDArray[np.int64]
    confidence_: NDArray[np.float32]
    pairs_: NDArray[np.int64]
    pair_keys_: list[tuple[Key, Key]]
    pair_confidence_: NDArray[np.float32]
    model_: PairModel
    map_: Map
    map_back_: Map
    map_scores_: dict[str, Any]
    queries_: QueryTranslation | None
    whitening_: float
    health_: Health
    candidate_recall_: CandidateRecall | None
    history_: tuple[Step, ...]
    n_iter_: int
    converged_: bool
    random_state_: int
    provenance_: dict[str, Any]

    def transform(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dx) of X, as `x_.relative` gives them: for pipelines."""
        self._check_fitted()
        return self.x_.relative(vectors)

    def translate(
        self, vectors: SpaceLike, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text"
    ) -> NDArray[np.float32]:
        """Vectors (k, dx) of X in Y's space (k, dy), to search an index of Y's own vectors with, by cosine.

        With `back` vectors (k, dy) of Y in X's space. They have unit length, or with `scale="raw"` the mean length of
        the target's vectors, for an index of those as they are that compares by distance (L2). One vector (dx,), such
        as a query, becomes one (dy,).

        With `kind="query"` vectors of X are translated as queries are, if `fit` was given some.
        """
        self._check_fitted()
        source = self.y_ if back else self.x_
        return self.translator(back=back, scale=scale, kind=kind)(source.as_vectors(vectors))

    def translator(self, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text") -> Translator:
        """What `translate` does to vectors, as a part that needs NumPy only and can be followed by another."""
        self._check_fitted()
        require_scale(scale)
        require_kind(kind, back=back, known=self.queries_ is not None)
        source, target = (self.y_, self.x_) if back else (self.x_, self.y_)
        step = TranslationStep(source.normaliser, self.map_back_ if back else self.map_, target.normaliser)
        if kind == "query" and self.queries_ is not None:
            step = self.queries_.step
        return Translator((step,), target.mean_norm if scale == "raw" else 1.0)

    # -- its tables, and its keys -----------------------------------------------------------------

    def pairs_frame(self) -> pd.DataFrame:
        """The pairs as a DataFrame of pandas: `x`, `y`, `confidence`; surest first."""
        self._check_fitted()
        return self._frame(self.pair_keys_, confidence=self.pair_confidence_)

    def anchors_frame(self) -> pd.DataFrame:
        """The anchors as a DataFrame of pandas: `x`, `y`, `confidence`, `seed`."""
        self._check_fitted()
        return self._frame(self.anchor_keys_, confidence=self.anchor_confidence_, seed=self.anchor_is_seed_)

    def seeds_frame(self) -> pd.DataFrame:
        """The seeds as a DataFrame of pandas: `x`, `y`, `suspect`, `rank`, `found`."""
        self._check_fitted()
        return self._frame(
            self.seed_keys_, suspect=self.seed_is_suspect_, rank=self.seed_rank_, found=self.seed_found_keys_
        )

    def unmatched_frame(self) -> pd.DataFrame:
        """The rows without a match as a DataFrame of pandas: `space` ("X" or "Y"), `key`."""
        self._check_fitted()
        sides = (self.x_, self.y_)
        keys = [key for side in sides for key in side.unmatched_keys]
        spaces = [side.name for side in sides for _ in side.unmatched_keys]
        return _pandas().DataFrame({"space": spaces, "key": keys})

    def _frame(self, pairs: Sequence[tuple[Key, Key]], **columns: Sequence[Any] | NDArray[Any]) -> pd.DataFrame:
        sides = {"x": [left for left, _ in pairs], "y": [right for _, right in pairs]}
        return _pandas().DataFrame(sides | columns)

    def with_text_keys(self) -> Self:
        """The same with the texts of its keys, `str(key)`, as files and pages have them; itself where they are texts.

        Raises an `InputError` where two keys have one text, such as 1 and "1".
        """
        self._check_fitted()
        keys_x = [*(left for left, _ in self.pair_keys_), *self.x_.unmatched_keys]
        keys_y = [*(right for _, right in self.pair_keys_), *self.y_.unmatched_keys]
        if all(isinstance(key, str) for keys in (keys_x, keys_y) for key in keys):
            return self
        of_x = dict(zip(keys_x, texts_of(keys_x, "x"), strict=True))
        of_y = dict(zip(keys_y, texts_of(keys_y, "y"), strict=True))
        same = copy(self)
        for name in ("anchor_keys_", "pair_keys_", "seed_keys_"):
            setattr(same, name, [(of_x[left], of_y[right]) for left, right in getattr(self, name)])
        same.seed_found_keys_ = [of_y[key] for key in self.seed_found_keys_]
        same.x_ = replace(self.x_, unmatched_keys=tuple(of_x[key] for key in self.x_.unmatched_keys))
        same.y_ = replace(self.y_, unmatched_keys=tuple(of_y[key] for key in self.y_.unmatched_keys))
        return same

    def require_spaces(self, x: SpaceLike, y: SpaceLike) -> None:
        """Raise an `InputError` unless these are the spaces it was fitted on, as far as the anchors show."""
        for given, keys, side in (
            (x, [str(left) for left, _ in self.anchor_keys_], self.x_),
            (y, [str(right) for _, right in self.anchor_keys_], self.y_),
        ):
            space = as_space(given, side.name.lower()).with_text_keys()
            fits = space.dim == side.dim and all(key in space.row_of for key in keys)
            anchors = side.anchors["snapped"]
            if not fits or not np.allclose(side.whiten(space.vectors[space.rows(keys)]), anchors, atol=1e-3):
                raise InputError(
                    f"{space.source}: is not what this run had as {side.name}; give its files whole, X first and then Y"
                )

    def in_texts(self, x: SpaceLike, y: SpaceLike) -> tuple[Self, Embeddings, Embeddings]:
        """The discovery and the spaces it was fitted on, all with texts as keys: for files and pages, and since one
        that was loaded has texts where the spaces may have numbers.
        """
        space_x, space_y = as_space(x, "x").with_text_keys(), as_space(y, "y").with_text_keys()
        self.require_spaces(space_x, space_y)
        return self.with_text_keys(), space_x, space_y

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "map_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this AnchorDiscovery is not fitted yet; call fit first")


def _pandas() -> Any:
    with needing("frames need", "pandas", install="kedge[pandas]", otherwise=", or use pair_keys_ and the like"):
        import pandas
    return pandas

"""What a discovery is used for once it is fitted: coordinates, translation, tables of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError
from kedge.estimators.devices import normalise_rows, to_numpy
from kedge.estimators.inputs import as_vectors
from kedge.estimators.parameters import Parameters
from kedge.extras import needing
from kedge.geometry import PairModel, relative, unit
from kedge.judging.health import Health
from kedge.matching import Agreement
from kedge.models.translator import Translation
from kedge.solving.steps import Step
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings, Key, texts_of

if TYPE_CHECKING:
    import pandas as pd

AnchorKind = Literal["free", "snapped", "seeds"]
Scale = Literal["unit", "raw"]


class FittedDiscovery(Parameters):
    """What `AnchorDiscovery` can do once it is fitted; its text says what the attributes are."""

    anchors_x_: NDArray[np.int64]
    anchors_y_: NDArray[np.int64]
    anchor_keys_: list[tuple[Key, Key]]
    anchor_confidence_: NDArray[np.float32]
    anchor_is_seed_: NDArray[np.bool_]
    anchor_vectors_: NDArray[np.float32]
    free_anchors_: NDArray[np.float32]
    snapped_anchors_: NDArray[np.float32]
    seeds_: NDArray[np.int64]
    seed_keys_: list[tuple[Key, Key]]
    seed_found_keys_: list[Key]
    seed_is_suspect_: NDArray[np.bool_]
    seed_closer_: NDArray[np.float32]
    seed_vectors_x_: NDArray[np.float32]
    seed_vectors_y_: NDArray[np.float32]
    match_: NDArray[np.int64]
    confidence_: NDArray[np.float32]
    pairs_: NDArray[np.int64]
    pair_keys_: list[tuple[Key, Key]]
    pair_confidence_: NDArray[np.float32]
    unmatched_keys_x_: list[Key]
    unmatched_keys_y_: list[Key]
    model_: PairModel
    map_: NDArray[np.float32]
    map_back_: NDArray[np.float32]
    map_scores_: dict[str, Any]
    center_x_: NDArray[np.float32] | None
    center_y_: NDArray[np.float32] | None
    length_x_: float
    length_y_: float
    whitening_: float
    whitening_x_: NDArray[np.float32] | None
    whitening_y_: NDArray[np.float32] | None
    health_: Health
    candidate_recall_: Agreement | None
    history_: tuple[Step, ...]
    n_iter_: int
    converged_: bool
    random_state_: int
    provenance_: dict[str, Any]

    def normalise_x(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Unit norm and centering as in `fit`, for vectors (k, dx) of X."""
        self._check_fitted()
        return normalise_rows(as_vectors(vectors, "X", self.map_.shape), self.center_x_)

    def normalise_y(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Unit norm and centering as in `fit`, for vectors (k, dy) of Y."""
        self._check_fitted()
        return normalise_rows(as_vectors(vectors, "Y", self.map_.shape), self.center_y_)

    def transform(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dx) of X, as `transform_x` gives them: for pipelines."""
        return self.transform_x(vectors)

    def transform_x(self, vectors: SpaceLike, *, anchors: AnchorKind = "free") -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dx) of X: cosines to the anchors.

        `anchors="seeds"` uses the seeds alone; "free" and "snapped" are the same on this side.
        """
        described = self.describe_x(vectors)
        references = {
            "free": self.anchor_vectors_,
            "snapped": self.anchor_vectors_,
            "seeds": self.seed_vectors_x_,
        }
        return relative(described, _chosen(references, anchors))

    def transform_y(self, vectors: SpaceLike, *, anchors: AnchorKind = "free") -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dy) of Y, comparable with those of X."""
        described = self.describe_y(vectors)
        references = {
            "free": self.free_anchors_,
            "snapped": self.snapped_anchors_,
            "seeds": self.seed_vectors_y_,
        }
        return relative(described, _chosen(references, anchors))

    def describe_x(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Vectors (k, dx) of X as anchors see them: `normalise_x`, and whitened where the run is."""
        normalised = self.normalise_x(vectors)
        return _whitened(normalised, self.whitening_x_)

    def describe_y(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Vectors (k, dy) of Y as anchors see them."""
        normalised = self.normalise_y(vectors)
        return _whitened(normalised, self.whitening_y_)

    def shared_x(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Shared coordinates (k, c) of vectors (k, dx) of X.

        Their inner product with those of a vector of Y is the log of how much likelier the two are one item than two:
        the best similarity there is for search in either direction, by an index that knows inner products.
        """
        normalised = torch.from_numpy(self.normalise_x(vectors))
        return to_numpy(self.model_.shared_x(normalised))

    def shared_y(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Shared coordinates (k, c) of vectors (k, dy) of Y; see `shared_x`."""
        normalised = torch.from_numpy(self.normalise_y(vectors))
        return to_numpy(self.model_.shared_y(normalised))

    def map_x(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Carry vectors (k, dx) of X to unit vectors (k, dy) that compare with `normalise_y` by cosine."""
        return to_numpy(unit(torch.from_numpy(self.normalise_x(vectors) @ self.map_)))

    def map_y(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Carry vectors (k, dy) of Y to unit vectors (k, dx) that compare with `normalise_x` by cosine."""
        return to_numpy(unit(torch.from_numpy(self.normalise_y(vectors) @ self.map_back_)))

    def translate(self, vectors: SpaceLike, *, scale: Scale = "unit") -> NDArray[np.float32]:
        """Carry vectors (k, dx) of X into Y: vectors (k, dy) to search an index of Y's own vectors with, by cosine.

        They have unit length, or with `scale="raw"` the mean length of Y's vectors, for an index of those as they are
        that compares by distance (L2). One vector (dx,), such as a query, becomes one (dy,).
        """
        translation = self.translation(scale=scale)
        return translation.carry(as_vectors(vectors, "X", self.map_.shape))

    def translate_back(self, vectors: SpaceLike, *, scale: Scale = "unit") -> NDArray[np.float32]:
        """Carry vectors (k, dy) of Y into X: vectors (k, dx), as `translate` does the other way."""
        translation = self.translation(back=True, scale=scale)
        return translation.carry(as_vectors(vectors, "Y", self.map_.shape))

    def translation(self, *, back: bool = False, scale: Scale = "unit") -> Translation:
        """What `translate`, or with `back` `translate_back`, does to vectors, as arrays for use elsewhere."""
        self._check_fitted()
        if scale not in get_args(Scale):
            raise InputError(f"scale must be one of {', '.join(get_args(Scale))}, got {scale!r}")
        if back:
            length = self.length_x_ if scale == "raw" else 1.0
            return Translation.of(self.map_back_, self.center_y_, self.center_x_, length)
        length = self.length_y_ if scale == "raw" else 1.0
        return Translation.of(self.map_, self.center_x_, self.center_y_, length)

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
        """The seeds as a DataFrame of pandas: `x`, `y`, `suspect`, `closer`, `found`."""
        self._check_fitted()
        return self._frame(
            self.seed_keys_, suspect=self.seed_is_suspect_, closer=self.seed_closer_, found=self.seed_found_keys_
        )

    def unmatched_frame(self) -> pd.DataFrame:
        """The rows without a match as a DataFrame of pandas: `space` ("X" or "Y"), `key`."""
        self._check_fitted()
        keys = [*self.unmatched_keys_x_, *self.unmatched_keys_y_]
        spaces = ["X"] * len(self.unmatched_keys_x_) + ["Y"] * len(self.unmatched_keys_y_)
        return _pandas().DataFrame({"space": spaces, "key": keys})

    def _frame(self, pairs: Sequence[tuple[Key, Key]], **columns: Sequence[Any] | NDArray[Any]) -> pd.DataFrame:
        sides = {"x": [left for left, _ in pairs], "y": [right for _, right in pairs]}
        return _pandas().DataFrame(sides | columns)

    def with_text_keys(self) -> Self:
        """The same with the texts of its keys, `str(key)`, as files and pages have them; itself where they are texts.

        Raises an `InputError` where two keys have one text, such as 1 and "1".
        """
        self._check_fitted()
        keys_x = [*(left for left, _ in self.pair_keys_), *self.unmatched_keys_x_]
        keys_y = [*(right for _, right in self.pair_keys_), *self.unmatched_keys_y_]
        if all(isinstance(key, str) for keys in (keys_x, keys_y) for key in keys):
            return self
        of_x = dict(zip(keys_x, texts_of(keys_x, "x"), strict=True))
        of_y = dict(zip(keys_y, texts_of(keys_y, "y"), strict=True))
        same = copy(self)
        for name in ("anchor_keys_", "pair_keys_", "seed_keys_"):
            setattr(same, name, [(of_x[left], of_y[right]) for left, right in getattr(self, name)])
        same.seed_found_keys_ = [of_y[key] for key in self.seed_found_keys_]
        same.unmatched_keys_x_ = [of_x[key] for key in self.unmatched_keys_x_]
        same.unmatched_keys_y_ = [of_y[key] for key in self.unmatched_keys_y_]
        return same

    def require_spaces(self, x: SpaceLike, y: SpaceLike) -> None:
        """Raise an `InputError` unless these are the spaces it was fitted on, as far as the anchors tell."""
        for name, given, keys, vectors, describe in (
            ("X", x, [str(left) for left, _ in self.anchor_keys_], self.anchor_vectors_, self.describe_x),
            ("Y", y, [str(right) for _, right in self.anchor_keys_], self.snapped_anchors_, self.describe_y),
        ):
            space = as_space(given, name.lower()).with_text_keys()
            fits = space.dim == vectors.shape[1] and all(key in space.row_of for key in keys)
            if not fits or not np.allclose(describe(space.vectors[space.rows(keys)]), vectors, atol=1e-3):
                raise InputError(
                    f"{space.source}: is not what this run had as {name}; give its files whole, X first and then Y"
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


def _chosen(references: Mapping[str, NDArray[np.float32]], kind: str) -> NDArray[np.float32]:
    if kind not in references:
        raise InputError(f"anchors must be one of {', '.join(references)}, got {kind!r}")
    return references[kind]


def _whitened(rows: NDArray[np.float32], matrix: NDArray[np.float32] | None) -> NDArray[np.float32]:
    return rows if matrix is None else to_numpy(unit(torch.from_numpy(rows @ matrix)))


def _pandas() -> Any:
    with needing("frames need", "pandas", install="kedge[pandas]", otherwise=", or use pair_keys_ and the like"):
        import pandas
    return pandas

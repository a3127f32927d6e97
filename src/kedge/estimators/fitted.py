"""What a fitted discovery is used for: coordinates, translation, tables of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from html import escape
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError
from kedge.estimators.pair_inputs import PairsLike
from kedge.estimators.parameters import Parameters
from kedge.extras import needing
from kedge.judging.health import Health
from kedge.matching import CandidateRecall, Precision
from kedge.models.confidence_curve import ConfidenceCurve
from kedge.models.maps.protocol import Map
from kedge.models.mixed_scores import ScoreOffsets
from kedge.models.pair_model import PairModel
from kedge.models.query_map import QueryTranslation
from kedge.models.side import Side
from kedge.models.translation_trust import Trust, TrustEvidence
from kedge.models.translator import TranslationStep, Translator
from kedge.runs.translators import Kind, Scale, require_kind, require_scale
from kedge.solving.steps import Step
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings, Key, texts_of

if TYPE_CHECKING:
    import pandas as pd

_PAIRS_SHOWN = 5


class LinkedPairs(NamedTuple):
    """Which rows belong together, as far as a run knows: rows (q, 2), their keys, and confidences (q,), 1 for seeds.

    The first `found` are the found pairs, surest first; the others are the seeds that nothing contradicts.
    """

    rows: NDArray[np.int64]
    keys: list[tuple[Key, Key]]
    confidence: NDArray[np.float32]
    found: int


class FittedDiscovery(Parameters):
    """What `AnchorDiscovery` can do once it is fitted; its docstring describes the attributes."""

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
    seed_opinion_: NDArray[np.str_]
    seed_rank_: NDArray[np.float64]
    match_: NDArray[np.int64]
    confidence_: NDArray[np.float32]
    mutual_: NDArray[np.bool_]
    pairs_: NDArray[np.int64]
    pair_keys_: list[tuple[Key, Key]]
    pair_confidence_: NDArray[np.float32]
    model_: PairModel
    map_: Map
    map_back_: Map
    map_scores_: dict[str, Any]
    queries_: QueryTranslation | None
    trust_: TrustEvidence | None
    score_offsets_: ScoreOffsets | None
    whitening_: float
    health_: Health
    candidate_recall_: CandidateRecall | None
    confidence_curve_: ConfidenceCurve | None
    history_: tuple[Step, ...]
    n_iter_: int
    converged_: bool
    random_state_: int
    provenance_: dict[str, Any]
    _spaces: tuple[Embeddings, Embeddings]  # neither saved nor pickled: a run does not hold the vectors

    # constructor parameters that are used below
    method: str
    center: bool
    exact: bool
    memory_budget: int
    precision: Precision
    min_confidence: float

    @property
    def effective_dims_(self) -> int:
        """How many directions of the two spaces tell which rows belong together."""
        self._check_fitted()
        return len(self.model_.correlations)

    def transform(self, vectors: SpaceLike) -> NDArray[np.float32]:
        """Relative coordinates (k, a) of vectors (k, dx) of X, as `x_.relative` gives them: for pipelines."""
        self._check_fitted()
        return self.x_.relative(vectors)

    def translate(
        self, vectors: SpaceLike, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text"
    ) -> NDArray[np.float32]:
        """Translate vectors (k, dx) of X into Y's space (k, dy), to search an index of Y's own vectors by cosine.

        With `back`, translate vectors (k, dy) of Y into X's space. Results have unit length, or with `scale="raw"` the
        mean length of the target's vectors, for an index of raw vectors that compares by distance (L2). One vector
        (dx,), such as a query, becomes one (dy,).

        With `kind="query"`, vectors of X are translated as queries, if `fit` was given some.
        """
        self._check_fitted()
        source = self.y_ if back else self.x_
        return self.translator(back=back, scale=scale, kind=kind)(source.as_vectors(vectors))

    def translator(self, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text") -> Translator:
        """What `translate` does, as an object that needs NumPy only and can be followed by another."""
        self._check_fitted()
        require_scale(scale)
        require_kind(kind, back=back, known=self.queries_ is not None)
        source, target = (self.y_, self.x_) if back else (self.x_, self.y_)
        step = TranslationStep(source.normaliser, self.map_back_ if back else self.map_, target.normaliser)
        if kind == "query" and self.queries_ is not None:
            step = self.queries_.step
        offsets = self.score_offsets_
        offset = None if offsets is None else offsets.to_x if back else offsets.to_y
        length = target.mean_norm if scale == "raw" else 1.0
        return Translator((step,), length, None if back else self.trust_, offset, source.prefix_of)

    def trust(self, vectors: SpaceLike, *, kind: Kind = "text") -> Trust:
        """How far to trust the translations of vectors (k, dx) of X, or of one (dx,).

        `probability` is that of a vector's own text being among the first ten of Y, by pairs that were held out;
        `familiarity` is the share of X's rows that resemble other rows no more than this vector does. A service can
        fall back on another search if either is low.
        """
        self._check_fitted()
        return self.translator(kind=kind).trust(self.x_.as_vectors(vectors))

    # -- its tables, and its keys -----------------------------------------------------------------

    def linked_pairs(self) -> LinkedPairs:
        """The found pairs, and the seeds that nothing contradicts; no row is in two of them."""
        self._check_fitted()
        kept = self.seed_opinion_ != "contradicted"
        seed_keys = list(compress(self.seed_keys_, kept))
        return LinkedPairs(
            np.concatenate([self.pairs_, self.seeds_[kept]]),
            self.pair_keys_ + seed_keys,
            np.concatenate([self.pair_confidence_, np.ones(len(seed_keys), dtype=np.float32)]),
            len(self.pairs_),
        )

    def pairs_frame(self, min_confidence: float | None = None) -> pd.DataFrame:
        """The found pairs as a pandas DataFrame: `x`, `y`, `confidence`; surest first.

        With `min_confidence`, all mutual pairs at least this probable, whether or not `pairs_` lists them.
        """
        self._check_fitted()
        listed = self if min_confidence is None else self.with_min_confidence(min_confidence)
        return self._frame(listed.pair_keys_, confidence=listed.pair_confidence_)

    def lexicon_frame(
        self,
        x: SpaceLike | None = None,
        y: SpaceLike | None = None,
        *,
        top: int = 3,
        min_confidence: float = 0.5,
        known: PairsLike = None,
        device: str = "auto",
    ) -> pd.DataFrame:
        """Translations as a pandas DataFrame: `source`, `target`, `probability` (that it is acceptable), `rank`.

        For each row of X, at most `top` rows of Y that are at least this probable, best first; a row of Y may be the
        translation of several. A loaded run must be given the spaces it was fitted on. `known` pairs, besides the
        seeds, calibrate the probabilities.
        """
        from kedge.estimators.translations import find_translations

        self._check_fitted()
        pandas = _pandas()
        space_x, space_y = self._spaces_or(x, y)
        found = find_translations(
            self, space_x, space_y, top=top, known=known, min_confidence=min_confidence, device=device
        )
        rows, ranks = found.listed(min_confidence)
        return pandas.DataFrame(
            {
                "source": [space_x.keys[row] for row in rows.tolist()],
                "target": [space_y.keys[row] for row in found.rows[rows, ranks].tolist()],
                "probability": found.probability[rows, ranks],
                "rank": ranks + 1,
            }
        )

    def anchors_frame(self) -> pd.DataFrame:
        """The anchors as a pandas DataFrame: `x`, `y`, `confidence`, `seed`."""
        self._check_fitted()
        return self._frame(self.anchor_keys_, confidence=self.anchor_confidence_, seed=self.anchor_is_seed_)

    def seeds_frame(self) -> pd.DataFrame:
        """The seeds as a pandas DataFrame: `x`, `y`, `opinion`, `suspect`, `rank`, `found`."""
        self._check_fitted()
        columns = {"opinion": self.seed_opinion_, "suspect": self.seed_is_suspect_, "rank": self.seed_rank_}
        return self._frame(self.seed_keys_, **columns, found=self.seed_found_keys_)

    def unmatched_frame(self) -> pd.DataFrame:
        """The rows without a match as a pandas DataFrame: `space` ("X" or "Y"), `key`."""
        self._check_fitted()
        sides = (self.x_, self.y_)
        keys = [key for side in sides for key in side.unmatched_keys]
        spaces = [side.name for side in sides for _ in side.unmatched_keys]
        return _pandas().DataFrame({"space": spaces, "key": keys})

    def _frame(self, pairs: Sequence[tuple[Key, Key]], **columns: Sequence[Any] | NDArray[Any]) -> pd.DataFrame:
        sides = {"x": [left for left, _ in pairs], "y": [right for _, right in pairs]}
        return _pandas().DataFrame(sides | columns)

    def with_min_confidence(self, min_confidence: float) -> Self:
        """A copy that lists the mutual pairs at least this probable, surest first, without a new discovery."""
        self._check_fitted()
        if not 0 <= min_confidence <= 1:
            raise InputError(f"min_confidence must be from 0 to 1, got {min_confidence!r}")
        linked = self.linked_pairs()
        keys_x, keys_y = (
            _keys_of_rows(linked.rows[:, at], [pair[at] for pair in linked.keys], side.unmatched_keys)
            for at, side in enumerate((self.x_, self.y_))
        )
        seeds = linked.rows[linked.found :]
        free = self.mutual_ & ~np.isin(np.arange(len(self.match_)), seeds[:, 0]) & ~np.isin(self.match_, seeds[:, 1])
        rows = np.flatnonzero(free & (self.confidence_ >= np.float32(min_confidence)))
        place = np.full(len(self.match_), len(self.match_))
        place[self.pairs_[:, 0]] = np.arange(len(self.pairs_))  # equally sure pairs stay in their order
        rows = rows[np.lexsort((place[rows], -self.confidence_[rows]))]
        same = copy(self)
        same.min_confidence = min_confidence
        same.pairs_ = np.stack([rows, self.match_[rows]], axis=1)
        same.pair_confidence_ = self.confidence_[rows]
        same.pair_keys_ = [(keys_x[left], keys_y[right]) for left, right in same.pairs_.tolist()]
        matched = same.linked_pairs().rows
        for name, keys, paired in (("x_", keys_x, matched[:, 0]), ("y_", keys_y, matched[:, 1])):
            others = np.setdiff1d(np.arange(len(keys)), paired).tolist()
            setattr(same, name, replace(getattr(self, name), unmatched_keys=tuple(keys[row] for row in others)))
        return same

    def with_text_keys(self) -> Self:
        """A copy with keys as text, `str(key)`, as in files and pages; the discovery itself if they are already.

        Raises an `InputError` if two keys have the same text, such as 1 and "1".
        """
        self._check_fitted()
        linked = self.linked_pairs().keys
        keys_x = [*(left for left, _ in linked), *self.x_.unmatched_keys]
        keys_y = [*(right for _, right in linked), *self.y_.unmatched_keys]
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
        self._check_fitted()
        for given, keys, side in (
            (x, [str(left) for left, _ in self.anchor_keys_], self.x_),
            (y, [str(right) for _, right in self.anchor_keys_], self.y_),
        ):
            space = as_space(given, side.name.lower()).with_text_keys()
            fits = space.dim == side.dim and all(key in space.row_of for key in keys)
            anchors = side.anchors["snapped"]
            if not fits or not np.allclose(side.whiten(space.vectors[space.rows(keys)]), anchors, atol=1e-3):
                raise InputError(
                    f"{space.source}: is not what this run had as {side.name}; give its files whole, X first and then "
                    f"Y{side.prefix_hint(space.dim)}"
                )

    def in_texts(self, x: SpaceLike, y: SpaceLike) -> tuple[Self, Embeddings, Embeddings]:
        """The discovery and the spaces it was fitted on, all with texts as keys.

        Files and pages need them, and a loaded run has texts where the spaces may have numbers.
        """
        space_x, space_y = as_space(x, "x").with_text_keys(), as_space(y, "y").with_text_keys()
        self.require_spaces(space_x, space_y)
        return self.with_text_keys(), space_x, space_y

    def _spaces_or(self, x: SpaceLike | None, y: SpaceLike | None) -> tuple[Embeddings, Embeddings]:
        """The spaces that are given, or else those of `fit`."""
        if x is not None and y is not None:
            return as_space(x, "x"), as_space(y, "y")
        if x is None and y is None and hasattr(self, "_spaces"):
            return self._spaces
        raise InputError("x and y: a run that was loaded does not hold the vectors; give both spaces it was fitted on")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_spaces"}

    def _repr_html_(self) -> str:
        """How it went, for notebooks: the settings, the answers, what was found and the surest pairs."""
        title = f"<p><code>{escape(repr(self))}</code></p>"
        if not self.__sklearn_is_fitted__():
            return f"{title}<p>Not fitted yet.</p>"
        shown = zip(self.pair_keys_[:_PAIRS_SHOWN], self.pair_confidence_[:_PAIRS_SHOWN].tolist(), strict=True)
        rows = "".join(
            f"<tr><td>{escape(str(left))}</td><td>{escape(str(right))}</td><td>{confidence:.2f}</td></tr>"
            for (left, right), confidence in shown
        )
        counts = f"<p>{len(self.pairs_)} pairs, {len(self.anchors_x_)} anchors, {len(self.seeds_)} seeds.</p>"
        pairs = f"<table><tr><th>x</th><th>y</th><th>confidence</th></tr>{rows}</table>" if rows else ""
        return f"{title}{self.health_._repr_html_()}{counts}{pairs}"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "map_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this AnchorDiscovery is not fitted yet; call fit first")


def _keys_of_rows(rows: NDArray[np.int64], keys: Sequence[Key], unmatched: Sequence[Key]) -> list[Key]:
    """The keys of all rows of a space, in order, from those of rows (p,) in pairs and those of the others, in order."""
    others = np.setdiff1d(np.arange(len(keys) + len(unmatched)), rows)
    listed = [*keys, *unmatched]
    return [listed[place] for place in np.argsort(np.concatenate([rows, others])).tolist()]


def _pandas() -> Any:
    with needing("frames need", "pandas", install="kedge[pandas]", otherwise=", or use pair_keys_ and the like"):
        import pandas
    return pandas

"""Score a run against gold pairs: GT / Seed / Found / Snapped / Shared, search, and precision of anchors and pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from torch import Tensor

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.devices import resolve_device
from kedge.estimators.pair_inputs import PairsLike, as_pair_rows
from kedge.geometry import relative
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key
from kedge.tasks.retrieval_quality import RetrievalScores, retrieval_scores, shared_scores
from kedge.tasks.search_quality import SEARCH_NAMES, SearchScores, evaluate_search

SCORE_NAMES = {"jaccard": "Jaccard@10", "mrr": "MRR@10", "cosine": "cosine", "p_at_1": "P@1", "foscttm": "FOSCTTM"}
"""Table headers for the fields of `RetrievalScores`."""


@dataclass(frozen=True)
class Evaluation:
    """Retrieval scores for five kinds of coordinates, search scores, and the shares of correct anchors and pairs.

    GT: the true counterparts of the anchors (None if no anchor has a gold partner); Seed: the seeds alone (None without
    seeds); Found: free anchors; Snapped: the rows of Y they were snapped to; Shared: shared coordinates, which need no
    anchors. `searching` maps each search method to its scores over `gold_used` rows of X: those that have a gold
    partner and are in no seed. `anchors_exact` is computed over the anchors that are not seeds, `pairs_precision` over
    the found pairs whose truth is known (None if there are none), and `pairs_recall` over the rows of X that have a
    gold partner and are in no seed.
    """

    gt: RetrievalScores | None
    seed: RetrievalScores | None
    found: RetrievalScores
    snapped: RetrievalScores
    shared: RetrievalScores
    searching: dict[str, SearchScores | None]
    gold_used: int
    anchors_exact: float | None
    pairs_precision: float | None
    pairs_recall: float

    @property
    def rows(self) -> dict[str, RetrievalScores | None]:
        """The retrieval scores, keyed by their names in tables."""
        return {
            "GT": self.gt,
            "Seed": self.seed,
            "Found": self.found,
            "Snapped": self.snapped,
            "Shared": self.shared,
        }

    def table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table: a name, then the scores in the order of `SCORE_NAMES`."""
        return _table(self.rows, SCORE_NAMES)

    def search_table(self) -> list[tuple[str, ...]]:
        """Rows of a printable table of search scores, in the order of `SEARCH_NAMES`."""
        return _table(self.searching, SEARCH_NAMES)


class Truth:
    """Gold pairs, stored by their keys as text, against which found pairs are checked.

    `gold` (g, 2) holds rows of x and y; a row may have several partners, any of which counts as right. With `complete`,
    a row of x without a gold partner is known to have none, so any pair with it is wrong; otherwise it is not judged.
    """

    def __init__(self, x: Embeddings, y: Embeddings, gold: NDArray[np.int64], *, complete: bool) -> None:
        left, right = _keys(x.with_text_keys(), gold[:, 0]), _keys(y.with_text_keys(), gold[:, 1])
        self.pairs = set(zip(left, right, strict=True))
        self.known = {key for key, _ in self.pairs}
        self.complete = complete

    def judge(self, pair: tuple[Key, Key]) -> bool | None:
        """Whether a pair is right; None if unknown."""
        left, right = map(str, pair)
        return (left, right) in self.pairs if self.complete or left in self.known else None

    def share_right(self, pairs: Iterable[tuple[Key, Key]]) -> float | None:
        """The share of right pairs among those that can be judged; None if none can."""
        judged = [right for right in map(self.judge, pairs) if right is not None]
        return sum(judged) / len(judged) if judged else None

    def share_found(self, pairs: Iterable[tuple[Key, Key]], seeds: Iterable[tuple[Key, Key]]) -> float:
        """Of the rows of x that have a gold partner and are in no seed, the share paired with a gold partner here."""
        to_find = self.known - {str(left) for left, _ in seeds}
        found = {left for left, _ in self.pairs.intersection(pairs)} & to_find
        return len(found) / len(to_find) if to_find else 0.0


def evaluate(
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    gold: PairsLike,
    *,
    complete: bool,
    k: int = 10,
    device: str = "auto",
) -> Evaluation:
    """Score a fitted discovery against gold pairs.

    Parameters
    ----------
    discovery : AnchorDiscovery
        Fitted on `x` and `y`, or on parts of them.
    x, y : spaces (n, dx) and (m, dy)
        Embeddings, arrays, DataFrames, ...: see `AnchorDiscovery.fit`.
    gold : pairs of keys or rows
        In any form accepted for seeds, in any order. A row may have several partners: any of them counts as right for
        anchors, pairs and search. The retrieval scores need one partner per row, so they are computed over a largest
        one-to-one subset of the pairs.
    complete : bool
        Whether a row of x without a gold partner is known to have none, so that any pair with it is wrong;
        otherwise such pairs are not counted.
    k : int
        Number of neighbours for the Jaccard and MRR retrieval scores; search always uses ten.
    device : str
        Where to compute: "auto", "cpu", "cuda" or "cuda:N".
    """
    place = resolve_device(device)
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    rows = np.unique(as_pair_rows(gold, space_x, space_y, "gold"), axis=0)
    if not len(rows):
        raise InputError("gold: no pairs are given; give at least one")
    # A loaded run has text keys, so whatever it is compared with must have them too.
    discovery = discovery.with_text_keys()
    space_x, space_y = space_x.with_text_keys(), space_y.with_text_keys()
    truth = Truth(space_x, space_y, rows, complete=complete)
    hidden = [
        pair for pair, is_seed in zip(discovery.anchor_keys_, discovery.anchor_is_seed_, strict=True) if not is_seed
    ]

    one_to_one = _one_to_one(rows)
    vectors_x, vectors_y = space_x.vectors[one_to_one[:, 0]], space_y.vectors[one_to_one[:, 1]]
    partner = dict(rows[::-1].tolist()) | dict(one_to_one.tolist())  # an anchor may be outside the one-to-one subset
    anchor_rows = space_x.rows(key for key, _ in discovery.anchor_keys_).tolist()
    in_gold = [position for position, row in enumerate(anchor_rows) if row in partner]
    true_anchors = [partner[anchor_rows[position]] for position in in_gold]

    def score(
        source: NDArray[np.float32],
        target: NDArray[np.float32],
        scores: Callable[[Tensor, Tensor, int], RetrievalScores] = retrieval_scores,
    ) -> RetrievalScores:
        return scores(torch.from_numpy(source).to(place), torch.from_numpy(target).to(place), k)

    relative_x = discovery.x_.relative(vectors_x)
    searching = evaluate_search(discovery, space_x, space_y, rows, place)
    return Evaluation(
        gt=score(
            relative_x[:, in_gold],
            relative(discovery.y_.whiten(vectors_y), discovery.y_.whiten(space_y.vectors[true_anchors])),
        )
        if in_gold
        else None,
        seed=score(
            discovery.x_.relative(vectors_x, anchors="seeds"),
            discovery.y_.relative(vectors_y, anchors="seeds"),
        )
        if len(discovery.seeds_)
        else None,
        found=score(relative_x, discovery.y_.relative(vectors_y)),
        snapped=score(relative_x, discovery.y_.relative(vectors_y, anchors="snapped")),
        shared=score(discovery.x_.shared(vectors_x), discovery.y_.shared(vectors_y), shared_scores),
        searching=searching.scores,
        gold_used=searching.queries,
        anchors_exact=truth.share_right(hidden),
        pairs_precision=truth.share_right(discovery.pair_keys_),
        pairs_recall=truth.share_found(discovery.pair_keys_, discovery.seed_keys_),
    )


def gold_by_key(x: Embeddings, y: Embeddings, name: str = "gold") -> NDArray[np.int64]:
    """Pairs (g, 2) of the rows whose keys are equal; error messages call them `name`."""
    shared = [(row, y.row_of[key]) for row, key in enumerate(x.keys) if key in y.row_of]
    if not shared:
        raise InputError(f"{name}: {x.source} and {y.source} have no key in common; give {name} pairs in a file")
    return np.asarray(shared, dtype=np.int64)


def as_percent(share: float | None) -> str:
    """Format a share as a percentage: 100% only if it is exactly 1, and a dash if it is unknown."""
    if share is None:
        return "-"
    return ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def _keys(space: Embeddings, rows: NDArray[np.int64]) -> list[str]:
    return [space.keys[row] for row in rows.tolist()]


def _one_to_one(gold: NDArray[np.int64]) -> NDArray[np.int64]:
    """A largest subset (o, 2) of sorted, distinct pairs (g, 2) in which no row on either side has two partners."""
    rows_x, left = np.unique(gold[:, 0], return_inverse=True)
    rows_y, right = np.unique(gold[:, 1], return_inverse=True)
    graph = csr_array((np.ones(len(gold), dtype=bool), (left, right)), shape=(len(rows_x), len(rows_y)))
    chosen = maximum_bipartite_matching(graph, perm_type="column")
    return np.stack([rows_x[chosen >= 0], rows_y[chosen[chosen >= 0]]], axis=1)


def _table(
    rows: Mapping[str, RetrievalScores | None] | Mapping[str, SearchScores | None], names: Mapping[str, str]
) -> list[tuple[str, ...]]:
    return [
        (name, *(f"{getattr(scores, field):.3f}" if scores else "-" for field in names))
        for name, scores in rows.items()
    ]

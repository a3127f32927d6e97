"""Half-migrated indexes: rows that the new model encoded (*native*) and translated old rows, in one index.

Translated rows have the same mean similarity to a query as native ones but a different tail, and the nearest rows are
in the tail, so one kind crowds the other out of the first ten. A constant added to the scores of translated rows
corrects this. That is fair, not necessarily best: if the map is good, native rows are found more often for a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.errors import InputError
from kedge.matching import top_k, using_precision

MIN_TEXTS = 100
"""With fewer texts that both models have encoded, the tail cannot be estimated."""

_RANK = 3
_QUERIES = 1000


@dataclass(frozen=True)
class ScoreCalibration:
    """The offset added to the similarity of a translated row so that it competes with native rows as an equal."""

    offset: float

    def __call__(self, scores: Tensor, native: Tensor) -> Tensor:
        """Calibrated scores (q, m); `native` (m,) says which rows are the new model's own."""
        return scores + self.offset * ~native


def fit_calibration(native: Tensor, translated: Tensor) -> ScoreCalibration:
    """Fit the offset on texts in both forms: unit rows (n, d) by the new model, and translated ones in the same order.

    Each of at most 1,000 texts is a query to all others, and its third best scores among native and among translated
    rows are compared. The best texts for this are rows of the index that were encoded again but are not known pairs of
    the run: a run translates texts it has never seen worse than the index, and its known pairs better.
    """
    if native.shape != translated.shape or len(native) < MIN_TEXTS:
        raise InputError(
            f"a calibration needs at least {MIN_TEXTS} texts in both forms, got {len(native)} native and "
            f"{len(translated)} translated rows"
        )
    queries = native[:_QUERIES]
    own = torch.arange(len(queries), device=native.device)
    levels = []
    for rows in (native, translated):
        scores = queries @ rows.T
        scores[own, own] = -torch.inf
        levels.append(scores.topk(_RANK, dim=1).values[:, -1].mean())
    return ScoreCalibration(float(levels[0] - levels[1]))


def search_mixed(queries: Tensor, index: Tensor, native: Tensor, calibration: ScoreCalibration, k: int = 10) -> Tensor:
    """Search a mixed index (m, d) for the k best rows (q, k) of queries (q, d); `native` (m,) marks native rows.

    Each kind is searched on its own, as with a filter in a vector store, and the two lists are merged.
    """
    kinds = []
    for mask, offset in ((native, 0.0), (~native, calibration.offset)):
        rows = mask.nonzero().squeeze(1)
        if len(rows):
            with using_precision("float32"):
                scores, places = top_k(queries, index[rows], k)
            kinds.append((scores + offset, rows[places]))
    scores, found = (torch.cat(each, dim=1) for each in zip(*kinds, strict=True))
    return found.gather(1, scores.topk(min(k, found.shape[1]), dim=1).indices)

"""The page's section on gold pairs: a table of scores, and whether confidence is calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kedge.estimators import AnchorDiscovery
from kedge.tasks import SCORE_NAMES, Evaluation, Truth, as_percent, calibration_error, reliability, wilson_interval

_BINS = 20


@dataclass(frozen=True)
class GoldComparison:
    """A run evaluated against gold pairs, with an optional note."""

    evaluation: Evaluation
    truth: Truth
    note: str = ""


def gold_words(gold: GoldComparison) -> dict[str, Any]:
    """The words and figures for the template."""
    return {
        "note": gold.note,
        "columns": list(SCORE_NAMES.values()),
        "rows": gold.evaluation.table(),
        "anchors_exact": as_percent(gold.evaluation.anchors_exact),
        "precision": as_percent(gold.evaluation.pairs_precision),
        "recall": as_percent(gold.evaluation.pairs_recall),
        "complete": gold.truth.complete,
    }


def reliability_data(discovery: AnchorDiscovery, truth: Truth) -> dict[str, Any]:
    """Mean confidence and the share of right pairs in each bin, with the Wilson interval of the share."""
    judged = [
        (confidence, right)
        for pair, confidence in zip(discovery.pair_keys_, discovery.pair_confidence_.tolist(), strict=True)
        if (right := truth.judge(pair)) is not None
    ]
    confidences, rights = np.array(judged, dtype=np.float32).reshape(-1, 2).T
    table = reliability(confidences, rights.astype(bool), _BINS)
    bins = []
    for count, confidence, right in table.T.tolist():
        if count:
            low, high = wilson_interval(round(right), round(count))
            bins.append([round(value, 4) for value in (confidence / count, right / count, low, high)] + [int(count)])
    return {"bins": bins, "error": round(calibration_error(table), 4)}

"""A rehearsal: what searches would lose if the embedding model were changed, measured before it is.

Here live the metrics of a search (`metrics`), their measurement on texts that both models have encoded (`measurement`)
and what comes out of it (`outcome`). May import the modules of `kedge.tasks`, `kedge.estimators` and everything below.
"""

from kedge.tasks.rehearsal.measurement import rehearse
from kedge.tasks.rehearsal.metrics import METRIC_NAMES, DirectionResult, QueryCluster, SearchMetrics
from kedge.tasks.rehearsal.outcome import (
    DIRECTION_NAMES,
    MIN_PAIRS,
    MIN_TEXTS,
    Estimate,
    HeldOut,
    LowestMetric,
    Metric,
    Rehearsal,
)

__all__ = [
    "DIRECTION_NAMES",
    "METRIC_NAMES",
    "MIN_PAIRS",
    "MIN_TEXTS",
    "DirectionResult",
    "Estimate",
    "HeldOut",
    "LowestMetric",
    "Metric",
    "QueryCluster",
    "Rehearsal",
    "SearchMetrics",
    "rehearse",
]

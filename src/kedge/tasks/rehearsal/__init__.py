"""A rehearsal: what searches would lose if the embedding model were changed, measured before it is.

This package holds the search metrics (`metrics`), their measurement on texts that both models have encoded
(`measurement`) and on real queries (`judged`) with relevance judgements (`relevance`), stand-ins for queries
(`proxies`), and the results (`outcome`). May import the modules of `kedge.tasks`, `kedge.estimators` and everything
below.
"""

from kedge.tasks.rehearsal.judged import (
    JUDGED_METRIC_NAMES,
    SEARCH_ROW_NAMES,
    JudgedMetrics,
    JudgedSearch,
    JudgedSearches,
    KindOfQuery,
)
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
from kedge.tasks.rehearsal.proxies import ProxyQueries, make_proxies, read_proxies, write_proxies
from kedge.tasks.rehearsal.relevance import Relevance, RelevanceLike, read_relevance

__all__ = [
    "DIRECTION_NAMES",
    "JUDGED_METRIC_NAMES",
    "METRIC_NAMES",
    "MIN_PAIRS",
    "MIN_TEXTS",
    "SEARCH_ROW_NAMES",
    "DirectionResult",
    "Estimate",
    "HeldOut",
    "JudgedMetrics",
    "JudgedSearch",
    "JudgedSearches",
    "KindOfQuery",
    "LowestMetric",
    "Metric",
    "ProxyQueries",
    "QueryCluster",
    "Rehearsal",
    "Relevance",
    "RelevanceLike",
    "SearchMetrics",
    "make_proxies",
    "read_proxies",
    "read_relevance",
    "rehearse",
    "write_proxies",
]

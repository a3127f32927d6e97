"""The page's section on a rehearsal, in plain types."""

from __future__ import annotations

from typing import Any

from kedge.judging.health import Interval
from kedge.tasks import DIRECTION_NAMES, METRIC_NAMES, QueryCluster, Rehearsal

_MAX_LETTERS = 60


def rehearsal_words(rehearsal: Rehearsal) -> dict[str, Any]:
    """Values for the template: a table of the directions, and for each the kinds of queries, worst first."""
    return {
        "estimate": rehearsal.is_estimate,
        "seeds": rehearsal.seeds,
        "remarks": " ".join(rehearsal.remarks),
        "columns": list(METRIC_NAMES.values()),
        "directions": [
            {
                "name": DIRECTION_NAMES[name],
                "queries": f"{result.queries:,}",
                "index": f"{result.index:,}",
                "metrics": [_with_interval(each) for each in result.metrics.in_order()],
                "kinds": [_kind(cluster) for cluster in result.clusters],
            }
            for name, result in rehearsal.directions.items()
        ],
        "held_out": rehearsal.held_out.table() if rehearsal.held_out.meaningful else [],
        "caveat": rehearsal.held_out.caveat,
    }


def _with_interval(metric: Interval | None) -> tuple[str, str]:
    return (f"{metric.estimate:.3f}", f"{metric.low:.3f} to {metric.high:.3f}") if metric else ("-", "")


def _kind(cluster: QueryCluster) -> dict[str, Any]:
    """One kind of query: its most central keys, the number of queries, and metrics as text and as widths of a bar."""
    ndcg, recall = cluster.metrics.ndcg, cluster.metrics.self_recall_10
    return {
        "keys": cluster.short_keys(_MAX_LETTERS),
        "queries": f"{cluster.queries:,}",
        "self_recall": f"{recall.estimate:.3f}" if recall else "-",
        "ndcg": f"{ndcg.estimate:.3f}",
        "bar": {name: f"{100 * (getattr(ndcg, name) or 0):.2f}%" for name in ("estimate", "low", "high")},
    }

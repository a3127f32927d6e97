"""What the page says of a rehearsal, in plain types."""

from __future__ import annotations

from typing import Any

from kedge.judging.health import Interval
from kedge.tasks import FIGURE_NAMES, WAY_NAMES, QueryCluster, Rehearsal

_MOST_LETTERS = 60


def rehearsal_words(rehearsal: Rehearsal) -> dict[str, Any]:
    """For the template: tables, and of each way the kinds of queries, worst first."""
    return {
        "estimate": rehearsal.is_estimate,
        "seeds": rehearsal.seeds,
        "remarks": " ".join(rehearsal.remarks),
        "columns": list(FIGURE_NAMES.values()),
        "rows": [
            {
                "name": WAY_NAMES[name],
                "queries": f"{way.queries:,}",
                "index": f"{way.index:,}",
                "figures": [_with_interval(each) for each in way.figures.in_order()],
            }
            for name, way in rehearsal.ways.items()
        ],
        "held_out": rehearsal.held_out.table() if rehearsal.held_out.telling else [],
        "caveat": rehearsal.held_out.caveat,
        "ways": [
            {"name": WAY_NAMES[name], "kinds": [_kind(cluster) for cluster in way.clusters]}
            for name, way in rehearsal.ways.items()
            if way.clusters
        ],
    }


def _with_interval(figure: Interval | None) -> tuple[str, str]:
    return (f"{figure.estimate:.3f}", f"{figure.low:.3f} to {figure.high:.3f}") if figure else ("-", "")


def _kind(cluster: QueryCluster) -> dict[str, Any]:
    """Keys that stand for the queries, how many these are, and a figure as text and in percent of a bar."""
    ndcg = cluster.figures.ndcg
    own = cluster.figures.own_10
    return {
        "keys": cluster.short_keys(_MOST_LETTERS),
        "queries": f"{cluster.queries:,}",
        "own": f"{own.estimate:.3f}" if own else "-",
        "ndcg": f"{ndcg.estimate:.3f}",
        "bar": {name: f"{100 * (getattr(ndcg, name) or 0):.2f}%" for name in ("estimate", "low", "high")},
    }

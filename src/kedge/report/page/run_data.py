"""The data of a run that the page's scripts draw and search, in plain types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.report.figures.curves import Curve, expected_precision, rounds_of
from kedge.report.page.gold_section import GoldComparison, reliability_data
from kedge.report.page.row_texts import RowTexts
from kedge.report.picture.neighbourhoods import Near, Neighbourhoods, Side
from kedge.report.picture.projection import VIEWS, Places, Sample, project_to_plane
from kedge.report.picture.row_groups import groups_by_cluster, groups_by_label
from kedge.report.picture.tsne import LAYOUT, LAYOUT_DESCRIPTION
from kedge.spaces import Embeddings

_SCALE = 4095  # coordinates are sent as whole numbers of at most this absolute value
_NEIGHBOURS = 8
_CURVE_POINTS = 400
_HISTOGRAM_BINS = 40


def data_of(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    sample: Sample,
    gold: GoldComparison | None,
    labels: Mapping[str, str] | None = None,
    texts: RowTexts | None = None,
) -> dict[str, Any]:
    """The data for the scripts; keys are in the order of the sample, `labels` are given by key.

    The first rows of either side are pairs: first found ones, as many as there are confidences, then seeds.
    """
    projection = project_to_plane(discovery, x, y, sample)
    keys_x, keys_y, pairs = projection.keys_x, projection.keys_y, projection.pairs
    groups = {"label": groups_by_label(labels, keys_x, keys_y)} if labels else {}
    groups["cluster"] = groups_by_cluster(discovery, x.take(sample.rows_x), y.take(sample.rows_y))
    judge = gold.truth.judge if gold else None
    found = sample.pair_numbers[sample.pair_numbers < len(discovery.pairs_)]
    return {
        "keys": [keys_x, keys_y],
        "pairs": pairs,
        "confidence": _rounded(discovery.pair_confidence_[found]),
        "texts": texts and [[texts.of("x", key) for key in keys_x], [texts.of("y", key) for key in keys_y]],
        "right": [judge(pair) for pair in zip(keys_x[: len(found)], keys_y, strict=False)] if judge else None,
        "views": [
            {"name": view, "places": as_whole_numbers(places, shared=view != VIEWS[0])}
            for view, places in projection.views.items()
        ],
        "shown": len(projection.views) - 1,
        "groups": [{"name": name, "names": each.names, "of": [each.of_x, each.of_y]} for name, each in groups.items()],
        "anchors": [
            [*pair, None if seed else confidence, "seed" if seed else "found", *([judge(pair)] if judge else [])]
            for pair, confidence, seed in zip(
                discovery.anchor_keys_,
                _rounded(discovery.anchor_confidence_),
                discovery.anchor_is_seed_.tolist(),
                strict=True,
            )
        ],
        "convergence": [
            {"title": title, "axis": axis, "curves": [_finite(curve) for curve in curves]}
            for title, axis, stage, figure in (
                ("Annealing: how sharp the soft match is", "mean largest share of a row", "anneal", "sharpness"),
                ("Finishing: rows in mutual pairs", "share of rows in mutual pairs", "finish", "mutual"),
                ("The paper's optimiser", "loss", "paper", "loss"),
            )
            if (curves := rounds_of(discovery.history_, stage, figure))
        ],
        "confidence_charts": _confidence_charts(discovery.pair_confidence_),
        "reliability": reliability_data(discovery, gold.truth) if gold else None,
    }


def layout_view(places: Places | None) -> dict[str, Any]:
    """The t-SNE view; its places are None until they are computed."""
    return {
        "name": LAYOUT,
        "description": LAYOUT_DESCRIPTION,
        "places": places and as_whole_numbers(places, shared=True),
    }


def neighbours_of(neighbourhoods: Neighbourhoods, sizes: tuple[int, int]) -> dict[str, Any]:
    """The nearest rows within and across the spaces, for all rows of spaces of these sizes."""

    def listed(near: Near) -> dict[str, Any]:
        return {
            "rows": near.rows.ravel().tolist(),
            "percent": np.rint(100 * near.similarity).astype(int).ravel().tolist(),
        }

    sides: tuple[Side, Side] = ("x", "y")
    return {
        where: [listed(look(side, np.arange(size), _NEIGHBOURS)) for side, size in zip(sides, sizes, strict=True)]
        for where, look in (("within", neighbourhoods.within), ("across", neighbourhoods.across))
    }


def as_whole_numbers(places: Places, *, shared: bool) -> list[list[int]]:
    """First and second coordinates of X's rows, then of Y's, as whole numbers; on one scale if `shared`, else two."""
    reach = [float(np.abs(side).max(initial=1e-12)) for side in places]
    if shared:
        reach = [max(reach)] * 2
    return [
        np.rint(_SCALE / extent * side[:, axis]).astype(int).tolist()
        for side, extent in zip(places, reach, strict=True)
        for axis in (0, 1)
    ]


def _finite(curve: Curve) -> dict[str, Any]:
    """A curve for JSON, which cannot express the infinite loss of a run that diverged."""
    return {"attempt": curve.attempt, "values": [value if math.isfinite(value) else None for value in curve.values]}


def _rounded(confidence: NDArray[np.float32]) -> list[float]:
    return [round(value, 4) for value in confidence.tolist()]


def _confidence_charts(confidence: NDArray[np.float32]) -> dict[str, Any] | None:
    """A histogram of confidence, and the expected precision of the most confident pairs."""
    if not len(confidence):
        return None
    counts, edges = np.histogram(confidence, bins=_HISTOGRAM_BINS, range=(min(0.5, float(confidence.min())), 1))
    precision = expected_precision(confidence)
    kept = np.unique(np.linspace(0, len(precision) - 1, _CURVE_POINTS).astype(int))
    return {
        "counts": counts.tolist(),
        "edges": edges.tolist(),
        "kept": (kept + 1).tolist(),
        "precision": np.round(precision[kept], 5).tolist(),
    }

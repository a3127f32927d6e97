"""What the page shows of a run, in plain types: the words and figures people read, and the data its scripts draw."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import __version__
from kedge.estimators import AnchorDiscovery
from kedge.report.curves import Curve, expected_precision, rounds_of
from kedge.report.flat import VIEWS, Places, Sample, flatten
from kedge.report.kinds import kinds_by_cluster, kinds_by_label
from kedge.report.layout import LAYOUT, LAYOUT_TOLD
from kedge.report.neighbourhoods import Near, Neighbourhoods, Side
from kedge.report.rehearsed import rehearsal_words
from kedge.runs.folder import settings_of
from kedge.spaces import Embeddings
from kedge.tasks import SCORE_NAMES, Evaluation, Rehearsal, Truth, as_percent, calibration_error, reliability

_SCALE = 4095  # places travel as whole numbers up to this
_NEIGHBOURS = 8
_SAMPLE_PAIRS = 5
_CURVE_POINTS = 400
_HISTOGRAM_BINS = 40
_RELIABILITY_BINS = 20


@dataclass(frozen=True)
class Comparison:
    """A run against the truth, and a sentence about it, if there is one to say."""

    evaluation: Evaluation
    truth: Truth
    note: str = ""


def words_of(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    sample: Sample,
    gold: Comparison | None,
    run: str,
    rehearsal: Rehearsal | None = None,
) -> dict[str, Any]:
    """What people read, for the template; `run` is where the run folder is."""
    pairs = len(discovery.pairs_)
    rows = [pairs + len(unmatched) for unmatched in (discovery.unmatched_keys_x_, discovery.unmatched_keys_y_)]
    return {
        "version": discovery.provenance_.get("kedge", __version__),
        "names": [Path(space.source).name for space in (x, y)],
        "sizes": [f"{count:,} x {space.dim}" for count, space in zip(rows, (x, y), strict=True)],
        "health": asdict(discovery.health_),
        "overlap": discovery.health_.overlap,
        "numbers": [
            ("pairs found", f"{pairs:,}", f"of {rows[0]:,} rows of X and {rows[1]:,} of Y"),
            (
                "probably right",
                as_percent(float(discovery.pair_confidence_.mean()) if pairs else None),
                "mean confidence of these pairs",
            ),
            ("anchors", f"{len(discovery.anchors_x_):,}", f"{int(discovery.anchor_is_seed_.sum())} of them seeds"),
            ("seeds", f"{len(discovery.seeds_):,}", _told_of_seeds(discovery)),
        ],
        "sample_pairs": [
            (left, right, f"{confidence:.2f}")
            for (left, right), confidence in zip(
                discovery.pair_keys_[:_SAMPLE_PAIRS], discovery.pair_confidence_[:_SAMPLE_PAIRS].tolist(), strict=True
            )
        ],
        "drawn": len(sample.rows_x) + len(sample.rows_y),
        "all_drawn": [len(sample.rows_x), len(sample.rows_y)] == rows,
        "gold": _gold_words(gold),
        "rehearsal": rehearsal_words(rehearsal) if rehearsal else None,
        "has_seeds": len(discovery.seeds_) > 0,
        "has_pairs": pairs > 0,
        "commands": _commands(run, x.source, y.source),
        "cite": _settings_to_cite(discovery),
    }


def data_of(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    sample: Sample,
    gold: Comparison | None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What the scripts draw and search; keys are listed in the order of the sample, `labels` are by key."""
    flat = flatten(discovery, x, y, sample)
    kinds = {"label": kinds_by_label(labels, flat.keys_x, flat.keys_y)} if labels else {}
    kinds["cluster"] = kinds_by_cluster(discovery, x.take(sample.rows_x), y.take(sample.rows_y))
    judge = gold.truth.judge if gold else None
    return {
        "keys": [flat.keys_x, flat.keys_y],
        "pairs": flat.pairs,
        "confidence": _rounded(discovery.pair_confidence_[sample.pair_numbers]),
        "right": [judge(pair) for pair in zip(flat.keys_x[: flat.pairs], flat.keys_y, strict=False)] if judge else None,
        "views": [
            {"name": view, "places": as_whole_numbers(places, shared=view != VIEWS[0])}
            for view, places in flat.views.items()
        ],
        "shown": len(flat.views) - 1,
        "kinds": [{"name": name, "names": kind.names, "of": [kind.of_x, kind.of_y]} for name, kind in kinds.items()],
        "anchors": [
            [*pair, confidence, "seed" if seed else "found", *([judge(pair)] if judge else [])]
            for pair, confidence, seed in zip(
                discovery.anchor_keys_,
                _rounded(discovery.anchor_confidence_),
                discovery.anchor_is_seed_.tolist(),
                strict=True,
            )
        ],
        "seeds": [
            [left, right, found, closer, "looks wrong" if suspect else "" if found == right else "differs"]
            for (left, right), found, closer, suspect in zip(
                discovery.seed_keys_,
                discovery.seed_found_keys_,
                discovery.seed_closer_.tolist(),
                discovery.seed_is_suspect_.tolist(),
                strict=True,
            )
        ],
        "convergence": [
            {"title": title, "axis": axis, "curves": [_finite(curve) for curve in curves]}
            for title, axis, stage, figure in (
                ("Annealing: how sharp the soft match is", "mean greatest share of a row", "anneal", "sharpness"),
                ("Finishing: rows in mutual pairs", "share of rows in mutual pairs", "finish", "mutual"),
                ("The paper's optimiser", "loss", "paper", "loss"),
            )
            if (curves := rounds_of(discovery.history_, stage, figure))
        ],
        "sureness": _sureness(discovery.pair_confidence_),
        "reliability": _reliability(discovery, gold.truth) if gold else None,
    }


def layout_view(places: Places | None) -> dict[str, Any]:
    """The view of the layout that shows structure; without places where they are still to be asked for."""
    return {
        "name": LAYOUT,
        "told": LAYOUT_TOLD,
        "places": places and as_whole_numbers(places, shared=True),
    }


def neighbours_of(neighbourhoods: Neighbourhoods, sizes: tuple[int, int]) -> dict[str, Any]:
    """For all rows of spaces of these sizes, the nearest of their own space and of the other one."""

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
    """The coordinates of X's rows, then those of Y's, first and second; in units that both share, or each its own."""
    reach = [float(np.abs(side).max(initial=1e-12)) for side in places]
    if shared:
        reach = [max(reach)] * 2
    return [
        np.rint(_SCALE / most * side[:, axis]).astype(int).tolist()
        for side, most in zip(places, reach, strict=True)
        for axis in (0, 1)
    ]


def _told_of_seeds(discovery: AnchorDiscovery) -> str:
    suspects = int(discovery.seed_is_suspect_.sum())
    if not len(discovery.seeds_):
        return "none were needed" if discovery.health_.map.verdict == "ok" else "none were given"
    return {0: "none looks wrong", 1: "1 of them looks wrong"}.get(suspects, f"{suspects} of them look wrong")


def _finite(curve: Curve) -> dict[str, Any]:
    """A curve as JSON knows it: a loss that has run away is no number there."""
    return {"attempt": curve.attempt, "values": [value if math.isfinite(value) else None for value in curve.values]}


def _rounded(confidence: NDArray[np.float32]) -> list[float]:
    return [round(value, 4) for value in confidence.tolist()]


def _sureness(confidence: NDArray[np.float32]) -> dict[str, Any] | None:
    """How many pairs are how sure, and the precision to expect of the surest."""
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


def _judged(discovery: AnchorDiscovery, truth: Truth) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Confidence of the pairs of which it is known whether they are right, and that."""
    verdicts = [truth.judge(pair) for pair in discovery.pair_keys_]
    known = np.array([verdict is not None for verdict in verdicts], dtype=bool)
    return discovery.pair_confidence_[known], np.array(
        [verdict for verdict in verdicts if verdict is not None], dtype=bool
    )


def _reliability(discovery: AnchorDiscovery, truth: Truth) -> dict[str, Any]:
    """Mean confidence against the share that is right, by bins, with the interval that so many pairs leave open."""
    from scipy.stats import binomtest  # takes most of a second to load

    table = reliability(*_judged(discovery, truth), _RELIABILITY_BINS)
    bins = []
    for count, confidence, right in table.T.tolist():
        if count:
            low, high = binomtest(round(right), round(count)).proportion_ci(method="wilson")
            bins.append([round(value, 4) for value in (confidence / count, right / count, low, high)] + [int(count)])
    return {"bins": bins, "error": round(calibration_error(table), 4)}


def _gold_words(gold: Comparison | None) -> dict[str, Any] | None:
    if gold is None:
        return None
    return {
        "note": gold.note,
        "columns": list(SCORE_NAMES.values()),
        "rows": gold.evaluation.table(),
        "anchors_exact": as_percent(gold.evaluation.anchors_exact),
        "precision": as_percent(gold.evaluation.pairs_precision),
        "recall": as_percent(gold.evaluation.pairs_recall),
        "complete": gold.truth.complete,
    }


def _commands(run: str, x: str, y: str) -> list[tuple[str, str]]:
    run, x, y = (shlex.quote(path) for path in (run, x, y))
    return [
        (f"kedge search {run} {x} {y} KEY", "neighbours of X's keys in Y"),
        (f"kedge translate {run} {x} -o x-in-y.npz", "X's vectors in Y's space, to search an index of Y with"),
        (f"kedge project {run} X {x} -o x-relative.npz", "relative coordinates, comparable with those of Y"),
        (f"kedge project {run} X {x} -o x-shared.npz --coordinates shared", "for the best search, by inner product"),
        (f"kedge explore {run} {x} {y}", "this page live, with any key and other anchors"),
    ]


def _settings_to_cite(discovery: AnchorDiscovery) -> list[tuple[str, str]]:
    """Version, settings, inputs, machine and timings; what is not set is left out."""
    provenance = discovery.provenance_
    told: dict[str, Any] = {"kedge": provenance.get("kedge", __version__)}
    told |= {name: value for name, value in settings_of(discovery).items() if value is not None}
    if provenance.get("limit"):
        told["first rows read"] = provenance["limit"]
    told["rounds"] = f"{discovery.n_iter_}, {'settled' if discovery.converged_ else 'not settled'}"
    for name, described in provenance.get("inputs", {}).items():
        told[f"input {name}"] = f"{described['file']}, SHA-256 {described['sha256']}"
    told |= provenance.get("timings", {}) | provenance.get("machine", {})
    return [(name.replace("_", " "), str(value)) for name, value in told.items()]

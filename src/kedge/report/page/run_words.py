"""The words and figures that the page of a run shows to people, in plain types."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kedge import __version__
from kedge.estimators import AnchorDiscovery
from kedge.estimators.persistence import settings_of
from kedge.report.page.gold_section import GoldComparison, gold_words
from kedge.report.page.rehearsal_section import rehearsal_words
from kedge.report.picture.projection import Sample
from kedge.spaces import Embeddings
from kedge.tasks import Rehearsal, as_percent

_SAMPLE_PAIRS = 5


def words_of(
    discovery: AnchorDiscovery,
    x: Embeddings,
    y: Embeddings,
    sample: Sample,
    gold: GoldComparison | None,
    run: str,
    rehearsal: Rehearsal | None = None,
) -> dict[str, Any]:
    """The words and figures, for the template; `run` is where the run folder is."""
    pairs = len(discovery.pairs_)
    rows = [pairs + len(unmatched) for unmatched in (discovery.x_.unmatched_keys, discovery.y_.unmatched_keys)]
    return {
        "version": discovery.provenance_.get("kedge", __version__),
        "names": [Path(space.source).name for space in (x, y)],
        "sizes": [f"{count:,} x {space.dim}" for count, space in zip(rows, (x, y), strict=True)],
        "health": asdict(discovery.health_),
        "overlap": discovery.health_.overlap,
        "numbers": [
            ("pairs found", f"{pairs:,}", f"of {rows[0]:,} rows of X and {rows[1]:,} of Y"),
            (
                "expected precision",
                as_percent(float(discovery.pair_confidence_.mean()) if pairs else None),
                "mean confidence of these pairs",
            ),
            ("anchors", f"{len(discovery.anchors_x_):,}", f"{int(discovery.anchor_is_seed_.sum())} of them seeds"),
            ("seeds", f"{len(discovery.seeds_):,}", _about_seeds(discovery)),
        ],
        "sample_pairs": [
            (left, right, f"{confidence:.2f}")
            for (left, right), confidence in zip(
                discovery.pair_keys_[:_SAMPLE_PAIRS], discovery.pair_confidence_[:_SAMPLE_PAIRS].tolist(), strict=True
            )
        ],
        "drawn": len(sample.rows_x) + len(sample.rows_y),
        "all_drawn": [len(sample.rows_x), len(sample.rows_y)] == rows,
        "gold": gold_words(gold) if gold else None,
        "rehearsal": rehearsal_words(rehearsal) if rehearsal else None,
        "has_seeds": len(discovery.seeds_) > 0,
        "has_pairs": pairs > 0,
        "commands": _commands(run, x.source, y.source),
        "cite": _settings_to_cite(discovery),
    }


def _about_seeds(discovery: AnchorDiscovery) -> str:
    suspects = int(discovery.seed_is_suspect_.sum())
    if not len(discovery.seeds_):
        return "none were needed" if discovery.health_.map.verdict == "ok" else "none were given"
    return {0: "none looks wrong", 1: "1 of them looks wrong"}.get(suspects, f"{suspects} of them look wrong")


def _commands(run: str, x: str, y: str) -> list[tuple[str, str]]:
    run, x, y = (shlex.quote(path) for path in (run, x, y))
    return [
        (f"kedge search {run} {x} {y} KEY", "the nearest keys of Y to a key of X"),
        (f"kedge translate {run} {x} -o x-in-y.npz", "translate X's vectors into Y's space, to search an index of Y"),
        (f"kedge project {run} X {x} -o x-relative.npz", "relative coordinates of X, comparable with those of Y"),
        (f"kedge project {run} X {x} -o x-shared.npz --coordinates shared", "for the best search, by inner product"),
        (f"kedge explore {run} {x} {y}", "this page live, with every key and a choice of anchors"),
    ]


def _settings_to_cite(discovery: AnchorDiscovery) -> list[tuple[str, str]]:
    """Version, settings, inputs, machine and timings, without what is not set."""
    provenance = discovery.provenance_
    described: dict[str, Any] = {"kedge": provenance.get("kedge", __version__)}
    described |= {name: value for name, value in settings_of(discovery).items() if value is not None}
    if provenance.get("limit"):
        described["first rows read"] = provenance["limit"]
    described["rounds"] = f"{discovery.n_iter_}, {'converged' if discovery.converged_ else 'not converged'}"
    for name, file in provenance.get("inputs", {}).items():
        described[f"input {name}"] = f"{file['file']}, SHA-256 {file['sha256']}"
    described |= provenance.get("timings", {}) | provenance.get("machine", {})
    return [(name.replace("_", " "), str(value)) for name, value in described.items()]

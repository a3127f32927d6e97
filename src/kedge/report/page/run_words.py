"""The words and figures that the page of a run shows, in plain types."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from kedge import __version__
from kedge.estimators import AnchorDiscovery
from kedge.estimators.persistence import settings_of
from kedge.report.page.gold_section import GoldComparison, gold_words
from kedge.report.page.rehearsal_section import rehearsal_words
from kedge.report.page.row_texts import RowTexts
from kedge.report.page.seed_section import seed_words
from kedge.report.picture.projection import Sample
from kedge.spaces import Embeddings
from kedge.spaces.pairs import same_ids
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
    texts: RowTexts | None = None,
) -> dict[str, Any]:
    """The words and figures for the template; `run` is the path of the run folder."""
    pairs, linked = len(discovery.pairs_), len(discovery.linked_pairs().keys)
    rows = [linked + len(unmatched) for unmatched in (discovery.x_.unmatched_keys, discovery.y_.unmatched_keys)]
    shown = texts or RowTexts({}, {})
    return {
        "version": discovery.provenance_.get("kedge", __version__),
        "names": [Path(space.source).name for space in (x, y)],
        "sizes": [f"{count:,} x {space.dim}" for count, space in zip(rows, (x, y), strict=True)],
        "answers": discovery.health_.answers,
        "listed_now": _listed_now(discovery),
        "overlap": discovery.health_.overlap,
        "same_ids": same_ids(x, y),
        "numbers": [
            ("pairs found", f"{pairs:,}", _besides(discovery, rows)),
            (
                "expected precision",
                as_percent(float(discovery.pair_confidence_.mean()) if pairs else None),
                "mean confidence of the found pairs",
            ),
            ("anchors", f"{len(discovery.anchors_x_):,}", f"{int(discovery.anchor_is_seed_.sum())} of them seeds"),
            ("seeds", f"{len(discovery.seeds_):,}", _about_seeds(discovery)),
        ],
        "sample_pairs": [
            (shown.of("x", left) or left, shown.of("y", right) or right, f"{confidence:.2f}")
            for (left, right), confidence in zip(
                discovery.pair_keys_[:_SAMPLE_PAIRS], discovery.pair_confidence_[:_SAMPLE_PAIRS].tolist(), strict=True
            )
        ],
        "drawn": len(sample.rows_x) + len(sample.rows_y),
        "all_drawn": [len(sample.rows_x), len(sample.rows_y)] == rows,
        "gold": gold_words(gold) if gold else None,
        "rehearsal": rehearsal_words(rehearsal) if rehearsal else None,
        "has_seeds": len(discovery.seeds_) > 0,
        "seeds": seed_words(discovery, shown),
        "has_texts": texts is not None,
        "has_pairs": pairs > 0,
        "commands": _commands(run, x.source, y.source),
        "cite": _settings_to_cite(discovery),
    }


def _besides(discovery: AnchorDiscovery, rows: list[int]) -> str:
    seeds = len(discovery.seeds_)
    given = f"besides the {seeds:,} {'seed' if seeds == 1 else 'seeds'}, " if seeds else ""
    return f"{given}in {rows[0]:,} rows of X and {rows[1]:,} of Y"


def _listed_now(discovery: AnchorDiscovery) -> str:
    """What the answer for pairs does not say where other pairs are listed than those of the run it was made for."""
    count = f"{len(discovery.pairs_):,}"
    if discovery.health_.pairs.reason.partition(" ")[0] == count:
        return ""
    right = f", about {discovery.pair_confidence_.mean():.0%} of them right" if len(discovery.pairs_) else ""
    pairs = "pair" if count == "1" else "pairs"
    return f"On this page, at --min-confidence {discovery.min_confidence:g}: {count} {pairs}{right}."


def _about_seeds(discovery: AnchorDiscovery) -> str:
    if not len(discovery.seeds_):
        return "none were needed" if discovery.health_.searching.verdict == "ok" else "none were given"
    contradicted = int((discovery.seed_opinion_ == "contradicted").sum())
    return f"{contradicted or 'none'} of them contradicted"


def _commands(run: str, x: str, y: str) -> list[tuple[str, str]]:
    run, x, y = (shlex.quote(path) for path in (run, x, y))
    return [
        (f"kedge search {run} {x} {y} KEY", "the nearest keys of Y to a key of X"),
        (
            f"kedge lexicon {run} {x} {y} -o lexicon.tsv",
            "for each row of X the likeliest rows of Y, with probabilities",
        ),
        (f"kedge translate {run} {x} -o x-in-y.npz", "translate X's vectors into Y's space, to search an index of Y"),
        (f"kedge project {run} X {x} -o x-relative.npz", "relative coordinates of X, comparable with those of Y"),
        (f"kedge project {run} X {x} -o x-shared.npz --coordinates shared", "for the best search, by inner product"),
        (f"kedge explore {run} {x} {y}", "this page live, with every key and a choice of anchors"),
    ]


def _settings_to_cite(discovery: AnchorDiscovery) -> list[tuple[str, str]]:
    """Version, settings, inputs, machine and timings, omitting settings that are None."""
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

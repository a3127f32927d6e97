"""A fitted discovery as the contents of a run folder, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import __version__
from kedge.errors import InputError
from kedge.judging.health import SEED_OPINIONS
from kedge.matching import CandidateRecall
from kedge.models.pair_model import PairModel
from kedge.models.query_map import QueryTranslation
from kedge.models.side import Side
from kedge.runs.description import FORMAT, NAME
from kedge.runs.folder import TRUST, RunContents, read_run
from kedge.runs.tables import Tables
from kedge.runs.translators import evidence_of, query_step
from kedge.storage.schema import Count, Share, Within, restore

if TYPE_CHECKING:
    from kedge.estimators.anchor_discovery import AnchorDiscovery

# What a loaded run knows about how it was made.
_PROVENANCE = ("kedge", "inputs", "limit", "timings", "machine")
_NOT_KEPT = ("checkpoint", "on_step", "return")
# What must hold for numeric settings, beyond the constructor's types.
_BOUNDS = {
    "n_anchors": Count | None,
    "whiten": Share | Literal["auto"],
    "min_confidence": Share,
    "memory_budget": Count,
    "random_state": Annotated[int, Within(0, 2**63 - 1)],
}


def settings_of(discovery: AnchorDiscovery) -> dict[str, Any]:
    """The settings of a discovery in plain types, but not where it reports to or keeps its state."""
    settings = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in discovery.get_params().items()
        if name not in _NOT_KEPT
    }
    settings["random_state"] = discovery.random_state_  # a number, whatever it was drawn from
    settings["schedule"] = discovery.schedule and asdict(discovery.schedule)
    settings["paper"] = discovery.paper and asdict(discovery.paper)
    return settings


def contents_of(discovery: AnchorDiscovery) -> RunContents:
    """All that a run folder keeps of a discovery, whose keys must be texts."""
    x, y = discovery.x_, discovery.y_
    arrays: dict[str, Any] = {
        "anchors_x": discovery.anchors_x_,
        "anchors_y": discovery.anchors_y_,
        "anchor_confidence": discovery.anchor_confidence_,
        "anchor_is_seed": discovery.anchor_is_seed_,
        "anchor_vectors": x.anchors["free"],
        "free_anchors": y.anchors["free"],
        "snapped_anchors": y.anchors["snapped"],
        "seeds": discovery.seeds_,
        "seed_is_suspect": discovery.seed_is_suspect_,
        "seed_opinion": _opinion_codes(discovery.seed_opinion_),
        "seed_rank": discovery.seed_rank_,
        "seed_vectors_x": x.anchors["seeds"],
        "seed_vectors_y": y.anchors["seeds"],
        "match": discovery.match_,
        "confidence": discovery.confidence_,
        "mutual": discovery.mutual_,
        "pairs": discovery.pairs_,
        "pair_confidence": discovery.pair_confidence_,
        "directions_x": x.directions,
        "directions_y": y.directions,
        "correlations": x.correlations,
        "center_x": x.center,
        "center_y": y.center,
        "whitening_x": x.whitening,
        "whitening_y": y.whitening,
    }
    queries = discovery.queries_
    if queries is not None:
        arrays |= {"center_query": queries.step.source.center, "center_query_target": queries.step.target.center}
    trust = discovery.trust_
    if trust is not None:
        arrays |= {f"{TRUST}{name}": array for name, array in asdict(trust).items()}
    keys: Any = discovery  # they are texts
    tables = Tables(
        keys.anchor_keys_,
        keys.pair_keys_,
        keys.seed_keys_,
        keys.seed_found_keys_,
        list(keys.x_.unmatched_keys),
        list(keys.y_.unmatched_keys),
    )
    kept = {name: array for name, array in arrays.items() if array is not None}
    map_query = None if queries is None else queries.step.map
    return RunContents(_stored(discovery), kept, discovery.map_, discovery.map_back_, tables, map_query)


def load(folder: str | Path) -> AnchorDiscovery:
    """Read a run folder back as a fitted `AnchorDiscovery`.

    Raises `InputError` if anything in it is missing, invalid or inconsistent with another part of it, or has changed
    since it was written.
    """
    from kedge.estimators.anchor_discovery import AnchorDiscovery

    folder = Path(folder)
    contents = read_run(folder)
    run, arrays, tables = contents.description, contents.arrays, contents.tables
    settings = _settings(run.settings, f"{folder / NAME}: settings")
    discovery = AnchorDiscovery(**settings)
    discovery.random_state_ = settings["random_state"]
    discovery.health_, discovery.history_ = run.health, run.history
    discovery.n_iter_, discovery.converged_ = run.iterations, run.converged
    discovery.candidate_recall_ = None
    if run.approximate is not None:
        figures = asdict(run.approximate)
        del figures["summary"]
        discovery.candidate_recall_ = CandidateRecall(**figures)
    discovery.confidence_curve_ = run.confidence_curve
    discovery.map_, discovery.map_back_ = contents.map, contents.map_back
    discovery.map_scores_, discovery.whitening_ = asdict(run.maps), run.whitening
    discovery.queries_ = None
    if run.queries is not None and contents.map_query is not None:
        discovery.queries_ = QueryTranslation(query_step(arrays, contents.map_query), **asdict(run.queries))
    discovery.trust_, discovery.score_offsets_ = evidence_of(arrays), run.score_offsets
    discovery.provenance_ = {name: contents.stored[name] for name in _PROVENANCE if name in contents.stored}
    for name in ("anchors_x", "anchors_y", "anchor_confidence", "anchor_is_seed", "seeds", "seed_is_suspect"):
        setattr(discovery, f"{name}_", arrays[name])
    for name in ("seed_rank", "match", "confidence", "mutual", "pairs", "pair_confidence"):
        setattr(discovery, f"{name}_", arrays[name])
    discovery.seed_opinion_ = np.array(SEED_OPINIONS)[arrays["seed_opinion"]]
    model = {name: torch.from_numpy(arrays[name]) for name in ("directions_x", "directions_y", "correlations")}
    discovery.model_ = PairModel(**model, ridge=run.ridge)
    dim_x, dim_y = run.counts.dim_x, run.counts.dim_y
    discovery.x_ = Side(
        "X",
        dim_x,
        dim_y,
        arrays.get("center_x"),
        run.mean_norm_x,
        {"free": arrays["anchor_vectors"], "snapped": arrays["anchor_vectors"], "seeds": arrays["seed_vectors_x"]},
        arrays.get("whitening_x"),
        arrays["directions_x"],
        arrays["correlations"],
        tuple(tables.unmatched_x),
        run.counts.prefix_of_x,
    )
    discovery.y_ = Side(
        "Y",
        dim_y,
        dim_x,
        arrays.get("center_y"),
        run.mean_norm_y,
        {"free": arrays["free_anchors"], "snapped": arrays["snapped_anchors"], "seeds": arrays["seed_vectors_y"]},
        arrays.get("whitening_y"),
        arrays["directions_y"],
        arrays["correlations"],
        tuple(tables.unmatched_y),
        run.counts.prefix_of_y,
    )
    discovery.anchor_keys_, discovery.pair_keys_ = list(tables.anchors), list(tables.pairs)
    discovery.seed_keys_, discovery.seed_found_keys_ = list(tables.seeds), list(tables.seeds_found)
    return discovery


def _settings(stored: dict[str, Any], where: str) -> dict[str, Any]:
    """Parameters of an `AnchorDiscovery`, checked against the types of its constructor."""
    from kedge.estimators.anchor_discovery import AnchorDiscovery

    kinds = get_type_hints(AnchorDiscovery.__init__, include_extras=True)
    kinds = {name: _BOUNDS.get(name, kind) for name, kind in kinds.items() if name not in _NOT_KEPT}
    for name in stored:
        if name not in kinds:
            raise InputError(f"{where}.{name}: is no setting; there are {', '.join(kinds)}")
    return {name: restore(kinds[name], value, f"{where}.{name}") for name, value in stored.items()}


def _opinion_codes(opinions: NDArray[np.str_]) -> NDArray[np.int64]:
    """The positions (s,) of opinions (s,) in `SEED_OPINIONS`."""
    return np.array([SEED_OPINIONS.index(opinion) for opinion in opinions.tolist()], dtype=np.int64)


def _stored(discovery: AnchorDiscovery) -> dict[str, Any]:
    """What `run.json` stores."""
    recall, curve = discovery.candidate_recall_, discovery.confidence_curve_
    queries, trust = discovery.queries_, discovery.trust_
    return {
        "format": FORMAT,
        "kedge": __version__,
        "settings": settings_of(discovery),
        "counts": {
            "rows_x": len(discovery.match_),
            "rows_y": len(discovery.y_.unmatched_keys) + len(discovery.linked_pairs().rows),
            "dim_x": discovery.x_.dim,
            "dim_y": discovery.y_.dim,
            "seeds": len(discovery.seeds_),
            "anchors": len(discovery.anchors_x_),
            "pairs": len(discovery.pairs_),
            "effective_dims": discovery.effective_dims_,
        }
        | {
            f"prefix_of_{side.name.lower()}": side.prefix_of
            for side in (discovery.x_, discovery.y_)
            if side.prefix_of is not None
        },
        "inputs": {},
        "health": asdict(discovery.health_),
        "iterations": discovery.n_iter_,
        "converged": discovery.converged_,
        "approximate": None if recall is None else {"summary": f"approximate: {recall}", **asdict(recall)},
        "confidence_curve": curve and asdict(curve),
        "whitening": discovery.whitening_,
        "ridge": discovery.model_.ridge,
        "maps": discovery.map_scores_,
        "queries": queries and {name: getattr(queries, name) for name in ("kind", "agreement", "agreement_of_one_map")},
        "trust": trust and {"pairs": len(trust.pairs), "seen": len(trust.seen)},
        "score_offsets": discovery.score_offsets_ and asdict(discovery.score_offsets_),
        "mean_norm_x": discovery.x_.mean_norm,
        "mean_norm_y": discovery.y_.mean_norm,
        "history": [asdict(step) | {"figures": dict(step.figures)} for step in discovery.history_],
    } | discovery.provenance_

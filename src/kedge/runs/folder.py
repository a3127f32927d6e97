"""Run folders: a fitted discovery as safetensors, JSON and TSV, readable by other tools; never pickle.

run.json              version, settings, inputs, health, iterations, timings
anchors.tsv           x, y, confidence, seed           anchors.safetensors   the vectors behind it
pairs.tsv             x, y, confidence, best first     match.safetensors     a partner for every row of X
seeds.tsv             x, y, suspect, closer, found     map.safetensors       the maps, the centers, the whitening
unmatched.tsv         space, key: rows in no pair      model.safetensors     the pair model of shared coordinates
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import save as serialize

from kedge import __version__
from kedge.errors import InputError
from kedge.geometry import PairModel
from kedge.runs.arrays import MOST_CORRELATED, Array, between, pairs_of, read_arrays, rows_of
from kedge.runs.description import FORMAT, NAME, Counts, holds_run, restore_description
from kedge.runs.tables import HEADERS, read_tables, rows_of_table
from kedge.spaces.atomic import atomic_folder, require_parent
from kedge.spaces.pairs import write_table

if TYPE_CHECKING:
    from kedge.estimators.anchor_discovery import AnchorDiscovery

# What a loaded run knows of how it was made.
_PROVENANCE = ("kedge", "inputs", "limit", "timings", "machine")
_MODEL = "model.safetensors"
# Arrays that are there only where the spaces were centerd, or whitened.
_NORMALISATION = ("center_x", "center_y", "whitening_x", "whitening_y")
_FILES = {NAME, *HEADERS, "anchors.safetensors", "map.safetensors", "match.safetensors", _MODEL}


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a target that would lose something; an empty folder is as good as none."""
    if folder.is_file():
        raise InputError(f"{folder}: is a file; give the name of a folder")
    require_parent(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not holds_run(folder):
        raise InputError(f"{folder}: the folder is not empty and holds no run; choose another name")
    if not overwrite:
        raise InputError(f"{folder}: holds a run already; choose another name or ask to overwrite it")
    foreign = sorted({path.name for path in folder.iterdir()} - _FILES)
    if foreign:
        raise InputError(
            f"{folder}: also holds {foreign[0]!r}, which is no part of a run; move it or choose another name"
        )


def save(discovery: AnchorDiscovery, folder: Path, *, overwrite: bool) -> None:
    """Write a run folder; it appears complete or not at all."""
    check_target(folder, overwrite=overwrite)
    described = _description(discovery)
    arrays = _arrays(Counts(**described["counts"]), discovery.center, discovery.whitening_ > 0)
    with atomic_folder(folder) as temporary:
        for name, header in HEADERS.items():
            write_table(temporary / name, header, rows_of_table(discovery, name))
        for name, expected in arrays.items():
            source, suffix = (discovery.model_, "") if name == _MODEL else (discovery, "_")
            tensors = {array: np.ascontiguousarray(getattr(source, array + suffix)) for array in expected}
            (temporary / name).write_bytes(serialize(tensors))  # save_file would make it private
        text = json.dumps(described | discovery.provenance_, indent=2, ensure_ascii=False, default=_plain)
        (temporary / NAME).write_text(text + "\n", encoding="utf-8")


def settings_of(discovery: AnchorDiscovery) -> dict[str, Any]:
    """What a discovery was asked for, in plain types; not where it reports to or keeps its state."""
    settings = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in discovery.get_params().items()
        if name not in ("on_step", "checkpoint")
    }
    settings["random_state"] = discovery.random_state_  # a number, whatever it was drawn from
    settings["schedule"] = discovery.schedule and asdict(discovery.schedule)
    settings["paper"] = discovery.paper and asdict(discovery.paper)
    return settings


def load(folder: str | Path) -> AnchorDiscovery:
    """Read a run folder back as a fitted `AnchorDiscovery`.

    Raises `InputError` where anything in it is missing, is not what it must be, or contradicts another part of it.
    """
    from kedge.estimators.anchor_discovery import AnchorDiscovery

    folder = Path(folder)
    stored, run = restore_description(folder)
    discovery = AnchorDiscovery(**run.settings)
    discovery.random_state_ = run.settings["random_state"]
    discovery.health_, discovery.history_ = run.health, run.history
    discovery.n_iter_, discovery.converged_ = run.iterations, run.converged
    discovery.candidate_recall_ = None if run.approximate is None else run.approximate.agreement
    discovery.length_x_, discovery.length_y_ = run.length_x, run.length_y
    discovery.map_scores_, discovery.whitening_ = asdict(run.maps), run.whitening
    discovery.provenance_ = {name: stored[name] for name in _PROVENANCE if name in stored}
    arrays = {
        name: read_arrays(folder / name, expected)
        for name, expected in _arrays(run.counts, discovery.center, run.whitening > 0).items()
    }
    model = {name: torch.from_numpy(array) for name, array in arrays.pop(_MODEL).items()}
    discovery.model_ = PairModel(**model, ridge=run.ridge)
    for name in _NORMALISATION:
        setattr(discovery, name + "_", None)
    for name, array in (each for arrays_of_file in arrays.values() for each in arrays_of_file.items()):
        setattr(discovery, name + "_", array)
    read_tables(folder, discovery, run.counts)
    return discovery


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored in run.json")


def _arrays(counts: Counts, centerd: bool, whitened: bool) -> dict[str, dict[str, Array]]:
    """The arrays in each file; those of a discovery are its attributes with a trailing underscore."""
    n, m, dx, dy = counts.rows_x, counts.rows_y, counts.dim_x, counts.dim_y
    a, s, p, c = counts.anchors, counts.seeds, counts.pairs, counts.shared
    return {
        "anchors.safetensors": {
            "anchors_x": rows_of(n, a),
            "anchors_y": rows_of(m, a),
            "anchor_confidence": Array((a,), least=0, most=1),
            "anchor_is_seed": Array((a,), "BOOL"),
            "anchor_vectors": Array((a, dx)),
            "free_anchors": Array((a, dy)),
            "snapped_anchors": Array((a, dy)),
            "seeds": pairs_of(n, m, s),
            "seed_is_suspect": Array((s,), "BOOL"),
            "seed_closer": Array((s,), "F64", least=0, most=max(n, m)),
            "seed_vectors_x": Array((s, dx)),
            "seed_vectors_y": Array((s, dy)),
        },
        "map.safetensors": {
            "map": between(1e9, dx, dy),
            "map_back": between(1e9, dy, dx),
            **({"center_x": between(1, dx), "center_y": between(1, dy)} if centerd else {}),
            **({"whitening_x": Array((dx, dx)), "whitening_y": Array((dy, dy))} if whitened else {}),
        },
        "match.safetensors": {
            "match": rows_of(m, n),
            "confidence": Array((n,), least=0, most=1),
            "pairs": pairs_of(n, m, p),
            "pair_confidence": Array((p,), least=0, most=1),
        },
        _MODEL: {
            "directions_x": Array((dx, c)),
            "directions_y": Array((dy, c)),
            "correlations": Array((c,), least=0, most=MOST_CORRELATED),
        },
    }


def _description(discovery: AnchorDiscovery) -> dict[str, Any]:
    agreement = discovery.candidate_recall_
    return {
        "format": FORMAT,
        "kedge": __version__,
        "settings": settings_of(discovery),
        "counts": {
            "rows_x": len(discovery.match_),
            "rows_y": len(discovery.unmatched_keys_y_) + len(discovery.pairs_),
            "dim_x": discovery.map_.shape[0],
            "dim_y": discovery.map_.shape[1],
            "seeds": len(discovery.seeds_),
            "anchors": len(discovery.anchors_x_),
            "pairs": len(discovery.pairs_),
            "shared": len(discovery.model_.correlations),
        },
        "inputs": {},
        "health": asdict(discovery.health_),
        "iterations": discovery.n_iter_,
        "converged": discovery.converged_,
        "approximate": None if agreement is None else {"told": f"approximate: {agreement}", **asdict(agreement)},
        "whitening": discovery.whitening_,
        "ridge": discovery.model_.ridge,
        "maps": discovery.map_scores_,
        "length_x": discovery.length_x_,
        "length_y": discovery.length_y_,
        "history": [asdict(step) | {"figures": dict(step.figures)} for step in discovery.history_],
    }

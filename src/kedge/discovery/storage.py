"""Run folders: a fitted discovery as safetensors, JSON and TSV, readable by other tools; never pickle.

run.json              version, settings, inputs, health, iterations, timings
anchors.tsv           x, y, confidence, seed           anchors.safetensors   the vectors behind it
pairs.tsv             x, y, confidence, best first     match.safetensors     a partner for every row of X
seeds.tsv             x, y, suspect, closer, found     map.safetensors       the maps, the centres, the whitening
unmatched.tsv         space, key: rows in no pair      model.safetensors     the pair model of shared coordinates
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.numpy import save as serialize

from kedge import __version__
from kedge.discovery.health import Health
from kedge.discovery.paper import PaperSettings
from kedge.discovery.schedule import Schedule
from kedge.discovery.steps import Step
from kedge.errors import InputError
from kedge.geometry import PairModel
from kedge.matching import Agreement
from kedge.spaces.atomic import atomic_folder, require_parent
from kedge.spaces.pairs import read_table, write_table

if TYPE_CHECKING:
    from kedge.discovery.estimator import AnchorDiscovery

FORMAT = 4
# What a loaded run knows of how it was made.
_PROVENANCE = ("kedge", "inputs", "limit", "timings", "machine")
# Attributes with keys: the table each lives in, and the array with as many rows.
_TABLES = {
    "anchor_keys_": ("anchors.tsv", "anchors_x"),
    "pair_keys_": ("pairs.tsv", "pairs"),
    "seed_keys_": ("seeds.tsv", "seeds"),
}
# Learned arrays and the file each lives in; the attribute is the name with a trailing underscore.
_ARRAYS = {
    "anchors.safetensors": (
        "anchors_x",
        "anchors_y",
        "anchor_confidence",
        "anchor_is_seed",
        "anchor_vectors",
        "free_anchors",
        "snapped_anchors",
        "seeds",
        "seed_is_suspect",
        "seed_closer",
        "seed_vectors_x",
        "seed_vectors_y",
    ),
    "map.safetensors": ("map", "map_back"),
    "match.safetensors": ("match", "confidence", "pairs", "pair_confidence"),
}


_MODEL, _MODEL_PARTS = "model.safetensors", ("directions_x", "directions_y", "correlations")
_FILES = {"run.json", "unmatched.tsv", _MODEL, *_ARRAYS, *(table for table, _ in _TABLES.values())}


def holds_run(folder: Path) -> bool:
    """Whether the folder holds a run."""
    return (folder / "run.json").is_file()


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
    with atomic_folder(folder) as temporary:
        write_table(
            temporary / "anchors.tsv",
            ("x", "y", "confidence", "seed"),
            (
                (x, y, f"{confidence:.4f}", str(int(seed)))
                for (x, y), confidence, seed in zip(
                    discovery.anchor_keys_,
                    discovery.anchor_confidence_,
                    discovery.anchor_is_seed_,
                    strict=True,
                )
            ),
        )
        write_table(
            temporary / "pairs.tsv",
            ("x", "y", "confidence"),
            (
                (x, y, f"{confidence:.4f}")
                for (x, y), confidence in zip(discovery.pair_keys_, discovery.pair_confidence_, strict=True)
            ),
        )
        write_table(
            temporary / "seeds.tsv",
            ("x", "y", "suspect", "closer", "found"),
            (
                (x, y, str(int(suspect)), f"{closer:g}", found)
                for (x, y), suspect, closer, found in zip(
                    discovery.seed_keys_,
                    discovery.seed_is_suspect_,
                    discovery.seed_closer_,
                    discovery.seed_found_keys_,
                    strict=True,
                )
            ),
        )
        write_table(
            temporary / "unmatched.tsv",
            ("space", "key"),
            itertools.chain(
                (("X", key) for key in discovery.unmatched_keys_x_), (("Y", key) for key in discovery.unmatched_keys_y_)
            ),
        )
        for name, arrays in _ARRAYS.items():
            tensors = {array: np.ascontiguousarray(getattr(discovery, array + "_")) for array in arrays}
            if name == "map.safetensors":
                tensors |= _normalisation(discovery)
            (temporary / name).write_bytes(serialize(tensors))  # save_file would make it private
        (temporary / _MODEL).write_bytes(serialize(_model_arrays(discovery.model_)))
        described = _description(discovery) | discovery.provenance_
        text = json.dumps(described, indent=2, ensure_ascii=False, default=_plain)
        (temporary / "run.json").write_text(text + "\n", encoding="utf-8")


def settings_of(discovery: AnchorDiscovery) -> dict[str, Any]:
    """What a discovery was asked for, in plain types; not where it reports to or keeps its state."""
    settings = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in discovery.get_params().items()
        if name not in ("on_step", "checkpoint")
    }
    settings["schedule"] = discovery.schedule and asdict(discovery.schedule)
    settings["paper"] = discovery.paper and asdict(discovery.paper)
    return settings


def load(folder: str | Path) -> AnchorDiscovery:
    """Read a run folder back as a fitted `AnchorDiscovery`."""
    from kedge.discovery.estimator import AnchorDiscovery

    folder = Path(folder)
    run = read_description(folder)
    try:
        settings = dict(run["settings"])
        settings["schedule"] = settings["schedule"] and Schedule(**settings["schedule"])
        settings["paper"] = settings["paper"] and PaperSettings(**settings["paper"])
        discovery = AnchorDiscovery(**settings)
        discovery.health_ = Health.of(run["health"])
        discovery.history_ = tuple(Step(**step) for step in run["history"])
        discovery.n_iter_, discovery.converged_ = int(run["iterations"]), bool(run["converged"])
        approximate = run.get("approximate")  # runs of before do not have it
        discovery.as_exact_ = approximate and Agreement(**{name: approximate[name] for name in Agreement.names()})
        discovery.length_x_, discovery.length_y_ = float(run["length_x"]), float(run["length_y"])
        discovery.map_scores_, discovery.whitening_ = dict(run["maps"]), float(run["whitening"])
        discovery.provenance_ = {name: run[name] for name in _PROVENANCE if name in run}
        files = (*_ARRAYS, _MODEL)
        tensors = {name: array for file in files for name, array in load_file(folder / file).items()}
        _check_arrays(tensors, run["counts"], centred=discovery.center, whitened=discovery.whitening_ > 0)
        for name in (name for names in _ARRAYS.values() for name in names):
            setattr(discovery, name + "_", tensors[name])
        discovery.centre_x_, discovery.centre_y_ = tensors.get("centre_x"), tensors.get("centre_y")
        discovery.whitening_x_, discovery.whitening_y_ = tensors.get("whitening_x"), tensors.get("whitening_y")
        left, right, correlations = (torch.from_numpy(tensors[name]) for name in _MODEL_PARTS)
        discovery.model_ = PairModel(left, right, correlations, float(run["ridge"]))
        for attribute, (name, array) in _TABLES.items():
            keys = [(row["x"], row["y"]) for row in read_table(folder / name)]
            if len(keys) != len(tensors[array]):
                raise ValueError(f"{name} has {len(keys)} rows instead of {len(tensors[array])}")
            setattr(discovery, attribute, keys)
        discovery.seed_found_keys_ = [row["found"] for row in read_table(folder / "seeds.tsv")]
        unmatched: dict[str, list[str]] = {"X": [], "Y": []}
        for row in read_table(folder / "unmatched.tsv"):
            unmatched[row["space"]].append(row["key"])
        discovery.unmatched_keys_x_, discovery.unmatched_keys_y_ = unmatched["X"], unmatched["Y"]
        for space, names in unmatched.items():
            if len(names) + len(discovery.pairs_) != run["counts"][f"rows_{space.lower()}"]:
                raise ValueError(
                    f"unmatched.tsv names {len(names)} rows of {space}, which is not all that are in no pair"
                )
    except InputError:
        raise
    except Exception as error:  # whatever a damaged JSON, TSV or safetensors file leads to
        raise InputError(f"{folder}: the run is damaged or incomplete ({type(error).__name__}: {error})") from error
    return discovery


def read_description(folder: Path) -> dict[str, Any]:
    """The contents of `run.json`."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {'is a file, not a run folder' if folder.exists() else 'no such run folder'}")
    if not holds_run(folder):
        raise InputError(f"{folder}: is no run folder, it holds no run.json")
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{folder / 'run.json'}: not valid JSON ({error})") from error
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise InputError(f"{folder / 'run.json'}: format {FORMAT} is needed; written by another version of kedge?")
    if not _is_complete(run):
        raise InputError(f"{folder / 'run.json'}: the run is damaged or incomplete")
    return run


def _is_complete(run: Mapping[str, Any]) -> bool:
    """Whether everything is there that a summary shows."""
    if not all(isinstance(run.get(part), dict) for part in ("settings", "counts", "health", "inputs")):
        return False
    if not all(isinstance(run.get(part, {}), dict) for part in ("timings", "machine")):
        return False
    try:
        Health.of(run["health"])
    except (TypeError, KeyError, ValueError):
        return False
    return (
        {"kedge", "iterations", "converged"} <= set(run)
        and all(isinstance(file, dict) and {"file", "sha256"} <= set(file) for file in run["inputs"].values())
        and {"method", "random_state"} <= set(run["settings"])
    )


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored in run.json")


def _check_arrays(
    tensors: Mapping[str, NDArray[Any]], counts: Mapping[str, int], *, centred: bool, whitened: bool
) -> None:
    """Raise ValueError unless every array has the shape the counts imply, and finite values."""
    n, dx, dy = counts["rows_x"], counts["dim_x"], counts["dim_y"]
    a, s, p, c = counts["anchors"], counts["seeds"], counts["pairs"], counts["shared"]
    shapes = {
        **dict.fromkeys(("anchors_x", "anchors_y", "anchor_confidence", "anchor_is_seed"), (a,)),
        **{"anchor_vectors": (a, dx), "free_anchors": (a, dy), "snapped_anchors": (a, dy)},
        **{
            "seeds": (s, 2),
            "seed_is_suspect": (s,),
            "seed_closer": (s,),
            "seed_vectors_x": (s, dx),
            "seed_vectors_y": (s, dy),
        },
        **{"map": (dx, dy), "map_back": (dy, dx)},
        **{"match": (n,), "confidence": (n,), "pairs": (p, 2), "pair_confidence": (p,)},
        **{"directions_x": (dx, c), "directions_y": (dy, c), "correlations": (c,)},
        **({"centre_x": (dx,), "centre_y": (dy,)} if centred else {}),
        **({"whitening_x": (dx, dx), "whitening_y": (dy, dy)} if whitened else {}),
    }
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise ValueError(f"{name} has shape {tensors[name].shape} instead of {shape}")
        if not np.isfinite(tensors[name]).all():
            raise ValueError(f"{name} has NaN or infinite values")


def _normalisation(discovery: AnchorDiscovery) -> dict[str, NDArray[np.float32]]:
    """What was done to the rows before anything else, where it was."""
    names = ("centre_x", "centre_y", "whitening_x", "whitening_y")
    arrays = {name: getattr(discovery, name + "_") for name in names}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}


def _model_arrays(model: PairModel) -> dict[str, NDArray[np.float32]]:
    return {name: np.ascontiguousarray(getattr(model, name).numpy()) for name in _MODEL_PARTS}


def _description(discovery: AnchorDiscovery) -> dict[str, Any]:
    agreement = discovery.as_exact_
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

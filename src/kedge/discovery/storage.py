"""Run folders: a fitted discovery as safetensors, JSON and TSV, readable by other tools; never pickle.

run.json              version, settings, inputs, health, iterations, timings
anchors.tsv           x, y, confidence, seed           anchors.safetensors   the vectors behind it
pairs.tsv             x, y, confidence, best first     match.safetensors     a partner for every row of X
seeds.tsv             x, y                             map.safetensors       the map and the centres
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from kedge import __version__
from kedge.discovery.alternation import Schedule
from kedge.discovery.judgement import Health
from kedge.discovery.paper import PaperSettings
from kedge.discovery.steps import Step
from kedge.errors import InputError
from kedge.spaces.atomic import atomic_folder
from kedge.spaces.pairs import read_table, write_table

if TYPE_CHECKING:
    from kedge.discovery.estimator import AnchorDiscovery

FORMAT = 1
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
        "seed_vectors_x",
        "seed_vectors_y",
    ),
    "map.safetensors": ("map",),
    "match.safetensors": ("match", "confidence", "pairs", "pair_confidence"),
}


def holds_run(folder: Path) -> bool:
    """Whether the folder holds a run."""
    return (folder / "run.json").is_file()


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a target that would lose something; an empty folder is as good as none."""
    if folder.is_file():
        raise InputError(f"{folder}: is a file; give the name of a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not holds_run(folder):
        raise InputError(f"{folder}: the folder is not empty and holds no run; choose another name")
    if not overwrite:
        raise InputError(f"{folder}: holds a run already; choose another name or ask to overwrite it")


def save(discovery: AnchorDiscovery, folder: Path, *, overwrite: bool, extra: Mapping[str, Any]) -> None:
    """Write a run folder; it appears complete or not at all."""
    check_target(folder, overwrite=overwrite)
    with atomic_folder(folder, replace=True) as temporary:
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
        write_table(temporary / "seeds.tsv", ("x", "y"), discovery.seed_keys_)
        for name, arrays in _ARRAYS.items():
            tensors = {array: np.ascontiguousarray(getattr(discovery, array + "_")) for array in arrays}
            if name == "map.safetensors":
                tensors |= _centres(discovery)
            save_file(tensors, temporary / name)
        text = json.dumps(_description(discovery) | dict(extra), indent=2, ensure_ascii=False, default=str)
        (temporary / "run.json").write_text(text + "\n", encoding="utf-8")


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
        discovery.health_ = Health(**run["health"])
        discovery.history_ = tuple(Step(**step) for step in run["history"])
        discovery.n_iter_, discovery.converged_ = int(run["iterations"]), bool(run["converged"])
        discovery.spread_y_ = float(run["spread_y"])
        tensors: dict[str, NDArray[Any]] = {}
        for name, arrays in _ARRAYS.items():
            stored = load_file(folder / name)
            tensors |= stored
            for array in arrays:
                setattr(discovery, array + "_", stored[array])
        discovery.centre_x_, discovery.centre_y_ = tensors.get("centre_x"), tensors.get("centre_y")
        for attribute, name in (
            ("anchor_keys_", "anchors.tsv"),
            ("pair_keys_", "pairs.tsv"),
            ("seed_keys_", "seeds.tsv"),
        ):
            setattr(discovery, attribute, [(row["x"], row["y"]) for row in read_table(folder / name)])
    except (KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
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
    except ValueError as error:
        raise InputError(f"{folder / 'run.json'}: not valid JSON ({error})") from error
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise InputError(f"{folder / 'run.json'}: format {FORMAT} is needed; written by another version of kedge?")
    return run


def _centres(discovery: AnchorDiscovery) -> dict[str, NDArray[np.float32]]:
    centres = {"centre_x": discovery.centre_x_, "centre_y": discovery.centre_y_}
    return {name: centre for name, centre in centres.items() if centre is not None}


def _description(discovery: AnchorDiscovery) -> dict[str, Any]:
    settings = {name: value for name, value in discovery.get_params().items() if name != "on_step"}
    settings["schedule"] = discovery.schedule and asdict(discovery.schedule)
    settings["paper"] = discovery.paper and asdict(discovery.paper)
    return {
        "format": FORMAT,
        "kedge": __version__,
        "settings": settings,
        "counts": {
            "rows_x": len(discovery.match_),
            "dim_x": discovery.map_.shape[0],
            "dim_y": discovery.map_.shape[1],
            "seeds": len(discovery.seeds_),
            "anchors": len(discovery.anchors_x_),
            "pairs": len(discovery.pairs_),
        },
        "health": asdict(discovery.health_),
        "iterations": discovery.n_iter_,
        "converged": discovery.converged_,
        "spread_y": discovery.spread_y_,
        "history": [asdict(step) | {"figures": dict(step.figures)} for step in discovery.history_],
    }

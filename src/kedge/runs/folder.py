"""Run folders: a fitted discovery as safetensors, JSON and TSV, readable by other tools; never pickle.

run.json              version, settings, inputs, health, iterations, timings
anchors.tsv           x, y, confidence, seed           anchors.safetensors   the vectors behind it
pairs.tsv             what was found, best first       match.safetensors     a partner for every row of X
seeds.tsv             what the run thinks of each      map.safetensors       the maps, the centers, the whitening
unmatched.tsv         space, key: rows in no pair      model.safetensors     the pair model of shared coordinates
SHA256SUMS            a checksum of every other file, as `sha256sum -c` reads it
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from kedge.errors import InputError
from kedge.judging.health import SEED_OPINIONS
from kedge.models.maps.families import form_of
from kedge.models.maps.protocol import Map
from kedge.runs.description import NAME, RunDescription, describe, holds_run, read_description
from kedge.runs.tables import HEADERS, Tables, read_tables, write_tables
from kedge.spaces.streams import require_regular_file
from kedge.spaces.writing.atomic import atomic_folder, require_parent
from kedge.storage.arrays import Array, between, pairs_of, read_arrays, rows_of, stored_shapes
from kedge.storage.checksum import file_sha256

SUMS = "SHA256SUMS"
MAPS = "map.safetensors"
MAX_CORRELATION = 0.99
"""Stored correlations of a pair model must not be larger; fitting clips them further down."""

TRUST = "trust_"
"""The prefix of the arrays that say how far a translation can be trusted."""

_ANCHORS, _MATCH, _MODEL = "anchors.safetensors", "match.safetensors", "model.safetensors"
_FILES = {NAME, SUMS, *HEADERS, _ANCHORS, MAPS, _MATCH, _MODEL}
RUN_FILES = frozenset(_FILES - {SUMS})
"""All files of a run but the checksums."""

# Further files of a run of many spaces; either kind of run may overwrite the other.
_FILES_OF_MANY = {"groups.tsv", "common.safetensors"}
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RunContents:
    """All that a run folder holds: the contents of `run.json`, the arrays by name, the maps, and the tables."""

    stored: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    map: Map
    map_back: Map
    tables: Tables
    map_query: Map | None = None

    @cached_property
    def description(self) -> RunDescription:
        """The contents of `run.json`, as values."""
        return describe(self.stored, f"{NAME}:")


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a target that would lose something; an empty folder is fine."""
    if folder.is_file():
        raise InputError(f"{folder}: is a file; give the name of a folder")
    require_parent(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not holds_run(folder):
        raise InputError(f"{folder}: the folder is not empty and holds no run; choose another name")
    if not overwrite:
        raise InputError(f"{folder}: already holds a run; choose another name or ask to overwrite it")
    foreign = sorted({path.name for path in folder.iterdir()} - _FILES - _FILES_OF_MANY)
    if foreign:
        raise InputError(
            f"{folder}: also holds {foreign[0]!r}, which is not part of a run; move it or choose another name"
        )


def write_run(contents: RunContents, folder: Path, *, overwrite: bool) -> None:
    """Write a run folder; it appears complete or not at all."""
    check_target(folder, overwrite=overwrite)
    text = json.dumps(contents.stored, indent=2, ensure_ascii=False, default=_plain)
    description = describe(json.loads(text), f"{NAME}:")  # what cannot be read back is not written
    with atomic_folder(folder) as temporary:
        write_tables(temporary, contents.tables, contents.arrays)
        maps = {"map": contents.map, "map_back": contents.map_back}
        if contents.map_query is not None:
            maps["map_query"] = contents.map_query
        for name, expected in _expected(description).items():
            tensors = {array: contents.arrays[array] for array in expected}
            if name == MAPS:
                tensors |= {f"{which}.{part}": a for which, one in maps.items() for part, a in one.state().items()}
            tensors = {array: np.ascontiguousarray(values) for array, values in tensors.items()}
            (temporary / name).write_bytes(serialize(tensors))  # save_file would create a private file
        (temporary / NAME).write_text(text + "\n", encoding="utf-8")
        seal(temporary)


def seal(folder: Path) -> None:
    """Write the checksums of all files of a run folder."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    (folder / SUMS).write_text("".join(f"{file_sha256(path)}  {path.name}\n" for path in files))


def read_run(folder: Path) -> RunContents:
    """Read a run folder back.

    Raises `InputError` if anything in it is missing, has changed since it was written, is invalid, or contradicts
    another part of it.
    """
    stored, run = read_description(folder)
    require_unchanged(folder, _FILES - {SUMS})
    files = _expected(run)
    arrays = {
        name: array for file, expected in files.items() for name, array in read_arrays(folder / file, expected).items()
    }
    maps = _read_maps(folder, run)
    tables = read_tables(folder, run.counts, arrays)
    return RunContents(stored, arrays, maps["map"], maps["map_back"], tables, maps.get("map_query"))


def read_translation(folder: Path) -> tuple[RunDescription, Arrays, dict[str, Map]]:
    """What translating needs from a run folder: the description, the centers and trust evidence, the maps by name."""
    _, run = read_description(folder)
    require_unchanged(folder, {NAME, MAPS})
    needed = {n: a for n, a in _expected(run)[MAPS].items() if n.startswith(("center", TRUST))}
    return run, read_arrays(folder / MAPS, needed), _read_maps(folder, run)


def changed_files(folder: Path, files: Collection[str] = RUN_FILES) -> dict[str, str]:
    """Which of these files of a run folder are not as they were written, and what is wrong with each."""
    path = folder / SUMS
    try:
        require_regular_file(path)
        text = path.read_text(encoding="utf-8")
    except (InputError, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read, so it is not known whether the run has changed since it was written"
        ) from error
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in text.split("\n")[:-1])}
    if text != "".join(f"{digest}  {name}\n" for name, digest in sums.items()):
        raise InputError(f"{path}: has changed since it was written: it must name each file once, on a line of its own")
    faults = {}
    for name in sorted(files):
        if not (folder / name).is_file():
            faults[name] = "is missing"
        elif name not in sums:
            faults[name] = f"has no checksum in {SUMS}"
        elif file_sha256(folder / name) != sums[name]:
            faults[name] = "has changed since it was written"
    return faults


def require_unchanged(folder: Path, files: Collection[str]) -> None:
    """Raise an `InputError` that names the first of these files of a run folder that is not as it was written."""
    for name, fault in changed_files(folder, files).items():
        raise InputError(
            f"{folder / name}: {fault} (see {SUMS}); restore it, or run the discovery again: the same inputs and "
            "settings give the same run"
        )


def _read_maps(folder: Path, run: RunDescription) -> dict[str, Map]:
    """Both maps, and that of queries if there is one."""
    families = {"map": run.maps.map.family, "map_back": run.maps.map_back.family}
    if run.queries is not None:
        families["map_query"] = run.maps.map.family
    return {which: _read_map(folder, which, family, run) for which, family in families.items()}


def _read_map(folder: Path, which: str, family: str, run: RunDescription) -> Map:
    """One of the maps, of any family."""
    path, counts = folder / MAPS, run.counts
    prefix = f"{which}."
    shapes = {name: shape for name, shape in stored_shapes(path).items() if name.startswith(prefix)}
    state = read_arrays(path, {name: between(1e9, *shape) for name, shape in shapes.items()})
    dims = (counts.dim_y, counts.dim_x) if which == "map_back" else (counts.dim_x, counts.dim_y)
    try:
        form = form_of(family)
        return form.from_state({name.removeprefix(prefix): array for name, array in state.items()}, dims)
    except InputError as error:
        raise InputError(f"{path}: {which}: {error}") from error


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored in run.json")


def _trust_arrays(run: RunDescription) -> dict[str, Array]:
    sizes, counts = run.trust, run.counts
    assert sizes is not None
    return {
        f"{TRUST}pairs": between(1, sizes.pairs, counts.dim_x),
        f"{TRUST}margins": between(2, sizes.pairs),
        f"{TRUST}seen": between(1, sizes.seen, counts.dim_x),
        f"{TRUST}directions": Array((counts.dim_x, counts.effective_dims)),
    }


def _expected(run: RunDescription) -> dict[str, dict[str, Array]]:
    """The arrays expected in each file, except those of the maps."""
    counts = run.counts
    n, m, dx, dy = counts.rows_x, counts.rows_y, counts.dim_x, counts.dim_y
    a, s, p, c = counts.anchors, counts.seeds, counts.pairs, counts.effective_dims
    centered, whitened = bool(run.settings.get("center", True)), run.whitening > 0
    return {
        _ANCHORS: {
            "anchors_x": rows_of(n, a),
            "anchors_y": rows_of(m, a),
            "anchor_confidence": Array((a,), minimum=0, maximum=1),
            "anchor_is_seed": Array((a,), "BOOL"),
            "anchor_vectors": Array((a, dx)),
            "free_anchors": Array((a, dy)),
            "snapped_anchors": Array((a, dy)),
            "seeds": pairs_of(n, m, s),
            "seed_is_suspect": Array((s,), "BOOL"),
            "seed_opinion": rows_of(len(SEED_OPINIONS), s),
            "seed_rank": Array((s,), "F64", minimum=1, maximum=max(n, m) + 1),
            "seed_vectors_x": Array((s, dx)),
            "seed_vectors_y": Array((s, dy)),
        },
        MAPS: {
            **({"center_x": between(1, dx), "center_y": between(1, dy)} if centered else {}),
            **({"center_query": between(1, dx), "center_query_target": between(1, dy)} if run.queries else {}),
            **(_trust_arrays(run) if run.trust else {}),
            **({"whitening_x": Array((dx, dx)), "whitening_y": Array((dy, dy))} if whitened else {}),
        },
        _MATCH: {
            "match": rows_of(m, n),
            "confidence": Array((n,), minimum=0, maximum=1),
            "mutual": Array((n,), "BOOL"),
            "pairs": pairs_of(n, m, p),
            "pair_confidence": Array((p,), minimum=0, maximum=1),
        },
        _MODEL: {
            "directions_x": Array((dx, c)),
            "directions_y": Array((dy, c)),
            "correlations": Array((c,), minimum=0, maximum=MAX_CORRELATION),
        },
    }

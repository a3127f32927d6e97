"""Files of `kedge export`, read back as translators; loads no torch."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from kedge.errors import InputError, KedgeError
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Normaliser, TranslationStep, Translator
from kedge.spaces.memory import require_room
from kedge.spaces.streams import require_regular_file

SUFFIXES = (".npz", ".safetensors")
"""The suffixes of files that hold a translator as plain arrays."""
FORMAT = "kedge-translation"
"""The format that such a file declares."""
_NAMES = ("matrix", "source_center", "target_center", "length")
# Only where the source holds the first of more dimensions; files of earlier versions never have it.
_PREFIX_OF = "prefix_of"
_SUM = "sha256"


def with_sum(about: Mapping[str, str], arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """What a file says about itself, with the SHA-256 of that and of its arrays: names, types, shapes and numbers."""
    said = {name: text for name, text in about.items() if name != _SUM}
    summed = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        summed.update(json.dumps([name, array.dtype.str, array.shape]).encode() + array.tobytes())
    return {**said, _SUM: summed.hexdigest()}


def is_exported(path: Path) -> bool:
    """Whether a path names an exported file rather than a run folder."""
    return path.suffix.lower() in (*SUFFIXES, ".onnx") and not path.is_dir()


def read_exported(path: Path) -> tuple[Translator, Mapping[str, str]]:
    """The translator in a .npz or .safetensors file, and what the file says about itself."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path}: only {' and '.join(SUFFIXES)} can be read back; use onnxruntime for this file, or the run folder"
        )
    require_regular_file(path)
    read = _read_npz if path.suffix.lower() == ".npz" else _read_safetensors
    try:
        arrays, text = read(path)
        about = json.loads(text)
    except KedgeError:
        raise
    except Exception as error:  # whatever the parsers of zip, NumPy, safetensors and JSON raise
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: is not a file written by `kedge export --to numpy` ({why})") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"{path}: is not a file written by `kedge export --to numpy`; export the run again")
    translator = _translator(path, arrays)
    if _SUM in about and about != with_sum(about, arrays):  # earlier versions wrote none
        raise InputError(f"{path}: its SHA-256 shows that it has changed since it was written; export the run again")
    return translator, about


def _read_npz(path: Path) -> tuple[dict[str, NDArray[Any]], str]:
    with zipfile.ZipFile(path) as archive:
        require_room(sum(member.file_size for member in archive.infolist()), path)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in _names_in(stored.files)}, str(stored["about"])


def _read_safetensors(path: Path) -> tuple[dict[str, NDArray[Any]], str]:
    with safe_open(path, framework="np") as stored:
        names = _names_in(stored.keys())
        return {name: stored.get_tensor(name) for name in names}, (stored.metadata() or {})["about"]


def _names_in(stored: Collection[str]) -> tuple[str, ...]:
    """The arrays to read of those that are stored."""
    return (*_NAMES, _PREFIX_OF) if _PREFIX_OF in stored else _NAMES


def _translator(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Translator:
    matrix = arrays["matrix"]
    shapes = {"source_center": matrix.shape[:1], "target_center": matrix.shape[1:], "length": ()}
    faults = [name for name, shape in shapes.items() if arrays[name].shape != shape]
    faults += [name for name in _NAMES if arrays[name].dtype != np.float32 or not np.isfinite(arrays[name]).all()]
    if matrix.ndim != 2 or not matrix.size or faults or arrays["length"] <= 0:
        wrong = faults[0] if faults else "matrix"
        raise InputError(f"{path}: {wrong} has changed since it was written; export the run again")
    prefix_of = arrays.get(_PREFIX_OF)
    if prefix_of is not None and (prefix_of.shape or prefix_of.dtype != np.int64 or prefix_of <= len(matrix)):
        raise InputError(f"{path}: {_PREFIX_OF} has changed since it was written; export the run again")
    source, target = (Normaliser(arrays[f"{end}_center"]) for end in ("source", "target"))
    step = TranslationStep(source, LinearMap(matrix), target)
    return Translator((step,), float(arrays["length"]), prefix_of=None if prefix_of is None else int(prefix_of))

"""Export a run's translation to a file that a service can use with NumPy or onnxruntime, without torch or kedge."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import __version__
from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.many.common_space import CommonSpace
from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Translator
from kedge.runs.exported import FORMAT, with_sum
from kedge.runs.translators import Kind, Scale
from kedge.tasks.onnx_export import as_onnx

About = Mapping[str, str]


def about_translation(
    discovery: AnchorDiscovery, *, back: bool = False, scale: Scale = "unit", kind: Kind = "text"
) -> dict[str, str]:
    """The metadata of an exported file: direction, scale, purpose, and the run it comes from."""
    ends = {"source": "Y", "target": "X"} if back else {"source": "X", "target": "Y"}
    inputs = discovery.provenance_.get("inputs", {})
    files = {f"{end}_file": inputs.get(side.lower(), {}).get("file") for end, side in ends.items()}
    return {
        "format": FORMAT,
        "kedge": str(discovery.provenance_.get("kedge", __version__)),
        **ends,
        **{name: str(file) for name, file in files.items() if file},
        "scale": scale,
        **({"kind": kind, "queries": discovery.queries_.kind} if kind == "query" and discovery.queries_ else {}),
        "map": str(discovery.map_scores_["map_back" if back else "map"]["kind"]),
        "map_verdict": discovery.health_.map.verdict,
    }


def about_member_translation(common: CommonSpace, *, source: str, target: str, scale: Scale = "unit") -> dict[str, str]:
    """The metadata of an exported translation between two members of a common space."""
    return {
        "format": FORMAT,
        "kedge": str(common.provenance_.get("kedge", __version__)),
        "source": source,
        "target": target,
        "scale": scale,
        "map": "synchronised rotation",
        "map_verdict": common.health_.map.verdict,
    }


def export_bytes(translator: Translator, about: About, suffix: str) -> bytes:
    """The contents of a file with this suffix: .npz, .safetensors or .onnx."""
    if suffix not in _WRITERS:
        raise InputError(f"suffix must be one of {', '.join(_WRITERS)}, got {suffix!r}")
    return _WRITERS[suffix](translator, about)


def _as_npz(translator: Translator, about: About) -> bytes:
    stream, arrays = io.BytesIO(), _arrays(translator)
    np.savez(stream, **arrays, about=np.asarray(json.dumps(with_sum(about, arrays))))  # type: ignore[arg-type]
    return stream.getvalue()


def _as_safetensors(translator: Translator, about: About) -> bytes:
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in _arrays(translator).items()}
    # One entry, as in the .npz: the order of several would vary from file to file.
    return save(arrays, metadata={"about": json.dumps(with_sum(about, arrays))})


def _arrays(translator: Translator) -> dict[str, NDArray[Any]]:
    """The arrays that the NumPy code uses, one linear map between two centers, and `prefix_of`, if there is one."""
    if len(translator.steps) != 1 or not isinstance(translator.steps[0].map, LinearMap):
        raise InputError(
            "only one linear map can be written as plain arrays; export to onnx, or use kedge.load_translator"
        )
    step = translator.steps[0]
    return {
        **step.map.state(),
        "source_center": step.source.center,
        "target_center": step.target.center,
        "length": np.asarray(translator.length, dtype=np.float32),
        **({} if translator.prefix_of is None else {"prefix_of": np.asarray(translator.prefix_of, dtype=np.int64)}),
    }


_WRITERS: dict[str, Callable[[Translator, About], bytes]] = {
    ".npz": _as_npz,
    ".safetensors": _as_safetensors,
    ".onnx": as_onnx,
}

_BY_NUMPY = '''

def translate(vectors):
    """Vectors (k, {dim_in}), or one ({dim_in},), of {source} in {target}'s space."""
    v = np.asarray(vectors, dtype=np.float64)
    if not (np.isfinite(v).all() and v.any(axis=-1).all()):
        raise ValueError("vectors must be finite and not zero")
    v = v / np.linalg.norm(v, axis=-1, keepdims=True) - arrays["source_center"]
    v = v.astype(np.float32) @ arrays["matrix"]
    v = v / np.linalg.norm(v, axis=-1, keepdims=True)
    center = arrays["target_center"]
    along = (v @ center)[..., None]
    reach = np.sqrt(along**2 + max(0, 1 - center @ center)) - along
    return (center + reach * v) * arrays["length"]
'''
_LINES = {
    ".npz": f"""import numpy as np

arrays = dict(np.load({{file}}))
{_BY_NUMPY}""",
    ".safetensors": f"""import numpy as np
from safetensors.numpy import load_file

arrays = load_file({{file}})
{_BY_NUMPY}""",
    ".onnx": """import onnxruntime

session = onnxruntime.InferenceSession({file})


def translate(vectors):
    \"\"\"Vectors (k, {dim_in}) of {source}, float32, in {target}'s space.\"\"\"
    return session.run(["translated"], {{"vectors": vectors}})[0]
""",
}


def export_lines(translator: Translator, about: About, suffix: str, file: str) -> str:
    """Python code that uses an exported file of this name."""
    return _LINES[suffix].format(file=json.dumps(file, ensure_ascii=False), dim_in=translator.dims[0], **about)

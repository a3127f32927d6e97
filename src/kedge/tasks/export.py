"""A run's translation as a file that a service uses with NumPy or onnxruntime alone, without torch or kedge."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from kedge import __version__
from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.estimators.fitted import Scale
from kedge.extras import needing
from kedge.models.translator import Translation

About = Mapping[str, str]

# As old as it can be: these operators have their present form since opset 13, which came with version 7 of the format.
_OPSET, _IR_VERSION = 13, 7
# ONNX has no operator that refuses an input. An index out of range is an error by its standard, which names the node.
_REFUSAL = "vectors_must_be_finite_and_not_zero"


def about_translation(discovery: AnchorDiscovery, *, back: bool = False, scale: Scale = "unit") -> dict[str, str]:
    """What an exported file says of itself: direction, scale, and the run it is from."""
    ends = {"source": "Y", "target": "X"} if back else {"source": "X", "target": "Y"}
    inputs = discovery.provenance_.get("inputs", {})
    files = {f"{end}_file": inputs.get(side.lower(), {}).get("file") for end, side in ends.items()}
    return {
        "format": "kedge-translation",
        "kedge": str(discovery.provenance_.get("kedge", __version__)),
        **ends,
        **{name: str(file) for name, file in files.items() if file},
        "scale": scale,
        "map": str(discovery.map_scores_["map_back" if back else "map"]["kind"]),
        "map_verdict": discovery.health_.map.verdict,
    }


def export_bytes(translation: Translation, about: About, suffix: str) -> bytes:
    """The contents of a file with this suffix: .npz, .safetensors or .onnx."""
    if suffix not in _WRITERS:
        raise InputError(f"suffix must be one of {', '.join(_WRITERS)}, got {suffix!r}")
    return _WRITERS[suffix](translation, about)


def _as_npz(translation: Translation, about: About) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **translation._asdict(), about=np.asarray(json.dumps(about)))
    return stream.getvalue()


def _as_safetensors(translation: Translation, about: About) -> bytes:
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in translation._asdict().items()}
    # One entry, as in the .npz: of several the order would differ from file to file.
    return save(arrays, metadata={"about": json.dumps(about)})


def _as_onnx(translation: Translation, about: About) -> bytes:
    """A model from `vectors` (rows, d) to `translated` (rows, e), which refuses rows without a direction."""
    onnx = _import_onnx()
    helper, number, whole = onnx.helper, onnx.TensorProto.FLOAT, {"to": onnx.TensorProto.INT64}
    constants = translation._asdict() | {
        "target_column": translation.target_center[:, None],
        "left_over": np.asarray(translation.left_over, dtype=np.float32),
        "one": np.ones(1, dtype=np.float32),
        "zero": np.zeros((), dtype=np.float32),
        "tiny": np.finfo(np.float32).tiny,
    }
    over_rows = {"axes": [1], "keepdims": 1}
    steps: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
        ("Abs", ("vectors",), "sizes", {}),
        # Divided by their largest entry first, tiny and huge vectors have squares within the range of float32.
        ("ReduceMax", ("sizes",), "largest", over_rows),
        # `wrong` is 0 for a usable row, and what `one` has no entry for otherwise.
        ("IsNaN", ("vectors",), "is_nan", {}),
        ("IsInf", ("vectors",), "is_infinite", {}),
        ("Or", ("is_nan", "is_infinite"), "is_odd", {}),
        ("Cast", ("is_odd",), "odd_entries", whole),
        ("ReduceMax", ("odd_entries",), "odd", over_rows),
        ("Equal", ("largest", "zero"), "is_zero", {}),
        ("Cast", ("is_zero",), "zeros", whole),
        ("Add", ("odd", "zeros"), "wrong", {}),
        ("Gather", ("one", "wrong"), "usable", {"axis": 0, "name": _REFUSAL}),
        ("Mul", ("vectors", "usable"), "checked", {}),
        ("Div", ("checked", "largest"), "scaled", {}),
        ("ReduceL2", ("scaled",), "scaled_length", over_rows),
        ("Div", ("scaled", "scaled_length"), "unit", {}),
        ("Sub", ("unit", "source_center"), "centered", {}),
        ("MatMul", ("centered", "matrix"), "mapped", {}),
        ("ReduceL2", ("mapped",), "mapped_length", over_rows),
        ("Max", ("mapped_length", "tiny"), "divisor", {}),
        ("Div", ("mapped", "divisor"), "direction", {}),
        ("MatMul", ("direction", "target_column"), "along", {}),
        ("Mul", ("along", "along"), "along_squared", {}),
        ("Add", ("along_squared", "left_over"), "reach_squared", {}),
        ("Sqrt", ("reach_squared",), "reach_from_foot", {}),
        ("Sub", ("reach_from_foot", "along"), "reach", {}),
        ("Mul", ("direction", "reach"), "ray", {}),
        ("Add", ("ray", "target_center"), "point", {}),
        ("Mul", ("point", "length"), "translated", {}),
    )
    dim_in, dim_out = translation.matrix.shape
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output], **options) for operator, inputs, output, options in steps],
        "translation",
        [helper.make_tensor_value_info("vectors", number, ["rows", dim_in])],
        [helper.make_tensor_value_info("translated", number, ["rows", dim_out])],
        [onnx.numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="kedge",
        producer_version=__version__,
    )
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))


def _import_onnx() -> ModuleType:
    with needing("ONNX files need", "onnx", install="kedge[onnx]"):
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    return onnx


_WRITERS: dict[str, Callable[[Translation, About], bytes]] = {
    ".npz": _as_npz,
    ".safetensors": _as_safetensors,
    ".onnx": _as_onnx,
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


def export_lines(translation: Translation, about: About, suffix: str, file: str) -> str:
    """Lines of Python that use an exported file of this name."""
    return _LINES[suffix].format(file=json.dumps(file, ensure_ascii=False), dim_in=len(translation.matrix), **about)

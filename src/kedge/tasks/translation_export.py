"""A run's translation as a file that a service uses with NumPy or onnxruntime alone, without torch or kedge."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import __version__
from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.extras import needing
from kedge.models.translator import Normaliser, Translator
from kedge.runs.translators import Scale

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


def export_bytes(translator: Translator, about: About, suffix: str) -> bytes:
    """The contents of a file with this suffix: .npz, .safetensors or .onnx."""
    if suffix not in _WRITERS:
        raise InputError(f"suffix must be one of {', '.join(_WRITERS)}, got {suffix!r}")
    return _WRITERS[suffix](translator, about)


def _as_npz(translator: Translator, about: About) -> bytes:
    stream = io.BytesIO()
    contents: dict[str, Any] = {**_arrays(translator), "about": np.asarray(json.dumps(about))}
    np.savez(stream, **contents)
    return stream.getvalue()


def _as_safetensors(translator: Translator, about: About) -> bytes:
    from safetensors.numpy import save

    # One entry, as in the .npz: of several the order would differ from file to file.
    return save(_arrays(translator), metadata={"about": json.dumps(about)})


def _arrays(translator: Translator) -> dict[str, NDArray[np.float32]]:
    """What the printed lines translate by: of one step, whose map is a matrix."""
    step, *more = translator.steps
    state = step.map.state()
    if more or set(state) != {"matrix"}:
        raise InputError("this translation is more than one matrix, which NumPy files cannot hold; export it as .onnx")
    arrays = {"matrix": state["matrix"], "source_center": step.source.center, "target_center": step.target.center}
    return {name: np.asarray(array, order="C") for name, array in arrays.items()} | {
        "length": np.asarray(translator.length, dtype=np.float32)
    }


class _Graph:
    """An ONNX graph that is drawn node by node: an `OnnxGraph`."""

    def __init__(self, onnx: ModuleType) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: NDArray[Any]) -> str:
        """The name of a constant that holds this array."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the output of a new node."""
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output


def _as_onnx(translator: Translator, about: About) -> bytes:
    """A model from `vectors` (rows, d) to `translated` (rows, e), which refuses rows without a direction."""
    onnx = _import_onnx()
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    drawn = _Graph(onnx)
    rows = _checked(drawn, "vectors", onnx.TensorProto.INT64)
    for step in translator.steps:
        normalised = _unit(drawn, drawn.node("Sub", _unit(drawn, rows), drawn.constant(step.source.center)))
        rows = _denormalised(drawn, _unit(drawn, step.map.onnx(drawn, normalised)), step.target)
    length = drawn.constant(np.asarray(translator.length, dtype=np.float32))
    drawn.nodes.append(helper.make_node("Mul", [rows, length], ["translated"]))
    dim_in, dim_out = translator.dims
    graph = helper.make_graph(
        drawn.nodes,
        "translation",
        [helper.make_tensor_value_info("vectors", number, ["rows", dim_in])],
        [helper.make_tensor_value_info("translated", number, ["rows", dim_out])],
        drawn.constants,
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


def _checked(graph: _Graph, rows: str, whole: int) -> str:
    """Rows, divided by their largest entry: then tiny and huge ones have squares within the range of float32.

    Those that are zero, or not finite, end the computation: their index into a single entry is out of range.
    """
    largest = graph.node("ReduceMax", graph.node("Abs", rows), axes=[1], keepdims=1)
    odd = graph.node("Or", graph.node("IsNaN", rows), graph.node("IsInf", rows))
    has_odd = graph.node("ReduceMax", graph.node("Cast", odd, to=whole), axes=[1], keepdims=1)
    is_zero = graph.node("Equal", largest, graph.constant(np.zeros((), dtype=np.float32)))
    wrong = graph.node("Add", has_odd, graph.node("Cast", is_zero, to=whole))
    one = graph.constant(np.ones(1, dtype=np.float32))
    usable = graph.node("Gather", one, wrong, axis=0, name=_REFUSAL)
    return graph.node("Div", graph.node("Mul", rows, usable), largest)


def _unit(graph: _Graph, rows: str) -> str:
    """Rows with unit norm; a zero row stays zero."""
    norm = graph.node("ReduceL2", rows, axes=[1], keepdims=1)
    tiny = graph.constant(np.asarray(np.finfo(np.float32).tiny))
    return graph.node("Div", rows, graph.node("Max", norm, tiny))


def _denormalised(graph: _Graph, directions: str, target: Normaliser) -> str:
    """As `Normaliser.inverse`: where the ray from the center in a direction meets the unit sphere."""
    along = graph.node("MatMul", directions, graph.constant(target.center[:, None]))
    left_over = graph.constant(np.asarray(target.left_over, dtype=np.float32))
    from_foot = graph.node("Sqrt", graph.node("Add", graph.node("Mul", along, along), left_over))
    reach = graph.node("Sub", from_foot, along)
    return graph.node("Add", graph.node("Mul", directions, reach), graph.constant(target.center))


def _import_onnx() -> ModuleType:
    with needing("ONNX files need", "onnx", install="kedge[onnx]"):
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    return onnx


_WRITERS: dict[str, Callable[[Translator, About], bytes]] = {
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


def export_lines(translator: Translator, about: About, suffix: str, file: str) -> str:
    """Lines of Python that use an exported file of this name."""
    return _LINES[suffix].format(file=json.dumps(file, ensure_ascii=False), dim_in=translator.dims[0], **about)

"""A translator as an ONNX model: from `vectors` (rows, d) to `translated` (rows, e)."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import __version__
from kedge.extras import needing
from kedge.models.translator import Normaliser, Translator

# The oldest possible: these operators got their present form in opset 13, which came with version 7 of the format.
_OPSET, _IR_VERSION = 13, 7
# ONNX has no operator that rejects an input. By its standard an index out of range is an error, which names the node.
_REFUSAL = "vectors_must_be_finite_and_not_zero"
_OVER_ROWS: dict[str, Any] = {"axes": [1], "keepdims": 1}


def as_onnx(translator: Translator, about: Mapping[str, str]) -> bytes:
    """The serialised ONNX model, which refuses rows without a direction (zero or not finite)."""
    onnx = _import_onnx()
    graph = _Graph(onnx)
    rows = graph.refuse_directionless("vectors")
    for step in translator.steps:
        direction = graph.unit(step.map.onnx(graph, graph.normalise(rows, step.source)))
        rows = graph.denormalise(direction, step.target)
    graph.node("Mul", rows, graph.constant(np.asarray(translator.length, dtype=np.float32)), output="translated")
    return graph.serialized(translator.dims, about)


class _Graph:
    """Collects nodes and constants in order; an `OnnxGraph`."""

    def __init__(self, onnx: ModuleType) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, array: NDArray[Any]) -> str:
        """Add a constant that holds this array, and return its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        name = output or f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def refuse_directionless(self, rows: str) -> str:
        """Pass rows on; running the model fails if any row is zero or holds NaN or infinite values."""
        whole = {"to": self._onnx.TensorProto.INT64}
        odd = self.node("Or", self.node("IsNaN", rows), self.node("IsInf", rows))
        odd = self.node("ReduceMax", self.node("Cast", odd, **whole), **_OVER_ROWS)
        largest = self.node("ReduceMax", self.node("Abs", rows), **_OVER_ROWS)
        zero = self.node("Cast", self.node("Equal", largest, self.constant(np.zeros((), np.float32))), **whole)
        # 0 for a usable row, otherwise an index out of range for a list of one number.
        wrong = self.node("Add", odd, zero)
        one = self.constant(np.ones(1, dtype=np.float32))
        return self.node("Mul", rows, self.node("Gather", one, wrong, axis=0, name=_REFUSAL))

    def normalise(self, rows: str, normaliser: Normaliser) -> str:
        """Scale to unit norm, subtract the center, scale to unit norm again."""
        # Dividing by the largest entry first keeps the squares of tiny and huge vectors within the range of float32.
        largest = self.node("ReduceMax", self.node("Abs", rows), **_OVER_ROWS)
        directions = self.unit(self.node("Div", rows, largest))
        return self.unit(self.node("Sub", directions, self.constant(normaliser.center)))

    def unit(self, rows: str) -> str:
        """Rows scaled to unit norm; a zero row stays zero."""
        tiny = self.constant(np.asarray(np.finfo(np.float32).tiny, dtype=np.float32))
        return self.node("Div", rows, self.node("Max", self.node("ReduceL2", rows, **_OVER_ROWS), tiny))

    def denormalise(self, directions: str, normaliser: Normaliser) -> str:
        """The point where the ray from the center in each direction meets the unit sphere."""
        along = self.node("MatMul", directions, self.constant(normaliser.center[:, None]))
        left_over = self.constant(np.asarray(normaliser.left_over, dtype=np.float32))
        foot = self.node("Sqrt", self.node("Add", self.node("Mul", along, along), left_over))
        ray = self.node("Mul", directions, self.node("Sub", foot, along))
        return self.node("Add", ray, self.constant(normaliser.center))

    def serialized(self, dims: tuple[int, int], about: Mapping[str, str]) -> bytes:
        """The checked model as bytes, deterministic for the same nodes."""
        helper, number = self._onnx.helper, self._onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "translation",
            [helper.make_tensor_value_info("vectors", number, ["rows", dims[0]])],
            [helper.make_tensor_value_info("translated", number, ["rows", dims[1]])],
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="kedge",
            producer_version=__version__,
        )
        helper.set_model_props(model, dict(about))
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))


def _import_onnx() -> ModuleType:
    with needing("ONNX files need", "onnx", install="kedge[onnx]"):
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    return onnx

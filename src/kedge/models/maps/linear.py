"""Linear maps: one matrix, however it was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.models.maps.protocol import Matrix, OnnxGraph

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LinearMap:
    """Rows times a `matrix` (ds, dt): a tensor while it is being fitted, a NumPy array once it is kept."""

    matrix: NDArray[np.float32] | Tensor

    @property
    def dims(self) -> tuple[int, int]:
        """Dimensions ds and dt."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def __call__(self, rows: Matrix) -> Matrix:
        """Rows (k, ds) as rows (k, dt)."""
        matrix: Any = self.matrix
        return rows @ matrix

    @classmethod
    def from_tensor(cls, matrix: Tensor) -> LinearMap:
        """The map by a matrix (ds, dt) of any precision."""
        return cls(matrix.float())

    def in_coordinates(self, source: Tensor, target: Tensor) -> LinearMap:
        """The same map, with rows multiplied by source (ds, k) before it, and by target.T (l, dt) after it."""
        matrix: Any = self.matrix
        return LinearMap(source @ matrix @ target.T)

    def state(self) -> dict[str, NDArray[np.float32]]:
        """The matrix."""
        matrix: Any = self.matrix
        if not isinstance(matrix, np.ndarray):
            matrix = matrix.contiguous().cpu().numpy()
        return {"matrix": matrix}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[np.float32]], dims: tuple[int, int]) -> LinearMap:
        """The map with this matrix."""
        if set(state) != {"matrix"} or state["matrix"].shape != dims:
            received = ", ".join(f"{name} {array.shape}" for name, array in state.items()) or "nothing"
            raise InputError(f"a linear map needs a matrix of shape {dims}, got {received}")
        return cls(state["matrix"])

    def onnx(self, graph: OnnxGraph, rows: str) -> str:
        """One product."""
        return graph.node("MatMul", rows, graph.constant(self.state()["matrix"]))

"""What a map is: a function between normalised rows that can be kept, loaded without torch, and exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Matrix = TypeVar("Matrix", NDArray[np.float32], "Tensor")
"""Rows: tensors while a map is being fitted, NumPy arrays once it is kept."""


class OnnxGraph(Protocol):
    """What a map draws its ONNX form with."""

    def constant(self, array: NDArray[Any]) -> str:
        """The name of a constant that holds this array."""

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the output of a new node."""


class Map(Protocol):
    """A map from unit rows with ds dimensions to rows with dt; of what comes out only the direction counts."""

    @property
    def dims(self) -> tuple[int, int]:
        """Dimensions ds and dt."""

    def __call__(self, rows: Matrix) -> Matrix:
        """Unit rows (k, ds) of the normalised source, as rows (k, dt) of the normalised target."""

    def in_coordinates(self, source: Tensor, target: Tensor) -> Self:
        """The same map for rows that come as rows @ source (ds, k) and go to rows @ target.T, of target (dt, l).

        Maps are fitted in principal axes, and kept in the coordinates that the spaces came with.
        """

    def state(self) -> dict[str, NDArray[np.float32]]:
        """All that it learned, as named float32 arrays."""

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[np.float32]], dims: tuple[int, int]) -> Self:
        """The map with this state; raises `InputError` where the state is not one of a map with these dimensions."""

    def onnx(self, graph: OnnxGraph, rows: str) -> str:
        """The name of what comes out, drawn into a graph, of unit rows (k, ds) of this name."""

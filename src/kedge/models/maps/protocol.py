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
    """What a map builds its ONNX form with."""

    def constant(self, array: NDArray[Any]) -> str:
        """Add a constant that holds this array; returns its name."""

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; returns the name of its output."""


class Map(Protocol):
    """A map from unit rows with ds dimensions to rows with dt; only the direction of the result counts."""

    @property
    def dims(self) -> tuple[int, int]:
        """Dimensions ds and dt."""

    def __call__(self, rows: Matrix) -> Matrix:
        """Unit rows (k, ds) of the normalised source, as rows (k, dt) of the normalised target."""

    def in_coordinates(self, source: Tensor, target: Tensor) -> Self:
        """The same map, with rows multiplied by source (ds, k) before it, and by target.T (l, dt) after it.

        Maps are fitted in principal axes, and kept in the original coordinates of the spaces.
        """

    def state(self) -> dict[str, NDArray[np.float32]]:
        """All that was learned, as named float32 arrays."""

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[np.float32]], dims: tuple[int, int]) -> Self:
        """The map with this state; raises `InputError` if the state does not fit a map with these dimensions."""

    def onnx(self, graph: OnnxGraph, rows: str) -> str:
        """Add the map to a graph, for the unit rows (k, ds) of this name; returns the name of its output."""

"""A family of maps that are not linear, as anybody might add one: a rotation, bent towards the pairs that are nearest.

What the rotation misses of a vector is predicted from what it misses of the nearest known pairs, by kernel ridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from kedge.models.maps.lesson import Lesson
    from kedge.models.maps.protocol import OnnxGraph

_NEAREST, _WIDTH, _RIDGE = 24, 0.3, 0.03


@dataclass(frozen=True)
class KernelMap:
    """A `rotation` (ds, dt), the source rows of known pairs (p, ds), and what the rotation misses of them (p, dt)."""

    rotation: NDArray[np.float32]
    known: NDArray[np.float32]
    missed: NDArray[np.float32]

    @property
    def dims(self) -> tuple[int, int]:
        """Dimensions ds and dt."""
        return self.rotation.shape[0], self.rotation.shape[1]

    def __call__(self, rows: Any) -> Any:
        """Rows (k, ds) as rows (k, dt)."""
        if not isinstance(rows, np.ndarray):
            return rows.new_tensor(self(rows.cpu().numpy()))
        count = min(_NEAREST, len(self.known))
        similarity = rows @ self.known.T
        nearest = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
        near = self.known[nearest]  # (k, c, ds)
        to_near = _kernel(np.take_along_axis(similarity, nearest, axis=1))
        among = _kernel(near @ near.transpose(0, 2, 1)) + _RIDGE * np.eye(count, dtype=np.float32)
        weights = np.linalg.solve(among, to_near[:, :, None])[:, :, 0]
        return rows @ self.rotation + np.einsum("kc,kcd->kd", weights, self.missed[nearest])

    def in_coordinates(self, source: Tensor, target: Tensor) -> KernelMap:
        """The same map between the spaces whose axes these are."""
        left, right = source.cpu().numpy(), target.cpu().numpy()
        return KernelMap(left @ self.rotation @ right.T, self.known @ left.T, self.missed @ right.T)

    def state(self) -> dict[str, NDArray[np.float32]]:
        """All of it."""
        return {"rotation": self.rotation, "known": self.known, "missed": self.missed}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[np.float32]], dims: tuple[int, int]) -> KernelMap:
        """The map with this state."""
        if set(state) != {"rotation", "known", "missed"}:
            raise InputError(f"a kernel map needs a rotation, known and missed, got {', '.join(sorted(state)) or None}")
        pairs = len(state["known"])
        for name, shape in {"rotation": dims, "known": (pairs, dims[0]), "missed": (pairs, dims[1])}.items():
            if state[name].shape != shape or not pairs:
                raise InputError(f"a kernel map needs {name} of shape {shape}, got {state[name].shape}")
        return cls(**state)

    def onnx(self, graph: OnnxGraph, rows: str) -> str:
        """ONNX solves no equations."""
        raise InputError("a kernel map cannot be exported to ONNX; choose a linear family")


def _kernel(similarity: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.exp((similarity - 1) / np.float32(_WIDTH))


Form = KernelMap


def candidates(lesson: Lesson) -> Iterator[tuple[str, KernelMap]]:
    """One map."""
    from kedge.geometry import nearest_rotation

    source, target = (rows.cpu().numpy() for rows in lesson.rows())
    rotation = nearest_rotation(lesson.moments.cross).float().cpu().numpy()
    yield f"kernel over {_NEAREST} pairs", KernelMap(rotation, source, target - source @ rotation)

"""`Translation`: all that carries vectors of one space into the other, as a few arrays and plain NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Rows carried at once: temporaries, which are float64 in part, are never as large as a space.
_ROWS = 4096
_TINY = np.finfo(np.float32).tiny


class Translation(NamedTuple):
    """What `translate` does to vectors of a source with d dimensions, for a target with e: float32 arrays.

    `matrix` (d, e) maps unit vectors of the source, less `source_center` (d,), to directions from `target_center` (e,);
    `length` () is that of the vectors that come out. Where a run was not centerd, both centers are zero.
    """

    matrix: NDArray[np.float32]
    source_center: NDArray[np.float32]
    target_center: NDArray[np.float32]
    length: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        matrix: NDArray[np.float32],
        source_center: NDArray[np.float32] | None,
        target_center: NDArray[np.float32] | None,
        length: float,
    ) -> Translation:
        """By a map (d, e) between normalised spaces, and the centers taken off them, if any."""
        source, target = (
            np.zeros(size, dtype=np.float32) if center is None else center
            for size, center in zip(matrix.shape, (source_center, target_center), strict=True)
        )
        return cls(matrix, source, target, np.asarray(length, dtype=np.float32))

    @property
    def left_over(self) -> float:
        """1 less the square of the target center's length: from 0 to 1."""
        center = self.target_center.astype(np.float64)
        return max(0.0, float(1 - center @ center))

    def carry(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Vectors (k, d), or one (d,), of the source as vectors (k, e), or one (e,), of the target."""
        rows = vectors.reshape(-1, vectors.shape[-1])
        carried = np.empty((len(rows), self.matrix.shape[1]), dtype=np.float32)
        for begin in range(0, len(rows), _ROWS):
            carried[begin : begin + _ROWS] = self._carry(rows[begin : begin + _ROWS])
        return carried.reshape(*vectors.shape[:-1], -1)

    def _carry(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        # In float64 the square of no finite float32 over- or underflows.
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        centerd = (rows / lengths[:, None] - self.source_center).astype(np.float32)
        directions = centerd @ self.matrix
        directions /= np.maximum(np.sqrt(np.einsum("ij,ij->i", directions, directions)), _TINY)[:, None]
        # The vector lies where the ray from the center in this direction meets the unit sphere.
        along = directions @ self.target_center
        reach = np.sqrt(along * along + np.float32(self.left_over)) - along
        directions *= reach[:, None]
        directions += self.target_center
        directions *= self.length
        return directions

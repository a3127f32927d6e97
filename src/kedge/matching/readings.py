"""Readings: coordinates of both spaces in which an inner product is similarity, and comparing rows by them.

Large spaces and their coordinates are held in half precision, so that together they take no more than float32 spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kedge.geometry import unit
from kedge.matching.blocks import map_rows
from kedge.matching.candidates import Candidates, find_candidates
from kedge.matching.comparison import CandidateComparison, Comparison, ExactComparison
from kedge.matching.half_precision import COLUMNS_PER_BIAS, to_half
from kedge.matching.problem import Problem


class Reading(Protocol):
    """Anything that maps the rows of both spaces to coordinates in which an inner product is their similarity.

    The last `biases` coordinates stand for what a row adds to its similarity, whatever it is compared with.
    """

    @property
    def biases(self) -> int:
        """How many of the last coordinates are biases."""

    def shared_x(self, rows: Tensor) -> Tensor:
        """Coordinates (n, c) of rows (n, dx)."""

    def shared_y(self, rows: Tensor) -> Tensor:
        """Coordinates (m, c) of rows (m, dy)."""


@dataclass(frozen=True)
class CosineReading:
    """The reading by cosine: rows multiplied by (dx, c) and (dy, c), and scaled to unit norm."""

    matrix_x: Tensor
    matrix_y: Tensor
    biases: int = 0

    def shared_x(self, rows: Tensor) -> Tensor:
        """Unit rows (n, c)."""
        return unit(rows @ self.matrix_x)

    def shared_y(self, rows: Tensor) -> Tensor:
        """Unit rows (m, c)."""
        return unit(rows @ self.matrix_y)


def compare(problem: Problem, reading: Reading, candidates: Candidates | None = None) -> Comparison:
    """Compare the rows of a problem by a reading; candidates are found if they are needed and none are given."""
    x = map_rows(problem.x, lambda rows: held(problem, reading.shared_x(rows), reading.biases, left=True))
    return compare_among(problem, x, read_y(problem, reading), candidates, reading.biases)


def compare_among(problem: Problem, x: Tensor, y: Tensor, candidates: Candidates | None, biases: int) -> Comparison:
    """Compare coordinates, as `held` returns them, all with all or among candidates, as the problem says.

    `biases` is that of the reading. Candidates are found if they are needed and none are given.
    """
    if problem.exact:
        return ExactComparison(x, y, problem.budget)
    if candidates is None:
        candidates = find_candidates(x, y, biases=COLUMNS_PER_BIAS * biases, budget=problem.budget)
    return CandidateComparison(x, y, candidates, problem.budget)


def read_y(problem: Problem, reading: Reading) -> Tensor:
    """The coordinates of the rows of Y by a reading, as `held` returns them."""
    return map_rows(problem.y, lambda rows: held(problem, reading.shared_y(rows), reading.biases, left=False))


def held(problem: Problem, coordinates: Tensor, biases: int, *, left: bool) -> Tensor:
    """Coordinates (k, c) of X (`left`) or Y as they are held: in half precision unless the problem is exact."""
    return coordinates if problem.exact else to_half(coordinates, biases, left=left)

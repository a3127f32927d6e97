"""All rows of two spaces side by side, as a reading has them: compared exactly, or among candidates if they are many.

Many rows are held in half precision, so that both spaces and their coordinates take no more than the spaces themselves.
"""

from __future__ import annotations

from torch import Tensor

from kedge.matching import (
    COLUMNS_OF_A_BIAS,
    CandidateComparison,
    Candidates,
    Comparison,
    ExactComparison,
    Rows,
    find_candidates,
    in_halves,
)
from kedge.matching.problem import Problem
from kedge.solving.alignment import Reading


def compare(problem: Problem, reading: Reading, candidates: Candidates | None = None) -> Comparison:
    """The rows of a problem by a reading; candidates are looked for, where there is need of them and none are given."""
    x = problem.x.sent(lambda rows: held(problem, reading.shared_x(rows), reading.biases, left=True))
    y = read_y(problem, reading)
    if problem.exact:
        return ExactComparison(x, y, problem.budget)
    if candidates is None:
        biases = COLUMNS_OF_A_BIAS * reading.biases
        candidates = find_candidates(x.own, y.own, biases=biases, budget=problem.budget)
    return CandidateComparison(x, y, candidates, problem.budget)


def compare_among(problem: Problem, x: Rows, y: Rows, candidates: Candidates | None) -> Comparison:
    """The rows of a problem in coordinates (n, c) and (m, c) of other readings, among candidates if there are such."""
    if candidates is None:
        return ExactComparison(x, y, problem.budget)
    return CandidateComparison(x, y, candidates, problem.budget)


def read_y(problem: Problem, reading: Reading) -> Rows:
    """The rows of Y by a reading, as they are held."""
    return problem.y.sent(lambda rows: held(problem, reading.shared_y(rows), reading.biases, left=False))


def held(problem: Problem, coordinates: Tensor, biases: int, *, left: bool) -> Tensor:
    """Coordinates (k, c), those of X on the left, as they are held: in halves where rows are many."""
    return coordinates if problem.exact else in_halves(coordinates, biases, left=left)

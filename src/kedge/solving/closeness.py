"""How close a cross moment brings two spaces: how alignments are compared where no pairs are known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kedge.geometry import nearest_rotation, unit
from kedge.matching import Problem, Reading, draw_rows, transport_targets, transport_value

# The plan that spaces are compared by: its epsilon and its Sinkhorn rounds.
_EPSILON, _ROUNDS = 0.02, 5
# Sinkhorn rounds of a plan from which a cross moment is taken.
_ROUNDS_TO_IMPLY = 3
# The spaces as they are, where the leading axes decide, and half-whitened, where others count too.
_WHITENINGS = (0.0, 0.5)


@dataclass(frozen=True)
class Closeness:
    """Compares cross moments (dx, dy) between the spaces of a problem, all on the same sample.

    It has at most `rows` rows of either space, drawn at random, since the order of the files may mean something.
    """

    problem: Problem
    rows: int = 4000

    def of(self, cross: Tensor) -> float:
        """The value of the entropic plan under the rotation that a cross moment implies; larger is closer."""
        values = []
        for whitened, left, right in self._spaces:
            mapped = unit(whitened.x @ nearest_rotation(left.double() @ cross.double() @ right.double()).float())
            values.append(transport_value(mapped, unit(whitened.y), _EPSILON, _ROUNDS, budget=whitened.budget))
        return sum(values) / len(values)

    @cached_property
    def sample(self) -> Problem:
        """The rows that are compared, without seeds."""
        none = torch.zeros(0, dtype=torch.int64, device=self.problem.device)
        chance = torch.Generator().manual_seed(0)
        drawn_x, drawn_y = (draw_rows(len(rows), self.rows, none, chance) for rows in (self.problem.x, self.problem.y))
        return Problem(self.problem.take_x(drawn_x), self.problem.take_y(drawn_y), none, none, self.problem.budget)

    @cached_property
    def _spaces(self) -> list[tuple[Problem, Tensor, Tensor]]:
        """The sample whitened to each strength, with the whitening matrices (dx, dx) and (dy, dy)."""
        return [(self.sample.whitened(some), *self.sample.whitenings(some)) for some in _WHITENINGS]


def implied_cross(problem: Problem, reading: Reading) -> Tensor:
    """The cross moment (dx, dy) of the rows of X and where an entropic plan sends them under a reading."""
    left, right = reading.shared_x(problem.x), reading.shared_y(problem.y)
    targets = transport_targets(left, right, problem.y, _EPSILON, _ROUNDS_TO_IMPLY, budget=problem.budget)
    return problem.x.T @ targets

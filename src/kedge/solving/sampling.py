"""Samples of two spaces that hold the same kind of rows, though nobody knows yet which row is whose counterpart.

Samples that are drawn apart of many rows rarely hold the same items. How close a row's nearest neighbours are does not
depend on how a space is turned, and things that have close neighbours in one space mostly have them in another: of the
rows in the densest places, far more are in both samples than chance would bring together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.matching import Problem, row_pieces

# Density is how similar the fourth nearest is, of so many rows drawn at random.
_REFERENCES, _NEAREST = 4000, 4


def dense_sample(problem: Problem, size: int, generator: torch.Generator) -> Problem:
    """At most `size` rows of either space, those in the densest places, always with the seeds."""
    if size >= max(len(problem.x), len(problem.y)):
        return problem.sample(size, generator)
    rows_x, rows_y = (
        torch.unique(torch.cat([_densest(rows, size, generator), seeds]))
        for rows, seeds in ((problem.x, problem.seeds_x), (problem.y, problem.seeds_y))
    )
    return problem.part(rows_x, rows_y)


def _densest(rows: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """The rows (k,), of all (n, d), in the densest places."""
    references = rows[torch.randperm(len(rows), generator=generator)[:_REFERENCES].to(rows.device)].float()
    nearest = min(_NEAREST, len(references))
    near = [(piece @ references.T).topk(nearest, dim=1).values[:, -1] for piece in row_pieces(rows)]
    return torch.cat(near).topk(min(size, len(rows))).indices

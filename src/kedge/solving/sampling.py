"""Samples of two spaces that share more items than random ones, although no counterparts are known yet.

Independent random samples of many rows rarely hold the same items. But how close a row's nearest neighbours are does
not depend on how a space is rotated, and items with close neighbours in one space mostly have them in another: among
the rows in the densest regions, far more items are in both samples than by chance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.matching import Problem, row_pieces

# The density around a row is its similarity to the fourth nearest of this many rows drawn at random.
_REFERENCES, _NEAREST = 4000, 4


def dense_sample(problem: Problem, size: int, generator: torch.Generator) -> Problem:
    """At most `size` rows of either space, those in the densest regions, and the seeds."""
    if size >= max(len(problem.x), len(problem.y)):
        return problem.sample(size, generator)
    rows_x, rows_y = (
        torch.unique(torch.cat([_densest(rows, size, generator), seeds]))
        for rows, seeds in ((problem.x, problem.seeds_x), (problem.y, problem.seeds_y))
    )
    return problem.part(rows_x, rows_y)


def _densest(rows: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Indices (k,) of at most `size` rows of (n, d), those in the densest regions."""
    references = rows[torch.randperm(len(rows), generator=generator)[:_REFERENCES].to(rows.device)].float()
    nearest = min(_NEAREST, len(references))
    near = [(piece @ references.T).topk(nearest, dim=1).values[:, -1] for piece in row_pieces(rows)]
    return torch.cat(near).topk(min(size, len(rows))).indices

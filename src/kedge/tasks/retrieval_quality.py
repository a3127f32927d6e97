"""The paper's retrieval metrics, computed exactly, in blocks, on any device.

All compare a source and a target whose rows i stand for the same item; queries are always source vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from kedge.errors import InputError
from kedge.geometry import unit
from kedge.matching import DEFAULT_BUDGET, largest, row_blocks, top_k, using_precision
from kedge.spaces.conversion import as_matrix


@dataclass(frozen=True)
class RetrievalScores:
    """Means over all rows.

    `jaccard`: Jaccard index of the k nearest rows in the source and in the target; `mrr`: reciprocal rank of the row
    itself among the k nearest in the target, 0 if it is not among them; `cosine`: cosine of a row with itself across
    the spaces; `p_at_1`: how often the nearest row is the right one; `foscttm`: fraction of samples closer than the
    true match, over both directions (0 is perfect, 0.5 is chance).
    """

    jaccard: float
    mrr: float
    cosine: float
    p_at_1: float
    foscttm: float


def retrieval_scores(
    source: Tensor | ArrayLike, target: Tensor | ArrayLike, k: int = 10, *, budget: int = DEFAULT_BUDGET
) -> RetrievalScores:
    """Score source coordinates (n, a) against target coordinates (n, a), whose rows i stand for the same item.

    Tensors are compared on their own device, anything else on the CPU.
    """
    source, target = _as_tensor(source, "source"), _as_tensor(target, "target")
    _check(source, target, k)
    source, target = unit(source), unit(target)
    return _scores(source, target, source, (source * target).sum(dim=1), k, budget)


def shared_scores(source: Tensor, target: Tensor, k: int = 10, *, budget: int = DEFAULT_BUDGET) -> RetrievalScores:
    """Score shared coordinates of a source (n, c + 2) against those of a target (n, c + 2), by inner product.

    Cosines, both within the source and of a row with itself across the spaces, use the first c columns only: the last
    two hold what a row loses or gains whatever it is compared with.
    """
    _check(source, target, k)
    if source.shape[1] < 3:
        raise InputError(f"shared coordinates have at least 3 columns, got {source.shape[1]}")
    within = unit(source[:, :-2])
    return _scores(source, target, within, (within * unit(target[:, :-2])).sum(dim=1), k, budget)


def _as_tensor(coordinates: Tensor | ArrayLike, name: str) -> Tensor:
    if isinstance(coordinates, Tensor):
        return coordinates
    return torch.from_numpy(np.array(as_matrix(coordinates, name), dtype=np.float32))


def _check(source: Tensor, target: Tensor, k: int) -> None:
    if source.shape != target.shape or source.ndim != 2 or len(source) == 0:
        raise InputError(
            f"source and target must be matrices of one shape, got {tuple(source.shape)} and {tuple(target.shape)}"
        )
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")


def _scores(source: Tensor, target: Tensor, within: Tensor, cosine: Tensor, k: int, budget: int) -> RetrievalScores:
    """Scores by inner product of source and target (n, a); `within` (n, b) gives the neighbours within the source.

    `cosine` (n,) holds the cosine of each row with itself.
    """
    n, k = len(source), min(k, len(source))
    own = (source * target).sum(dim=1)
    with using_precision("float32"):  # like the blocks below
        _, near_source = top_k(within, within, k, budget=budget)
    near_target = torch.empty_like(near_source)
    row_rivals = torch.zeros((), dtype=torch.int64, device=source.device)
    column_rivals = torch.zeros_like(row_rivals)
    for rows, block in row_blocks(source, target, budget):
        truth = torch.arange(rows.start, rows.stop, device=source.device)
        _, near_target[rows] = largest(block, k)
        # The true match must not be its own rival because of rounding.
        block[truth - rows.start, truth] = -torch.inf
        row_rivals += torch.count_nonzero(block > own[rows, None])  # several times faster than a sum
        column_rivals += torch.count_nonzero(block > own)
    foscttm = float(row_rivals + column_rivals) / (2 * n * max(n - 1, 1))
    neighbours = neighbour_scores(near_source, near_target)
    return RetrievalScores(
        neighbours.jaccard, neighbours.mrr, float(cosine.mean(dtype=torch.float64)), neighbours.p_at_1, foscttm
    )


class NeighbourScores(NamedTuple):
    """The scores that depend on lists of neighbours only; see `RetrievalScores`."""

    jaccard: float
    mrr: float
    p_at_1: float


def neighbour_scores(near_source: Tensor, near_target: Tensor) -> NeighbourScores:
    """Scores from the rows nearest (n, k) to each source row, within the source and in the target, best first."""
    k = near_target.shape[1]
    hits = near_target == torch.arange(len(near_target), device=near_target.device)[:, None]
    reciprocal = hits.any(dim=1).double() / (hits.int().argmax(dim=1) + 1)
    shared = torch.zeros_like(near_target[:, 0])
    for column in near_source.T:
        shared += (near_target == column[:, None]).sum(dim=1)
    overlap = shared.double() / (2 * k - shared)
    return NeighbourScores(float(overlap.mean()), float(reciprocal.mean()), float(hits[:, 0].double().mean()))

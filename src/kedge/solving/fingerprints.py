"""Fingerprints: coordinates that two spaces share before any pair is known.

How a row's similarities to all rows of its own space are distributed (its *profile*) does not depend on how the
space is rotated, and items that mean the same have similar profiles. The idea is that of Artetxe, Labaka and
Agirre's unsupervised VecMap (2018). A single profile says little, least of all that of a rare row. Two steps make
profiles strong enough to start from nothing: appending the mean profiles of a row's neighbours and of their
neighbours, and whitening the result, so that the few directions in which profiles differ most do not drown the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from kedge.geometry import eigh, leading_eigh, standardise, unit, whiten
from kedge.matching import row_blocks, top_k
from kedge.solving.steps import Log

_QUANTILES = 256
# Quantiles are denser among large similarities, which tell rows apart.
_DENSITY = 3
WHITENINGS = (0.0, 0.5)
"""Profiles are taken of the rows as they are and of half-whitened rows.

The Gram matrix of the latter is the square root of the original one, so that leading directions weigh less.
"""

_NEIGHBOURS = 50
_AVERAGES = 2
_COMPONENTS = 50


def fingerprints(
    x: Tensor, y: Tensor, budget: int, log: Log, whitenings: Sequence[float] = WHITENINGS
) -> tuple[Tensor, Tensor]:
    """Unit rows (n, k) and (m, k) that can be compared across the unit rows x (n, dx) and y (m, dy).

    Profiles are taken of the rows whitened to each of these strengths.
    """
    described = []
    for index, rows in enumerate((unit(x), unit(y)), start=1):
        described.append(_described(rows, budget, whitenings))
        log.report("fingerprints", index, 2)
    basis = whitening_basis(described, _COMPONENTS)  # one for both sides
    left, right = (unit(rows @ basis) for rows in described)
    return left, right


def whitening_basis(described: Sequence[Tensor], count: int) -> Tensor:
    """Leading principal axes (q, count) of the rows of several matrices (n, q), each divided by the deviation along it.

    The matrices count alike, whatever their number of rows. With fewer rows S than columns, the axes of S^T S are S^T
    times those of S S^T, which is smaller; axes that the rows do not span are left out.
    """
    rows, columns = sum(len(part) for part in described), described[0].shape[1]
    limits = torch.finfo(described[0].dtype)
    if rows < columns:
        stacked = torch.cat([part / (len(described) * len(part)) ** 0.5 for part in described]).double()
        variances, axes = eigh(stacked @ stacked.T)
        known = variances > max(limits.eps * float(variances[-1]), limits.tiny)
        known[:-count] = False
        known[-1] = True  # even if all rows are alike
        basis = stacked.T @ (axes[:, known] / variances[known].clamp_min(limits.tiny))
    else:
        covariance = torch.stack([(part.T @ part).double() / len(part) for part in described]).mean(dim=0)
        variances, axes = leading_eigh(covariance, count)
        floor = max(limits.eps * float(variances[-1]), limits.tiny)
        basis = axes / variances.clamp_min(floor).sqrt()
    return basis.to(described[0].dtype)


def _described(vectors: Tensor, budget: int, whitenings: Sequence[float]) -> Tensor:
    """Standardised profiles of the rows, their averages over neighbours, and the averages of those, side by side."""
    profiles = torch.cat(
        [standardise(similarity_profiles(unit(whiten(vectors, strength)), budget)) for strength in whitenings], dim=1
    )
    neighbours = top_k(vectors, vectors, min(_NEIGHBOURS, len(vectors) - 1) + 1, budget=budget)[1]
    levels = [profiles]
    for _ in range(_AVERAGES):
        average = torch.zeros_like(profiles)
        for column in neighbours.T:  # the row itself included; gathering all at once would take 50 times the memory
            average += levels[-1][column]
        levels.append(standardise(average))
    return torch.cat(levels, dim=1)


def similarity_profiles(vectors: Tensor, budget: int) -> Tensor:
    """Quantiles (n, q) of the similarities of each unit row of (n, d) to all others, largest first."""
    steps = torch.linspace(0, 1, _QUANTILES, dtype=torch.float64, device=vectors.device)
    # Skip the first: a row's largest similarity is the one to itself, and says nothing.
    positions = (1 + steps**_DENSITY * (len(vectors) - 2)).long().clamp(0, len(vectors) - 1)
    profiles = vectors.new_empty(len(vectors), _QUANTILES)
    # Four copies: the block, the sorted values, and indices twice the size.
    for rows, block in row_blocks(vectors, vectors, budget, copies=4):
        profiles[rows] = _descending(block)[:, positions]
    return profiles


def _descending(block: Tensor) -> Tensor:
    """The values of each row, largest first; on a CPU sorted by NumPy, which is vectorised and works in place."""
    if block.device.type != "cpu":
        return block.sort(dim=1, descending=True).values
    rows = block.numpy()
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:  # sorting releases the GIL
        list(threads.map(lambda part: part.sort(axis=1), np.array_split(rows, torch.get_num_threads())))
    return block.flip(1)

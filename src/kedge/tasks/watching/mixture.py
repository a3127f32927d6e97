"""Divide rows into two groups, each with its own Gaussian, along which a mixture of two models separates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from kedge.tasks.row_clusters import cluster_rows
from kedge.tasks.watching.likeness import Rows, likeness, quick_likeness, uniformity

MIN_GROUP = 20
"""The minimum size of a group: nothing can be said about the directions of fewer rows."""

# Numbers of clusters whose members are tried as groups: halves, kinds, and small dense places.
_CLUSTERS = (2, 8, 32)
# Shares of rows that are tried as a group, those least like the others.
_ODD_SHARES = (0.01, 0.05)
# Number of tried groups that are refined, those least like the rest first.
_REFINED = 5
_ROUNDS, _ON_THE_WAY = 15, 2
# Rows of one model vary about as much as those of another; a group more uniform than the others by this factor is some
# special kind of row, such as near-duplicates, and says nothing about models.
_MAX_UNIFORMITY = 3.0
# The likeness of a group of n rows has an uncertainty of about this, divided by the square root of n.
_CAUTION = 1.0
_BLOCK = 8192


@dataclass(frozen=True)
class GaussianGroup:
    """A Gaussian: its mean (d,), a matrix (d, d) that whitens rows, and the constant term of the log density."""

    mean: NDArray[np.float32]
    whitening: NDArray[np.float32]
    offset: float

    @classmethod
    def from_rows(cls, rows: Rows, share: float) -> GaussianGroup:
        """Fit a Gaussian to rows (n, d), with the covariance shrunk towards a sphere by OAS (Chen et al. 2010)."""
        count, dim = rows.shape
        mean = rows.mean(axis=0, dtype=np.float64)
        centered = rows - mean.astype(np.float32)
        cov = (centered.T @ centered / count).astype(np.float64)
        trace, squared = np.trace(cov), float(np.vdot(cov, cov))
        spread = max(squared - trace**2 / dim, np.finfo(np.float64).tiny)
        shrunk = min(1.0, ((1 - 2 / dim) * squared + trace**2) / ((count + 1 - 2 / dim) * spread))
        # Always keep a little of the sphere, so that dimensions that no row uses do not have zero variance.
        shrunk = max(shrunk, 1e-3)
        cov = (1 - shrunk) * cov
        cov.flat[:: dim + 1] += shrunk * trace / dim + np.finfo(np.float64).tiny
        factor = np.linalg.cholesky(cov)
        whitening = solve_triangular(factor, np.eye(dim), lower=True).T
        offset = float(np.log(share) - np.log(np.diag(factor)).sum())
        return cls(mean.astype(np.float32), whitening.astype(np.float32), offset)

    def log_density(self, rows: Rows) -> NDArray[np.float64]:
        """The log density (n,) of each row plus the log of the group's share, up to a constant."""
        found = np.empty(len(rows))
        for begin in range(0, len(rows), _BLOCK):
            whitened = (rows[begin : begin + _BLOCK] - self.mean) @ self.whitening
            found[begin : begin + _BLOCK] = -0.5 * np.einsum("ij,ij->i", whitened, whitened, dtype=np.float64)
        return found + self.offset


@dataclass(frozen=True)
class Split:
    """Two groups of rows.

    `minor` (n,) marks the rows of the smaller group; `likeness` is how like the others they are, and `uniformity` how
    many times more uniform.
    """

    minor: NDArray[np.bool_]
    likeness: float
    uniformity: float

    @property
    def cautious_likeness(self) -> float:
        """The likeness plus its uncertainty in a group of this size, so that a small group must be more unusual."""
        return self.likeness + _caution(self.minor)


def _caution(group: NDArray[np.bool_]) -> float:
    return _CAUTION / float(np.sqrt(group.sum()))


def foreign_splits(rows: Rows, random_state: int) -> list[Split]:
    """Ways to divide unit rows (n, d) into two groups, starting with those whose groups are least alike."""
    if len(rows) < 2 * MIN_GROUP:
        return []
    proposed = list(_proposals(rows, random_state))
    quick = [alike + _caution(group) for alike, group in zip(quick_likeness(rows, proposed), proposed, strict=True)]
    chosen = [proposed[place] for place in np.argsort(quick, kind="stable")[:_REFINED]]
    found = [split for group in chosen for split in _refine(rows, group)]
    found.sort(key=lambda split: split.cautious_likeness)
    if found:  # the group taken for foreign may consist of foreign rows and some odd ones
        halves = _halves(rows, found[0].minor, random_state)
        found += [split for half in halves for split in _refine(rows, half)]
    return sorted(found, key=lambda split: split.cautious_likeness)


def _proposals(rows: Rows, random_state: int) -> Iterator[NDArray[np.bool_]]:
    """Propose groups (n,) with at least `MIN_GROUP` rows both in and outside of them."""
    energy = np.einsum("ij,ij->i", rows @ (rows.T @ rows), rows)
    order = np.argsort(energy, kind="stable")
    for share in _ODD_SHARES:
        group = np.zeros(len(rows), dtype=bool)
        group[order[: max(MIN_GROUP, round(share * len(rows)))]] = True
        yield group
    for count in _CLUSTERS:
        if len(rows) < count * MIN_GROUP:
            break
        labels, centers = cluster_rows(torch.from_numpy(rows), count, MIN_GROUP, random_state)
        for cluster in range(len(centers) if len(centers) > 2 else 1):
            group = labels == cluster
            if min(group.sum(), (~group).sum()) >= MIN_GROUP:
                yield group


def _halves(rows: Rows, group: NDArray[np.bool_], random_state: int) -> Iterator[NDArray[np.bool_]]:
    """The two halves of a group (n,), if it has enough rows."""
    if group.sum() < 2 * MIN_GROUP:
        return
    labels, centers = cluster_rows(torch.from_numpy(rows[group]), 2, MIN_GROUP, random_state)
    for cluster in range(len(centers) if len(centers) > 1 else 0):
        half = np.zeros_like(group)
        half[np.flatnonzero(group)[labels == cluster]] = True
        yield half


def _refine(rows: Rows, group: NDArray[np.bool_]) -> Iterator[Split]:
    """Reassign rows to the more probable of a group and the others until none moves; yield an early step and the last.

    A small group may be right early on, and in the end be lost among the odd rows that it attracts.
    """
    for number in range(1, _ROUNDS + 1):
        if min(group.sum(), (~group).sum()) < MIN_GROUP:
            return
        share = float(group.mean())
        groups = GaussianGroup.from_rows(rows[~group], 1 - share), GaussianGroup.from_rows(rows[group], share)
        moved = groups[1].log_density(rows) > groups[0].log_density(rows)
        ended = np.array_equal(moved, group) or number == _ROUNDS
        if number == _ON_THE_WAY or ended:
            yield from _as_split(rows, group)
        if ended:
            return
        group = moved


def _as_split(rows: Rows, group: NDArray[np.bool_]) -> Iterator[Split]:
    """The split, unless its smaller group is too uniform."""
    if group.sum() * 2 > len(group):
        group = ~group
    others, few = rows[~group], rows[group]
    more_uniform = uniformity(few) / uniformity(others)
    if more_uniform <= _MAX_UNIFORMITY:
        yield Split(group, likeness(others, few), more_uniform)

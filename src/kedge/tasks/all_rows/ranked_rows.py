"""The few nearest rows of each row, collected from several comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kedge.matching import largest
from kedge.matching.candidates import KEPT
from kedge.matching.csls import NEIGHBOURS

# If fewer rows than this share gain anything, they are copied first.
_COPIED = 0.25
# If more similarities of a row than this are above its floor, its few largest are found instead.
_FEW = 4 * KEPT
# Rows merged at once: sorting takes about a kilobyte for each.
_MERGED = 32_768


@dataclass
class Ranked:
    """The nearest rows of the other side (n, k) and similarities to them (n, k); padded with -1 and -inf."""

    rows: Tensor
    values: Tensor

    @classmethod
    def nothing(cls, count: int) -> Ranked:
        """The table of rows that have not been compared yet."""
        return cls(torch.full((count, KEPT), -1, dtype=torch.int64), torch.full((count, KEPT), -torch.inf))

    def update(self, places: Tensor, similarity: Tensor, others: Tensor, besides: Ranked | None = None) -> None:
        """Add similarities (q, m) of the rows at some places (q,) to others (m,) that they have not met in this table.

        `besides` is another table of the same rows, used only to leave out what gains nothing: similarities that are no
        larger than the last in either table. Finding the few above takes a small part of the time of finding the few
        largest. The matrix may be transposed.
        """
        floor = self.values[places, -1]
        if besides is not None:
            floor = torch.maximum(floor, besides.values[places, -1])
        gains = (similarity.amax(dim=1) > floor).nonzero(as_tuple=True)[0]
        if len(gains) < _COPIED * len(places):
            similarity, places, floor = _picked(similarity, gains), places[gains], floor[gains]
        above = similarity > floor[:, None]
        counts = above.sum(dim=1, dtype=torch.int32)
        many = (counts > _FEW).nonzero(as_tuple=True)[0]
        if len(many):
            values, columns = largest(_picked(similarity, many), min(KEPT, similarity.shape[1]))
            self._add(places[many], values, others[columns])
            above[many], counts[many] = False, 0
        few = counts.nonzero(as_tuple=True)[0]
        if len(few):
            rows, columns = _entries(above)
            rank = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
            values = torch.full((len(places), int(counts.max())), -torch.inf)
            numbers = torch.full(values.shape, -1, dtype=torch.int64)
            values[rows, rank], numbers[rows, rank] = similarity[rows, columns], others[columns]
            self._add(places[few], values[few], numbers[few])

    def _add(self, places: Tensor, values: Tensor, rows: Tensor) -> None:
        """Add similarities (q, l) of the rows at some places (q,) to the given others (q, l)."""
        values, rows = torch.cat([self.values[places], values], dim=1), torch.cat([self.rows[places], rows], dim=1)
        best, order = values.topk(KEPT, dim=1)
        self.values[places], self.rows[places] = best, rows.gather(1, order)


def _picked(matrix: Tensor, rows: Tensor) -> Tensor:
    """Some rows (k,) of a matrix, contiguous; a transposed one is read in the order that it is stored in."""
    return matrix[rows] if matrix.is_contiguous() else matrix.T.index_select(1, rows).T.contiguous()


def _entries(marks: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and columns of the true entries of a matrix, row by row. NumPy finds them several times faster."""
    stored = marks if marks.is_contiguous() else marks.T
    found = torch.from_numpy(np.flatnonzero(stored.numpy()))
    rows = found // stored.shape[1]
    columns = found - rows * stored.shape[1]
    if stored is marks:
        return rows, columns
    order = columns.argsort(stable=True)
    return columns[order], rows[order]


def merge(rows: Tensor, values: Tensor) -> Ranked:
    """The best few of (n, l) candidates, without duplicates; ties are broken by row number."""
    if len(rows) > _MERGED:
        begins = range(0, len(rows), _MERGED)
        parts = [merge(rows[begin : begin + _MERGED], values[begin : begin + _MERGED]) for begin in begins]
        return Ranked(torch.cat([part.rows for part in parts]), torch.cat([part.values for part in parts]))
    rows, order = rows.sort(dim=1, stable=True)
    values = values.gather(1, order)
    values[:, 1:].masked_fill_(rows[:, 1:] == rows[:, :-1], -torch.inf)
    values, order = values.sort(dim=1, descending=True, stable=True)
    values, rows = values[:, :KEPT], rows.gather(1, order)[:, :KEPT]
    return Ranked(rows.masked_fill(values == -torch.inf, -1).contiguous(), values.contiguous())


def hubness_of(values: Tensor) -> Tensor:
    """Half the mean (n,) of each row's largest similarities (n, k), given best first; missing ones are ignored."""
    nearest = values[:, :NEIGHBOURS]
    there = nearest > -torch.inf
    return nearest.masked_fill(~there, 0).sum(dim=1) / there.sum(dim=1).clamp_min(1) / 2

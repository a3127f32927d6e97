"""The few nearest rows of each row, collected from several comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching import largest
from kedge.matching.candidates import KEPT
from kedge.matching.csls import NEIGHBOURS


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

        `besides` is another table of the same rows, used only to skip rows that gain nothing: finding the largest
        similarity of a row takes a hundredth of the time of finding the few largest.
        """
        floor = self.values[places, -1]
        if besides is not None:
            floor = torch.maximum(floor, besides.values[places, -1])
        gains = (similarity.amax(dim=1) > floor).nonzero(as_tuple=True)[0]
        if not len(gains):
            return
        places, similarity = places[gains], similarity[gains]
        values, columns = largest(similarity, min(KEPT, similarity.shape[1]))
        values = torch.cat([self.values[places], values], dim=1)
        rows = torch.cat([self.rows[places], others[columns]], dim=1)
        best, order = values.topk(KEPT, dim=1)
        self.values[places], self.rows[places] = best, rows.gather(1, order)


def merge(rows: Tensor, values: Tensor) -> Ranked:
    """The best few of (n, l) candidates, without duplicates; ties are broken by row number."""
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

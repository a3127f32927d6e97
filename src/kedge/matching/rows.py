"""The rows of a matrix, divided among the processes that share the work (all of them, where there is but one)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.matching.processes import processes

# Rows worked on at once where a temporary of the size of the matrix would otherwise appear.
_ROWS = 16_384
# Rows of half precision that are turned into float32 at once where all are gone through.
_PART = 65_536


@dataclass(frozen=True)
class Rows:
    """A matrix (n, d) of which this process answers for the rows `own` (n_r, d).

    `bounds` (count + 1,) says where each process's rows begin, and how many there are in all. `whole` (n, d) is there
    where every process holds all rows and only the work is divided, as with samples. Many rows are held in half
    precision; whatever takes rows from here gets float32.
    """

    own: Tensor
    bounds: tuple[int, ...]
    whole: Tensor | None = None

    @classmethod
    def shared(cls, matrix: Tensor) -> Rows:
        """A matrix that every process holds."""
        here = processes()
        return cls(matrix[here.share(len(matrix))], here.shares(len(matrix)), matrix)

    @classmethod
    def divided(cls, own: Tensor, total: int) -> Rows:
        """A matrix of `total` rows of which every process holds its share."""
        here = processes()
        return cls(own, here.shares(total), own if here.alone else None)

    def __len__(self) -> int:
        return self.bounds[-1]

    @property
    def dim(self) -> int:
        """Columns d."""
        return self.own.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.own.device

    @property
    def span(self) -> slice:
        """Which rows are `own`."""
        here = processes()
        if len(self.bounds) != here.count + 1:
            raise RuntimeError("these rows were divided among other processes than those that are at work now")
        return slice(self.bounds[here.rank], self.bounds[here.rank + 1])

    def pieces(self) -> Iterator[Tensor]:
        """Own rows, some thousands at a time."""
        return (self.own[begin : begin + _ROWS].float() for begin in range(0, len(self.own), _ROWS))

    def parts(self) -> Iterator[tuple[int, Tensor]]:
        """All rows, some at a time, each time with the number of the first: at once, or one process's after another."""
        if self.whole is not None and self.whole.dtype == torch.float32:
            yield 0, self.whole
        elif self.whole is not None:
            for begin in range(0, len(self.whole), _PART):
                yield begin, self.whole[begin : begin + _PART].float()
        else:
            yield from processes().in_turn(self.own, self.bounds)

    def take(self, rows: Tensor) -> Tensor:
        """The given rows (k, d), in every process."""
        if self.whole is not None:
            return self.whole[rows].float()
        taken = self.own.new_zeros(len(rows), self.dim)
        mine = (rows >= self.span.start) & (rows < self.span.stop)
        taken[mine] = self.own[rows[mine] - self.span.start]
        return processes().sum(taken)

    def gathered(self) -> Tensor:
        """All rows (n, d), in every process."""
        return self.joined(self.own) if self.whole is None else self.whole.float()

    def sent(self, function: Callable[[Tensor], Tensor]) -> Rows:
        """Each row sent through a function of rows (k, d) to rows (k, e), with temporaries for some rows at a time."""
        if self.whole is not None and not processes().alone:
            return Rows.shared(_by_parts(self.whole, function))
        own = _by_parts(self.own, lambda rows: function(rows.float()))
        return Rows(own, self.bounds, None if self.whole is None else own)

    def without(self, rows: Tensor) -> Rows:
        """All but the given rows (k,), numbered anew."""
        kept = torch.ones(len(self), dtype=torch.bool, device=self.device)
        kept[rows] = False
        if self.whole is not None:
            return Rows.shared(self.whole[kept])
        before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)]).tolist()
        return Rows(self.own[kept[self.span]], tuple(before[bound] for bound in self.bounds))

    def joined(self, own: Tensor) -> Tensor:
        """Results (n_r, ...) of every process's own rows, for all rows (n, ...), in every process."""
        return processes().joined(own, self.bounds)


def as_rows(matrix: Tensor | Rows) -> Rows:
    """Rows as they are; a tensor is one that every process holds."""
    return matrix if isinstance(matrix, Rows) else Rows.shared(matrix)


def _by_parts(matrix: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    if len(matrix) <= _ROWS:
        return function(matrix)
    first = function(matrix[:_ROWS])
    result = first.new_empty(len(matrix), *first.shape[1:])
    result[:_ROWS] = first
    for begin in range(_ROWS, len(matrix), _ROWS):
        result[begin : begin + _ROWS] = function(matrix[begin : begin + _ROWS])
    return result

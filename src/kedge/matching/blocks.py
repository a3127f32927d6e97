"""Rows and similarities a block at a time, so that nothing of the size of the whole is ever there at once.

Many rows are held in half precision; whatever goes over rows here hands them out as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kedge.errors import InputError

DEFAULT_BUDGET = 256 * 2**20
"""Bytes that the temporaries of one pass may take."""

# Larger blocks bring no speed on a CPU (measured on two cores: flat from 512 rows on): at most so many rows, and fewer
# where they are long, down to some hundreds.
_MAX_CPU_ROWS, _MAX_CPU_NUMBERS, _MIN_CPU_ROWS = 1024, 2**23, 256
_CACHE_LINE = 16  # float32 numbers
# How often a pass holds a block at once, at most.
_MAX_COPIES = 4
# Rows worked on at once where a temporary of the size of the matrix would otherwise appear.
_ROWS = 4096
# Rows of half precision that become float32 at once where all are gone over.
_HALF_ROWS = 65_536


def row_pieces(rows: Tensor) -> Iterator[Tensor]:
    """Rows (n, d) some thousands at a time, as float32."""
    return (rows[begin : begin + _ROWS].float() for begin in range(0, len(rows), _ROWS))


def float_parts(rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows (n, d) as float32, each part with the number of its first row: all at once unless they must be converted."""
    if rows.dtype == torch.float32:
        yield 0, rows
    else:
        for begin in range(0, len(rows), _HALF_ROWS):
            yield begin, rows[begin : begin + _HALF_ROWS].float()


def map_rows(rows: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Rows (n, d) sent through a function of float32 rows (k, d) to rows (k, e), some at a time."""
    first = function(rows[:_ROWS].float())
    if len(rows) <= _ROWS:
        return first
    result = first.new_empty(len(rows), *first.shape[1:])
    result[:_ROWS] = first
    for begin in range(_ROWS, len(rows), _ROWS):
        result[begin : begin + _ROWS] = function(rows[begin : begin + _ROWS].float())
    return result


def require_budget(budget: int, rows: int) -> None:
    """Raise an `InputError` unless so many bytes hold similarities to so many rows, as often as any pass needs them."""
    needed = 4 * _MAX_COPIES * rows
    if budget < needed:
        raise InputError(
            f"memory_budget of {budget} bytes is too small for rows of {rows} similarities; give at least {needed}"
        )


def _rows_per_block(a: Tensor, b: Tensor, budget: int, copies: int) -> int:
    """How many rows of len(b) similarities, with temporaries, fit in `budget` bytes."""
    row_bytes = a.element_size() * copies * len(b)
    if budget < row_bytes:
        raise InputError(
            f"memory_budget of {budget} bytes is too small for rows of {len(b)} similarities; give at least {row_bytes}"
        )
    limit = len(a)
    if a.device.type == "cpu":
        limit = min(_MAX_CPU_ROWS, max(_MAX_CPU_NUMBERS // max(len(b), 1), _MIN_CPU_ROWS))
    return max(1, min(budget // row_bytes, limit, len(a)))


def row_blocks(
    a: Tensor,
    b: Tensor,
    budget: int = DEFAULT_BUDGET,
    *,
    copies: int = 3,
    scale: float = 1.0,
    bias: Tensor | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows, scale * a[rows] @ b.T + bias) over all rows of a (n, d) against b (m, d), bias (m,) if any.

    The yielded block is one buffer that the next step overwrites; the consumer may change it in place. `copies` is how
    often the consumer holds a block at once, its temporaries counted in: what the budget must hold.
    """
    count = _rows_per_block(a, b, budget, copies)
    # Rows that begin on a cache line are worth up to four times the speed on a CPU (`python benchmarks/matching.py`).
    stride = -(-len(b) // _CACHE_LINE) * _CACHE_LINE
    buffer = torch.empty(count, stride, dtype=a.dtype, device=a.device)[:, : len(b)]
    columns = b.T
    for begin in range(0, len(a), count):
        rows = slice(begin, min(begin + count, len(a)))
        block = buffer[: rows.stop - begin]
        if bias is None and scale == 1:
            torch.mm(a[rows], columns, out=block)
        else:  # on the way, without another pass over the block or a copy of the inputs
            start = columns.new_zeros(()) if bias is None else bias
            torch.addmm(start, a[rows], columns, alpha=scale, out=block)
        yield rows, block

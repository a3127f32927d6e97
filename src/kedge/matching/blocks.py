"""Rows and similarities one block at a time, so that nothing of full size is ever in memory.

Large spaces are held in half precision; whatever iterates over rows here yields them as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from kedge.errors import InputError

DEFAULT_BUDGET = 256 * 2**20
"""Bytes that the temporaries of one pass may take."""

# Larger blocks are no faster on a CPU (measured on two cores: flat from 512 rows on). So a block has at most this many
# rows and numbers, but no fewer than a few hundred rows.
_MAX_CPU_ROWS, _MAX_CPU_NUMBERS, _MIN_CPU_ROWS = 1024, 2**23, 256
_CACHE_LINE = 16  # float32 numbers
# The most copies of a block that a pass holds at once.
_MAX_COPIES = 4
# Rows processed at once, to avoid a temporary as large as the matrix.
_ROWS = 4096
# Rows of half precision that are converted to float32 at once.
_HALF_ROWS = 65_536


def row_pieces(rows: Tensor) -> Iterator[Tensor]:
    """Rows (n, d) as float32, a few thousand at a time."""
    return (rows[begin : begin + _ROWS].float() for begin in range(0, len(rows), _ROWS))


def float_parts(rows: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows (n, d) as float32, each part with the number of its first row: one part unless they must be converted."""
    if rows.dtype == torch.float32:
        yield 0, rows
    else:
        for begin in range(0, len(rows), _HALF_ROWS):
            yield begin, rows[begin : begin + _HALF_ROWS].float()


def map_rows(rows: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of float32 rows (k, d) that gives rows (k, e) to all rows (n, d), some at a time."""
    first = function(rows[:_ROWS].float())
    if len(rows) <= _ROWS:
        return first
    result = first.new_empty(len(rows), *first.shape[1:])
    result[:_ROWS] = first
    for begin in range(_ROWS, len(rows), _ROWS):
        result[begin : begin + _ROWS] = function(rows[begin : begin + _ROWS].float())
    return result


def require_budget(budget: int, rows: int) -> None:
    """Raise an `InputError` unless `budget` bytes hold the similarities of one row to `rows` others, for any pass."""
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

    All blocks share one buffer, which the next step overwrites; the consumer may change it in place. `copies` is the
    number of blocks that must fit in the budget: this one and all temporaries of the consumer.
    """
    count = _rows_per_block(a, b, budget, copies)
    # Aligning rows to cache lines is up to four times faster on a CPU (`python benchmarks/matching.py`).
    stride = -(-len(b) // _CACHE_LINE) * _CACHE_LINE
    buffer = torch.empty(count, stride, dtype=a.dtype, device=a.device)[:, : len(b)]
    columns = b.T
    for begin in range(0, len(a), count):
        rows = slice(begin, min(begin + count, len(a)))
        block = buffer[: rows.stop - begin]
        if bias is None and scale == 1:
            torch.mm(a[rows], columns, out=block)
        else:  # within the product, without another pass over the block or a copy of the inputs
            start = columns.new_zeros(()) if bias is None else bias
            torch.addmm(start, a[rows], columns, alpha=scale, out=block)
        yield rows, block

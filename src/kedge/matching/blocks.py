"""Blocks of rows of a similarity, as many as a memory budget allows; the whole is never there at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kedge.errors import InputError

DEFAULT_BUDGET = 256 * 2**20
"""Bytes that the temporaries of one pass may take."""

# Larger blocks bring no speed on a CPU (measured on two cores: flat from 512 rows on).
_MAX_CPU_ROWS = 1024
_CACHE_LINE = 16  # float32 numbers


def _rows_per_block(a: Tensor, b: Tensor, budget: int, copies: int) -> int:
    """How many rows of len(b) similarities, with temporaries, fit in `budget` bytes."""
    row_bytes = a.element_size() * copies * len(b)
    if budget < row_bytes:
        raise InputError(
            f"memory_budget of {budget} bytes is too small for rows of {len(b)} similarities; give at least {row_bytes}"
        )
    most = _MAX_CPU_ROWS if a.device.type == "cpu" else len(a)
    return max(1, min(budget // row_bytes, most, len(a)))


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

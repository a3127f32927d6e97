"""Blocks of rows of a similarity, as many as a memory budget allows; the whole is never there at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kedge.errors import InputError

DEFAULT_BUDGET = 256 * 2**20
"""Bytes that the temporaries of one pass may take."""

# A reduction holds the block of products and at most two temporaries of its size.
_COPIES = 3
# Larger blocks bring no speed on a CPU (measured on two cores: flat from 512 rows on).
_MAX_ROWS = 1024


def rows_per_block(columns: int, budget: int, *, on_cpu: bool = True) -> int:
    """How many rows of `columns` float32 values, with temporaries, fit in `budget` bytes."""
    rows = budget // (4 * _COPIES * columns)
    if rows < 1:
        raise InputError(
            f"memory_budget of {budget} bytes is too small for rows of {columns} similarities; "
            f"give at least {4 * _COPIES * columns}"
        )
    return min(rows, _MAX_ROWS) if on_cpu else rows


def row_blocks(a: Tensor, b: Tensor, budget: int = DEFAULT_BUDGET) -> Iterator[tuple[slice, Tensor]]:
    """Yield (rows, a[rows] @ b.T) over all rows of a (n, d) against b (m, d).

    The yielded block is one buffer that the next step overwrites; the consumer may change it in place.
    """
    count = max(1, min(rows_per_block(len(b), budget, on_cpu=a.device.type == "cpu"), len(a)))
    buffer = torch.empty(count, len(b), dtype=a.dtype, device=a.device)
    columns = b.T
    for begin in range(0, len(a), count):
        rows = slice(begin, min(begin + count, len(a)))
        block = buffer[: rows.stop - begin]
        torch.mm(a[rows], columns, out=block)
        yield rows, block

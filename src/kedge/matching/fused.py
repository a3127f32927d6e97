"""Fused kernels (Triton): reductions of a similarity that never leaves the chip.

Each program owns a block of rows and walks over all columns: a tile of products in registers, reduced at once. What is
kept between tiles is a few numbers a row. Products are made of tf32 or bfloat16 numbers and added up in float32.

The same reductions in plain torch, over blocks of rows, are in the modules that call these (see `backend.py`), and the
tests hold the kernels to them. Import this module only where there is a CUDA device and Triton.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kedge.matching.backend import MOST_FUSED_NEIGHBOURS, Precision, current_precision

CALLS: Counter[str] = Counter()
"""How often each kernel was called, so that a test can tell that it was."""

_SLOTS: Any = tl.constexpr(MOST_FUSED_NEIGHBOURS)
_BARYCENTRE_ROWS = 64
# Widths that inner dimensions are padded to, in numbers; also how many a step of the product takes.
_STEP = {torch.bfloat16: 64, torch.float32: 32}


def prepare(rows: Tensor, precision: Precision) -> Tensor:
    """Rows (n, d) as the kernels want them: contiguous, of the precision's type, d padded with zeros to whole steps."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    step = _STEP[dtype]
    width = -(-rows.shape[1] // step) * step
    prepared = torch.zeros(len(rows), width, dtype=dtype, device=rows.device)
    prepared[:, : rows.shape[1]] = rows
    if precision == "tf32":
        # The tensor cores would cut the last 13 bits off; rounding leaves an error without a bias, and a smaller one.
        bits = prepared.view(torch.int32)
        bits.add_(0x1000).bitwise_and_(-0x2000)
    return prepared


def _how(precision: Precision) -> str:
    return "ieee" if precision == "float32" else "tf32"


def log_sum_exp(a: Tensor, b: Tensor, scale: float, bias: Tensor, *, precision: Precision | None = None) -> Tensor:
    """The log of sum_j exp(scale <a_i, b_j> + bias_j) (n,) for rows a (n, d) against b (m, d): a Sinkhorn half-step."""
    precision = precision or current_precision()
    left, right = prepare(a, precision), prepare(b, precision)
    result = torch.empty(len(a), device=a.device)
    block, tile, warps = _shape(len(a), left)
    CALLS["log_sum_exp"] += 1
    with torch.cuda.device(a.device):
        _log_sum_exp[(triton.cdiv(len(a), block),)](
            left, right, bias.contiguous(), result, len(a), len(b), scale,
            D=left.shape[1], BK=_STEP[left.dtype], BM=block, BN=tile, HOW=_how(precision),
            num_warps=warps, num_stages=3,
        )  # fmt: skip
    return result


def best_two(
    a: Tensor, b: Tensor, column_penalty: Tensor, forbidden: Tensor | None = None, *, precision: Precision | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The best column by <a_i, b_j> - penalty_j of each row: its index (n,), its value and the second best value (n,).

    `forbidden` (m,) names for each column one row that may not have it.
    """
    precision = precision or current_precision()
    left, right = prepare(a, precision), prepare(b, precision)
    index = torch.empty(len(a), dtype=torch.int32, device=a.device)
    first, second = torch.empty(2, len(a), device=a.device)
    block, tile, warps = _shape(len(a), left)
    barred = index if forbidden is None else forbidden.int().contiguous()
    CALLS["best_two"] += 1
    with torch.cuda.device(a.device):
        _best_two[(triton.cdiv(len(a), block),)](
            left, right, column_penalty.contiguous(), barred, index, first, second, len(a), len(b),
            BARRED=forbidden is not None, D=left.shape[1], BK=_STEP[left.dtype], BM=block, BN=tile, HOW=_how(precision),
            num_warps=warps, num_stages=3,
        )  # fmt: skip
    return index.long(), first, second


def top_k(a: Tensor, b: Tensor, k: int, *, precision: Precision | None = None) -> tuple[Tensor, Tensor]:
    """The k <= 16 greatest similarities (n, k) of each row of a (n, d) to rows of b (m, d), best first, and which."""
    precision = precision or current_precision()
    left, right = prepare(a, precision), prepare(b, precision)
    values = torch.empty(len(a), MOST_FUSED_NEIGHBOURS, device=a.device)
    indices = torch.empty(len(a), MOST_FUSED_NEIGHBOURS, dtype=torch.int32, device=a.device)
    block, tile, warps = _shape(len(a), left)
    CALLS["top_k"] += 1
    with torch.cuda.device(a.device):
        _top_k[(triton.cdiv(len(a), block),)](
            left, right, values, indices, len(a), len(b), k,
            D=left.shape[1], BK=_STEP[left.dtype], BM=block, BN=tile, HOW=_how(precision),
            num_warps=warps, num_stages=3,
        )  # fmt: skip
    kept, order = values[:, :k].sort(dim=1, descending=True)
    return kept, indices[:, :k].gather(1, order).long()


def barycentres(
    a: Tensor, b: Tensor, values: Tensor, scale: float, bias: Tensor, *, precision: Precision | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax over j of scale <a_i, b_j> + bias_j: the mean (n, v) of the values (m, v) it weighs, its log-sum-exp
    (n,), and its greatest exponent (n,). As attention does it, with at most 512 values a row.
    """
    precision = precision or current_precision()
    left, right = prepare(a, precision), prepare(b, precision)
    weighed = prepare(values, precision)
    means = torch.empty(len(a), values.shape[1], device=a.device)
    total, peak = torch.empty(2, len(a), device=a.device)
    width = max(16, triton.next_power_of_2(values.shape[1]))  # tensor cores take no fewer
    CALLS["barycentres"] += 1
    with torch.cuda.device(a.device):
        _barycentres[(triton.cdiv(len(a), _BARYCENTRE_ROWS),)](
            left, right, weighed, bias.contiguous(), means, total, peak, len(a), len(b), scale, weighed.shape[1],
            D=left.shape[1], BK=_STEP[left.dtype], V=values.shape[1], BV=width, BM=_BARYCENTRE_ROWS, BN=64,
            HOW=_how(precision), num_warps=8, num_stages=2,
        )  # fmt: skip
    return means, total, peak


def _shape(rows: int, prepared: Tensor) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps: smaller blocks where there would be too few of them to fill a GPU."""
    processors = torch.cuda.get_device_properties(prepared.device).multi_processor_count
    return (128, 128, 8) if rows >= 128 * processors else (64, 128, 4)


@triton.jit
def _tile(left, right, D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr):
    """Products (BM, BN) of rows whose first numbers `left` (BM,) and `right` (BN,) point to."""
    inner = tl.arange(0, BK)
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, D, BK):
        x = tl.load(left[:, None] + (k + inner)[None, :])
        y = tl.load(right[:, None] + (k + inner)[None, :])
        tile = tl.dot(x, tl.trans(y), tile, input_precision=HOW)
    return tile


@triton.jit(do_not_specialize=["n", "m"])
def _log_sum_exp(
    a, b, bias, result, n, m, scale,
    D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    left = a + tl.minimum(rows, n - 1).to(tl.int64) * D
    greatest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    # In powers of two: the hardware has no other exponential.
    to_two = 1.4426950408889634
    for begin in range(0, m, BN):
        columns = begin + tl.arange(0, BN)
        right = b + tl.minimum(columns, m - 1).to(tl.int64) * D
        tile = _tile(left, right, D, BK, BM, BN, HOW) * (scale * to_two)
        added = tl.load(bias + columns, mask=columns < m, other=float("-inf")) * to_two
        tile += added[None, :]
        highest = tl.maximum(greatest, tl.max(tile, 1))
        total = total * tl.exp2(greatest - highest) + tl.sum(tl.exp2(tile - highest[:, None]), 1)
        greatest = highest
    tl.store(result + rows, (greatest + tl.log2(total)) / to_two, mask=rows < n)


@triton.jit(do_not_specialize=["n", "m"])
def _best_two(
    a, b, penalty, barred, index, first, second, n, m,
    BARRED: tl.constexpr, D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    left = a + tl.minimum(rows, n - 1).to(tl.int64) * D
    best = tl.full((BM,), float("-inf"), dtype=tl.float32)
    runner_up = tl.full((BM,), float("-inf"), dtype=tl.float32)
    where = tl.zeros((BM,), dtype=tl.int32)
    for begin in range(0, m, BN):
        columns = begin + tl.arange(0, BN)
        right = b + tl.minimum(columns, m - 1).to(tl.int64) * D
        tile = _tile(left, right, D, BK, BM, BN, HOW)
        tile -= tl.load(penalty + columns, mask=columns < m, other=float("inf"))[None, :]
        if BARRED:
            row = tl.load(barred + columns, mask=columns < m, other=-1)
            tile = tl.where(row[None, :] == rows[:, None], float("-inf"), tile)
        value, place = tl.max(tile, 1, return_indices=True)
        others = tl.where(tl.arange(0, BN)[None, :] == place[:, None], float("-inf"), tile)
        runner_up = tl.maximum(tl.maximum(runner_up, tl.max(others, 1)), tl.minimum(best, value))
        where = tl.where(value > best, begin + place, where)
        best = tl.maximum(best, value)
    tl.store(index + rows, where, mask=rows < n)
    tl.store(first + rows, best, mask=rows < n)
    tl.store(second + rows, runner_up, mask=rows < n)


@triton.jit(do_not_specialize=["n", "m", "k"])
def _top_k(
    a, b, values, indices, n, m, k,
    D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    left = a + tl.minimum(rows, n - 1).to(tl.int64) * D
    slots = tl.arange(0, _SLOTS)
    # The slots beyond k are never the least, so that nothing gets into them.
    unused = tl.where(slots < k, float("-inf"), float("inf"))
    kept = tl.zeros((BM, _SLOTS), dtype=tl.float32) + unused[None, :]
    which = tl.zeros((BM, _SLOTS), dtype=tl.int32)
    for begin in range(0, m, BN):
        columns = begin + tl.arange(0, BN)
        right = b + tl.minimum(columns, m - 1).to(tl.int64) * D
        tile = _tile(left, right, D, BK, BM, BN, HOW)
        tile = tl.where((columns < m)[None, :], tile, float("-inf"))
        # Take the greatest of the tile while it beats the least kept; after the first tiles hardly any does.
        value, place = tl.max(tile, 1, return_indices=True)
        least, slot = tl.min(kept, 1, return_indices=True)
        while tl.max((value > least).to(tl.int32), 0) > 0:
            better = value > least
            into = better[:, None] & (slots[None, :] == slot[:, None])
            kept = tl.where(into, value[:, None], kept)
            which = tl.where(into, (begin + place)[:, None], which)
            tile = tl.where(tl.arange(0, BN)[None, :] == place[:, None], float("-inf"), tile)
            value, place = tl.max(tile, 1, return_indices=True)
            least, slot = tl.min(kept, 1, return_indices=True)
    address = rows.to(tl.int64)[:, None] * _SLOTS + slots[None, :]
    tl.store(values + address, kept, mask=(rows < n)[:, None])
    tl.store(indices + address, which, mask=(rows < n)[:, None])


@triton.jit(do_not_specialize=["n", "m"])
def _barycentres(
    a, b, values, bias, means, totals, peaks, n, m, scale, stride,
    D: tl.constexpr, BK: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    HOW: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    left = a + tl.minimum(rows, n - 1).to(tl.int64) * D
    across = tl.arange(0, BV)
    greatest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    mean = tl.zeros((BM, BV), dtype=tl.float32)
    to_two = 1.4426950408889634
    for begin in range(0, m, BN):
        columns = begin + tl.arange(0, BN)
        inside = tl.minimum(columns, m - 1).to(tl.int64)
        tile = _tile(left, b + inside * D, D, BK, BM, BN, HOW) * (scale * to_two)
        added = tl.load(bias + columns, mask=columns < m, other=float("-inf")) * to_two
        tile += added[None, :]
        highest = tl.maximum(greatest, tl.max(tile, 1))
        weights = tl.exp2(tile - highest[:, None])
        fade = tl.exp2(greatest - highest)
        total = total * fade + tl.sum(weights, 1)
        weighed = tl.load(values + inside[:, None] * stride + across[None, :], mask=(across < V)[None, :], other=0.0)
        mean = tl.dot(weights.to(weighed.dtype), weighed, mean * fade[:, None], input_precision=HOW)
        greatest = highest
    address = rows.to(tl.int64)[:, None] * V + across[None, :]
    tl.store(means + address, mean / total[:, None], mask=(rows < n)[:, None] & (across < V)[None, :])
    tl.store(totals + rows, (greatest + tl.log2(total)) / to_two, mask=rows < n)
    tl.store(peaks + rows, greatest / to_two, mask=rows < n)

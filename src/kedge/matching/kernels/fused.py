"""Fused kernels (Triton): reductions of a similarity that never leaves the chip.

Each program owns a block of rows and walks over all columns: a tile of products in registers, reduced at once. Only a
few numbers per row are kept between tiles. Products are taken in tf32, bfloat16 or float32, and accumulated in float32.

The bottleneck is loading tiles, not the reductions: blocks are as large as registers allow, they are loaded through
tensor descriptors (which Hopper copies asynchronously), and the loops over columns and over coordinates are flattened
into one for the compiler (`flatten`), so that the next tile is loaded while this one is reduced.

The modules that call these kernels contain the same reductions in plain torch, over blocks of rows (see `backend.py`),
and the tests compare the two. Import this module only if there is a CUDA device and Triton is installed.
"""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kedge.matching.kernels.backend import MAX_FUSED_NEIGHBOURS, Precision, current_precision

CALLS: Counter[str] = Counter()
"""How often each kernel was called, for tests."""

_SLOTS: Any = tl.constexpr(MAX_FUSED_NEIGHBOURS)
# log2(e): the hardware only has exponentials to the base 2.
_TO_TWO: Any = tl.constexpr(1.4426950408889634)
# Inner dimensions are padded to multiples of a step of the product: this many numbers, or 128 bytes.
_STEP = {torch.bfloat16: 64, torch.float32: 32}
_STEP_BYTES = 128
# The least of all supported chips, if torch does not report it.
_MIN_SHARED_MEMORY = 99 * 1024


class _Shape(NamedTuple):
    """Rows and columns of a tile, warps that share it, and how many tiles are loaded ahead."""

    rows: int
    columns: int
    warps: int
    stages: int


def prepare(rows: Tensor, precision: Precision) -> Tensor:
    """Rows (n, d) as the kernels need them: contiguous, of the precision's type, d padded with zeros to whole steps."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    step = _STEP[dtype]
    width = -(-rows.shape[1] // step) * step
    prepared = torch.zeros(len(rows), width, dtype=dtype, device=rows.device)
    prepared[:, : rows.shape[1]] = rows
    if precision == "tf32":
        # The tensor cores would truncate the last 13 bits; rounding leaves a smaller error, without a bias.
        bits = prepared.view(torch.int32)
        bits.add_(0x1000).bitwise_and_(-0x2000)
    return prepared


def log_sum_exp(a: Tensor, b: Tensor, scale: float, bias: Tensor, *, precision: Precision | None = None) -> Tensor:
    """The log of sum_j exp(scale <a_i, b_j> + bias_j) (n,) for rows a (n, d) against b (m, d): a Sinkhorn half-step."""
    result = torch.empty(len(a), device=a.device)
    _launch(_log_sum_exp, a, b, (bias.contiguous(), result), (scale,), precision or current_precision())
    return result


def best_two(
    a: Tensor, b: Tensor, column_penalty: Tensor, forbidden: Tensor | None = None, *, precision: Precision | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The best column by <a_i, b_j> - penalty_j of each row: its index (n,), its value and the second best value (n,).

    `forbidden` (m,) names for each column one row that may not have it.
    """
    index = torch.empty(len(a), dtype=torch.int32, device=a.device)
    first, second = torch.empty(2, len(a), device=a.device)
    barred = index if forbidden is None else forbidden.int()
    tensors = (column_penalty.contiguous(), barred, index, first, second)
    _launch(_best_two, a, b, tensors, (), precision or current_precision(), BARRED=forbidden is not None)
    return index.long(), first, second


def top_k(a: Tensor, b: Tensor, k: int, *, precision: Precision | None = None) -> tuple[Tensor, Tensor]:
    """The k <= 16 largest similarities (n, k) of each row of a (n, d) to rows of b (m, d), best first, and which."""
    values = torch.empty(len(a), MAX_FUSED_NEIGHBOURS, device=a.device)
    indices = torch.empty(len(a), MAX_FUSED_NEIGHBOURS, dtype=torch.int32, device=a.device)
    _launch(_top_k, a, b, (values, indices), (k,), precision or current_precision())
    kept, order = values[:, :k].sort(dim=1, descending=True)
    return kept, indices[:, :k].gather(1, order).long()


def barycenters(
    a: Tensor, b: Tensor, values: Tensor, scale: float, bias: Tensor, *, precision: Precision | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Means (n, v) of values (m, v) under a softmax over j of scale <a_i, b_j> + bias_j, as in attention.

    Also returns the log-sum-exp (n,) and the largest exponent (n,) of each row. There are at most 512 values a row.
    """
    precision = precision or current_precision()
    means = torch.empty(len(a), values.shape[1], device=a.device)
    total, peak = torch.empty(2, len(a), device=a.device)
    width = max(16, triton.next_power_of_2(values.shape[1]))  # the least that tensor cores take
    weighed = prepare(values, precision)
    shape = _fitted(_barycenter_shape(width, precision, a.device), a.device, width * weighed.element_size())
    tensors = (_described(weighed, shape.columns, width), bias.contiguous(), means, total, peak)
    _launch(_barycenters, a, b, tensors, (scale, values.shape[1]), precision, shape, BV=width)
    return means, total, peak


# Tuned on an H200 (`python benchmarks/fused.py`); one for each kernel, so that little is compiled. `_fitted` shrinks
# them for a chip with less shared memory.
_SHAPES = {
    "log_sum_exp": _Shape(128, 256, 8, 3),
    "best_two": _Shape(128, 256, 8, 4),
    "top_k": _Shape(128, 128, 4, 3),
}
_EXACT_SHAPE = _Shape(64, 64, 8, 2)


def _barycenter_shape(width: int, precision: Precision, device: torch.device) -> _Shape:
    """The shape for means of `width` values.

    Many values leave less room for the tile, and pass through shared memory once more before they are stored.
    """
    if precision == "float32" or 128 * width * 4 > min(shared_memory(device), 128 * 256 * 4):
        return _Shape(64, 32, 8, 2)
    return _Shape(128, 128, 8, 2) if precision == "bf16" else _Shape(128, 64, 8, 3)


def _fitted(shape: _Shape, device: torch.device, width: int = 0) -> _Shape:
    """The shape, or a smaller one whose tiles fit on the chip: first fewer are loaded ahead, then they are narrower.

    `width` is how many bytes a column takes besides its step of 128 bytes.
    """
    room = shared_memory(device)
    while shape.stages * ((shape.rows + shape.columns) * _STEP_BYTES + shape.columns * width) > room:
        if shape.stages > 1:
            shape = shape._replace(stages=shape.stages - 1)
        elif shape.columns > 16:
            shape = shape._replace(columns=shape.columns // 2)
        else:
            break  # let the compiler report it
    return shape


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory for the tiles of a program, with some left for reductions."""
    properties: Any = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", _MIN_SHARED_MEMORY)) - 4096


def _launch(
    kernel: Any,
    a: Tensor,
    b: Tensor,
    tensors: tuple[Any, ...],
    numbers: tuple[float, ...],
    precision: Precision,
    shape: _Shape | None = None,
    **constants: int,
) -> Any:
    """Run a kernel over all rows of a (n, d) against b (m, d), whose descriptors come before its other arguments.

    Returns the compiled kernel.
    """
    name = kernel.__name__.removeprefix("_")
    if shape is None:
        shape = _fitted(_EXACT_SHAPE if precision == "float32" else _SHAPES[name], a.device)
    CALLS[name] += 1
    if not len(a):
        return None
    left, right = prepare(a, precision), prepare(b, precision)
    step = _STEP[left.dtype]
    with torch.cuda.device(a.device):
        return kernel[(triton.cdiv(len(a), shape.rows),)](
            _described(left, shape.rows, step), _described(right, shape.columns, step), *tensors, len(a), len(b),
            *numbers, D=left.shape[1], BK=step, BM=shape.rows, BN=shape.columns,
            HOW="ieee" if precision == "float32" else "tf32", STAGES=shape.stages, num_warps=shape.warps,
            num_stages=shape.stages, **constants,
        )  # fmt: skip


def _described(rows: Tensor, height: int, width: int) -> TensorDescriptor:
    """A descriptor of rows (n, d), loaded in blocks (height, width), with zeros beyond the edges."""
    return TensorDescriptor(rows, list(rows.shape), list(rows.stride()), [height, width])


def _kernel(function: Any) -> Any:
    """Compile one version for all numbers of rows, and for any alignment of vectors in memory."""
    arguments = inspect.signature(function).parameters.values()
    varying = [argument.name for argument in arguments if argument.annotation is inspect.Parameter.empty]
    return triton.jit(do_not_specialize=varying, do_not_specialize_on_alignment=varying)(function)


@triton.jit
def _tile(
    a, b, row, column,
    D, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Products (BM, BN) of the rows from `row` on with the columns from `column` on."""
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, D, BK, num_stages=STAGES):
        tile = tl.dot(a.load([row, k]), b.load([column, k]).T, tile, input_precision=HOW)
    return tile


@_kernel
def _log_sum_exp(
    a, b, bias, result, n, m, scale,
    D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    largest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    for begin in tl.range(0, m, BN, flatten=True):
        tile = _tile(a, b, row, begin, D, BK, BM, BN, HOW, STAGES)
        columns = begin + tl.arange(0, BN)
        added = tl.load(bias + columns, mask=columns < m, other=float("-inf"))
        tile = tile * (scale * _TO_TWO) + (added * _TO_TWO)[None, :]
        highest = tl.maximum(largest, tl.max(tile, 1))
        total = total * tl.exp2(largest - highest) + tl.sum(tl.exp2(tile - highest[:, None]), 1)
        largest = highest
    rows = row + tl.arange(0, BM)
    tl.store(result + rows, (largest + tl.log2(total)) / _TO_TWO, mask=rows < n)


@_kernel
def _best_two(
    a, b, penalty, barred, index, first, second, n, m,
    D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr, STAGES: tl.constexpr,
    BARRED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    rows = row + tl.arange(0, BM)
    best = tl.full((BM,), float("-inf"), dtype=tl.float32)
    runner_up = tl.full((BM,), float("-inf"), dtype=tl.float32)
    where = tl.zeros((BM,), dtype=tl.int32)
    for begin in tl.range(0, m, BN, flatten=True):
        tile = _tile(a, b, row, begin, D, BK, BM, BN, HOW, STAGES)
        columns = begin + tl.arange(0, BN)
        tile -= tl.load(penalty + columns, mask=columns < m, other=float("inf"))[None, :]
        if BARRED:
            taken = tl.load(barred + columns, mask=columns < m, other=-1)
            tile = tl.where(taken[None, :] == rows[:, None], float("-inf"), tile)
        value, place = tl.max(tile, 1, return_indices=True)
        others = tl.where(tl.arange(0, BN)[None, :] == place[:, None], float("-inf"), tile)
        runner_up = tl.maximum(tl.maximum(runner_up, tl.max(others, 1)), tl.minimum(best, value))
        where = tl.where(value > best, begin + place, where)
        best = tl.maximum(best, value)
    tl.store(index + rows, where, mask=rows < n)
    tl.store(first + rows, best, mask=rows < n)
    tl.store(second + rows, runner_up, mask=rows < n)


@_kernel
def _top_k(
    a, b, values, indices, n, m, k,
    D: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    slots = tl.arange(0, _SLOTS)
    # The slots beyond k are never the smallest, so nothing gets into them.
    unused = tl.where(slots < k, float("-inf"), float("inf"))
    kept = tl.zeros((BM, _SLOTS), dtype=tl.float32) + unused[None, :]
    which = tl.zeros((BM, _SLOTS), dtype=tl.int32)
    for begin in tl.range(0, m, BN):
        tile = _tile(a, b, row, begin, D, BK, BM, BN, HOW, STAGES)
        columns = begin + tl.arange(0, BN)
        tile = tl.where((columns < m)[None, :], tile, float("-inf"))
        # Take the largest of the tile while it beats the least kept; after the first tiles hardly any does.
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
    rows = row + tl.arange(0, BM)
    address = rows.to(tl.int64)[:, None] * _SLOTS + slots[None, :]
    tl.store(values + address, kept, mask=(rows < n)[:, None])
    tl.store(indices + address, which, mask=(rows < n)[:, None])


@_kernel
def _barycenters(
    a, b, values, bias, means, totals, peaks, n, m, scale, v,
    D, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr, STAGES: tl.constexpr,
    BV: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BM
    largest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    mean = tl.zeros((BM, BV), dtype=tl.float32)
    for begin in tl.range(0, m, BN, flatten=True):
        tile = _tile(a, b, row, begin, D, BK, BM, BN, HOW, STAGES)
        columns = begin + tl.arange(0, BN)
        added = tl.load(bias + columns, mask=columns < m, other=float("-inf"))
        tile = tile * (scale * _TO_TWO) + (added * _TO_TWO)[None, :]
        highest = tl.maximum(largest, tl.max(tile, 1))
        weights = tl.exp2(tile - highest[:, None])
        fade = tl.exp2(largest - highest)
        total = total * fade + tl.sum(weights, 1)
        weighed = values.load([begin, 0])
        mean = tl.dot(weights.to(weighed.dtype), weighed, mean * fade[:, None], input_precision=HOW)
        largest = highest
    rows, across = row + tl.arange(0, BM), tl.arange(0, BV)
    address = rows.to(tl.int64)[:, None] * v + across[None, :]
    tl.store(means + address, mean / total[:, None], mask=(rows < n)[:, None] & (across < v)[None, :])
    tl.store(totals + rows, (largest + tl.log2(total)) / _TO_TWO, mask=rows < n)
    tl.store(peaks + rows, largest / _TO_TWO, mask=rows < n)

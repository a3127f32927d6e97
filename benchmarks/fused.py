"""The fused kernels on a GPU: checked against plain torch, then timed beside it and beside the bare product.

    python benchmarks/fused.py
    python benchmarks/fused.py --rows 50000 --dims 300 768

TFLOP/s count the product alone (2 n m d), whatever else a kernel does. "Stored" is what one would write in torch: the
product in slices of 10,000 rows, then the reduction. Compiling is not timed, but shown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from kedge.geometry import unit
from kedge.matching import fused
from setting import describe_machine

REPEATS = 5
SLICE = 10_000
SCALE = 20.0
TOLERANCE = {"tf32": 3e-4, "bf16": 3e-3}


def main() -> None:
    """One table a number of dimensions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dims", nargs="+", type=int, default=[300])
    arguments = parser.parse_args()
    print(f"{describe_machine('cuda')}, torch {torch.__version__}, {arguments.rows} x {arguments.rows}\n")
    for dim in arguments.dims:
        print(f"d = {dim}\n\n| what | precision | ms, median (least to most) | TFLOP/s | stored torch, ms | ratio |")
        print("|---|---|---|---|---|---|")
        compare(arguments.rows, dim)
        print()


def compare(rows: int, dim: int) -> None:
    """Check and time each kernel in both precisions."""
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (unit(torch.randn(rows, dim, device="cuda", generator=generator)) for _ in range(2))
    bias = 0.1 * torch.randn(rows, device="cuda", generator=generator)
    values = torch.randn(rows, 150, device="cuda", generator=generator)
    some = a[:512]
    dense = (some.double() @ b.double().T).float()
    softmax = (SCALE * dense + bias).softmax(dim=1)
    for precision, tolerance in TOLERANCE.items():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        left, right = (rows.bfloat16() if precision == "bf16" else rows for rows in (a, b))
        gemm = median(sliced(left, right, lambda block: block))[0]
        print(f"| bare product | {precision} | {1000 * gemm:.1f} | {speed(rows, dim, gemm):.0f} | | |")
        kernels: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, Callable[[Tensor], object]]] = {
            "softmin": (
                lambda x, p=precision: fused.log_sum_exp(x, b, SCALE, bias, precision=p) / SCALE,
                (SCALE * dense + bias).logsumexp(dim=1) / SCALE,
                lambda block: (SCALE * block + bias).logsumexp(dim=1),
            ),
            "best two": (
                lambda x, p=precision: fused.best_two(x, b, bias, precision=p)[1],
                (dense - bias).amax(dim=1),
                lambda block: (block - bias).topk(2, dim=1),
            ),
            "top 10": (
                lambda x, p=precision: fused.top_k(x, b, 10, precision=p)[0],
                dense.topk(10, dim=1).values,
                lambda block: block.topk(10, dim=1),
            ),
            "barycentres, 150 values": (
                lambda x, p=precision: fused.barycentres(x, b, values, SCALE, bias, precision=p)[0] / SCALE,
                softmax @ values / SCALE,
                lambda block: (SCALE * block.float() + bias).softmax(dim=1) @ values,
            ),
        }
        for name, (kernel, expected, stored) in kernels.items():
            began = time.perf_counter()
            torch.testing.assert_close(kernel(some), expected, rtol=0, atol=tolerance)
            kernel(a)
            torch.cuda.synchronize()
            compiling = time.perf_counter() - began
            middle, least, most = median(lambda: kernel(a))  # noqa: B023 - called at once
            beside = median(sliced(left, right, stored))[0]
            print(
                f"| {name} (ready in {compiling:.1f} s) | {precision} | {1000 * middle:.1f} ({1000 * least:.1f} to "
                f"{1000 * most:.1f}) | {speed(rows, dim, middle):.0f} | {1000 * beside:.1f} | {beside / middle:.1f} |",
                flush=True,
            )


def sliced(a: Tensor, b: Tensor, reduce: Callable[[Tensor], object]) -> Callable[[], None]:
    """The product of all rows, some at a time, each slice reduced."""

    def run() -> None:
        for begin in range(0, len(a), SLICE):
            reduce(a[begin : begin + SLICE] @ b.T)

    return run


def median(task: Callable[[], object]) -> tuple[float, float, float]:
    """Median, least and most seconds of a task, after one run to warm up."""
    times = []
    for _ in range(REPEATS + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        task()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:])), min(times[1:]), max(times[1:])


def speed(rows: int, dim: int, seconds: float) -> float:
    """TFLOP/s of the product alone."""
    return 2 * rows * rows * dim / seconds / 1e12


if __name__ == "__main__":
    main()

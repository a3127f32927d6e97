"""The fused kernels on a GPU: checked against float64, then timed beside the bare product and beside plain torch.

    python benchmarks/fused.py                                                   50,000 x 50,000 x 300
    python benchmarks/fused.py --rows 5000 20000 50000 --dims 300 768 --json fused.json

Every number of rows is run with the first of --dims, and every number of dimensions with the last of --rows. TFLOP/s
count the product alone (2 n m d), whatever else a kernel does. "of the ceiling" is that as a share of what torch's
matrix product alone reaches with d padded to a multiple of 64, as matrix units like it. "Torch" is what one would write
there: the product, in slices of 10,000 rows, then the reduction. Compilation is shown, but not timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kedge.geometry import unit
from setting import describe_machine, forget_peak, median_and_range, new_parser, peak_megabytes, timed, write_json

REPEATS = 5
SLICE = 10_000
CHECKED = 512
SCALE = 20.0
VALUES = 150
PADDED_TO = 64
TOLERANCE = {"tf32": 3e-4, "bf16": 3e-3}


class Case(NamedTuple):
    """A kernel on rows of a, what it should give for the first ones, and how plain torch reduces a block."""

    kernel: Callable[[Tensor], Tensor]
    expected: Tensor
    reduce: Callable[[Tensor], object]


def main() -> None:
    """One table per shape."""
    parser = new_parser(__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[50_000])
    parser.add_argument("--dims", nargs="+", type=int, default=[300])
    parser.add_argument("--json", type=Path, help="also write all rows to this file")
    arguments = parser.parse_args()
    machine = f"{describe_machine('cuda')}, torch {torch.__version__}"
    print(machine)
    shapes = [(rows, arguments.dims[0]) for rows in arguments.rows[:-1]]
    shapes += [(arguments.rows[-1], dim) for dim in arguments.dims]
    results: list[dict[str, Any]] = []
    for rows, dim in shapes:
        print(f"\n{rows} x {rows} x {dim}\n")
        print("| what | precision | ms, median (min to max) | TFLOP/s | of the ceiling | peak MB | torch, ms | ratio |")
        print("|---|---|---|---|---|---|---|---|")
        for result in compare(rows, dim):
            results.append({"machine": machine, "rows": rows, "dim": dim} | result)
            print(table_row(result), flush=True)
        if arguments.json:
            write_json(arguments.json, results)


def compare(rows: int, dim: int) -> Iterator[dict[str, Any]]:
    """Check and time each kernel in both precisions."""
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (unit(torch.randn(rows, dim, device="cuda", generator=generator)) for _ in range(2))
    bias = 0.1 * torch.randn(rows, device="cuda", generator=generator)
    values = torch.randn(rows, VALUES, device="cuda", generator=generator)
    for precision, tolerance in TOLERANCE.items():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        left, right = (rows.bfloat16() if precision == "bf16" else rows for rows in (a, b))
        padding = (0, -dim % PADDED_TO)
        product = times(
            sliced(*(torch.nn.functional.pad(side, padding) for side in (left, right)), lambda block: block)
        )
        flops = 2 * rows * rows * dim / 1e12
        ceiling = flops * (dim + padding[1]) / dim / np.median(product)
        yield {"what": "product alone, padded", "precision": precision, "seconds": product, "tflops": ceiling}
        for name, case in cases(a, b, bias, values, precision).items():
            began = time.perf_counter()
            torch.testing.assert_close(case.kernel(a[:CHECKED]), case.expected, rtol=0, atol=tolerance)
            case.kernel(a)
            torch.cuda.synchronize()
            ready = time.perf_counter() - began
            taken, memory = times(lambda: case.kernel(a)), peak(lambda: case.kernel(a))  # noqa: B023 - called at once
            stored = sliced(left, right, case.reduce)
            plain, plain_memory = times(stored), peak(stored)
            middle = np.median(taken)
            yield {
                "what": name,
                "precision": precision,
                "ready_seconds": ready,
                "seconds": taken,
                "tflops": flops / middle,
                "of_ceiling": flops / middle / ceiling,
                "peak_mb": memory,
                "torch_seconds": plain,
                "torch_peak_mb": plain_memory,
                "ratio": np.median(plain) / middle,
            }


def cases(a: Tensor, b: Tensor, bias: Tensor, values: Tensor, precision: Any) -> dict[str, Case]:
    """What is compared."""
    from kedge.matching.kernels import fused  # needs Triton, --help does not

    dense = (a[:CHECKED].double() @ b.double().T).float()
    softmax = (SCALE * dense + bias).softmax(dim=1)
    return {
        "softmin": Case(
            lambda x: fused.log_sum_exp(x, b, SCALE, bias, precision=precision) / SCALE,
            (SCALE * dense + bias).logsumexp(dim=1) / SCALE,
            lambda block: (SCALE * block + bias).logsumexp(dim=1),
        ),
        "best two": Case(
            lambda x: fused.best_two(x, b, bias, precision=precision)[1],
            (dense - bias).amax(dim=1),
            lambda block: (block - bias).topk(2, dim=1),
        ),
        "top 10": Case(
            lambda x: fused.top_k(x, b, 10, precision=precision)[0],
            dense.topk(10, dim=1).values,
            lambda block: block.topk(10, dim=1),
        ),
        f"means of {VALUES}": Case(
            lambda x: fused.barycenters(x, b, values, SCALE, bias, precision=precision)[0] / SCALE,
            softmax @ values / SCALE,
            lambda block: (SCALE * block.float() + bias).softmax(dim=1) @ values,
        ),
    }


def sliced(a: Tensor, b: Tensor, reduce: Callable[[Tensor], object]) -> Callable[[], None]:
    """The product of all rows, some at a time, each slice reduced."""

    def run() -> None:
        for begin in range(0, len(a), SLICE):
            reduce(a[begin : begin + SLICE] @ b.T)

    return run


def times(task: Callable[[], object]) -> list[float]:
    """Seconds of each of some runs, after one to warm up."""
    return [timed(task)[0] for _ in range(REPEATS + 1)][1:]


def peak(task: Callable[[], object]) -> float:
    """MB of the GPU's memory that a task takes at most."""
    before = torch.cuda.memory_allocated() / 1e6
    forget_peak()
    task()
    torch.cuda.synchronize()
    return peak_megabytes("cuda") - before


def table_row(result: dict[str, Any]) -> str:
    """One line of a table."""
    taken = 1000 * np.array(result["seconds"])
    ready = f" (ready in {result['ready_seconds']:.1f} s)" if "ready_seconds" in result else ""
    line = f"| {result['what']}{ready} | {result['precision']} | {median_and_range(taken)} | {result['tflops']:.0f} |"
    if "ratio" not in result:
        return f"{line} 1 | | | |"
    plain = 1000 * np.median(result["torch_seconds"])
    return f"{line} {result['of_ceiling']:.2f} | {result['peak_mb']:.0f} | {plain:.1f} | {result['ratio']:.1f} |"


if __name__ == "__main__":
    main()

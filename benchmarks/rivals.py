"""Kedge's reductions beside what one would use instead: in one run, each checked before it is timed.

    python benchmarks/rivals.py                                 50,000 rows on a GPU, 5,000 on a CPU
    python benchmarks/rivals.py --only softmin --precision bf16 --json rivals.json

The others are optional; one that is missing or fails gets a row that says why:

    pip install pykeops POT ott-jax 'jax<0.9' faiss-cpu                                     OTT 0.6 wants an older JAX
    pip install pykeops POT ott-jax 'jax[cuda12]<0.9' faiss-gpu-cu12 flash-sinkhorn         on a GPU

KeOps 2.3 may crash beside a torch that brings its own C++ library; LD_PRELOAD=.../libstdc++.so.6 helps.

Each is checked against float64 on the first 512 rows; "error" is the largest difference, in units of similarity. Times
are of whole calls, taken in turns. "ready in" is what comes before: loading, compiling, tuning and a first call.
TFLOP/s count one product (2 n m d) for each reduction, whether or not it was computed anew. Memory is what a call takes
on top of what was there: of torch's allocator on a GPU, which does not see JAX and FAISS, and of the process on a CPU.
The ratio is a time over kedge's: above 1, kedge is faster.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kedge.estimators.devices import resolve_device
from kedge.geometry import unit
from kedge.matching import BlockedSoftmin, Precision, top_k, use_fused, using_precision
from setting import describe_machine, forget_peak, median_and_range, new_parser, peak_megabytes, timed, write_json

SCALE = 20.0
NEIGHBOURS = 10
CHECKED = 512
ITERATIONS = 5  # of a solver that cannot be asked for half of one
SLICE = {"cuda": 10_000, "cpu": 1024}
MAX_STORED = {"cuda": 12e9, "cpu": 2e9}  # bytes of a whole matrix; its temporaries take several times as much
TOLERANCE = {"float32": 2e-5, "tf32": 1e-3, "bf16": 5e-3}
PACKAGES = ("torch", "triton", "pykeops", "flash-sinkhorn", "POT", "ott-jax", "jax", "faiss-cpu", "faiss-gpu-cu12")
HEADER = "| what | shape | precision | device | ms, median (min to max) | TFLOP/s | peak MB | error | ratio |"


class SkippedError(Exception):
    """A contender that does not take part, and why."""


@dataclass(frozen=True)
class Data:
    """Unit rows a (n, d) and b (n, d) that match in pairs, a number for each column (n,), and the exact similarities
    (512, n) of the first rows. `precision` is what was asked for.
    """

    a: Tensor
    b: Tensor
    column: Tensor
    exact: Tensor
    precision: Precision
    device: str

    @property
    def float32(self) -> str:
        """What float32 numbers are multiplied in here, by torch and by others that leave the choice."""
        return "tf32" if self.a.is_cuda and self.precision != "float32" else "float32"

    @property
    def too_large(self) -> bool:
        """Whether a matrix of all similarities should not be stored."""
        return 4 * len(self.a) * len(self.b) > MAX_STORED[self.device]

    def softmin(self, column: Tensor) -> Tensor:
        """A Sinkhorn half-step (512,), in units of similarity."""
        return (SCALE * self.exact + column.double()).logsumexp(dim=1) / SCALE

    def expected(self, task: str) -> Tensor:
        """What a task should give for the first rows."""
        if task == "softmin":
            return self.softmin(self.column)
        if task == "top10":
            return self.exact.topk(NEIGHBOURS, dim=1).values
        return (self.exact - self.column.double()).amax(dim=1)


@dataclass(frozen=True)
class Contender:
    """A reduction, ready to run: how many of them a run makes (`steps`), what they come to for the first rows
    (`values`), and whether torch knows of its memory.
    """

    run: Callable[[], Any]
    precision: str
    note: str = ""
    steps: int = 1
    values: Callable[[Any], Any] = lambda answer: answer
    in_torch: bool = True


Maker = Callable[[Data, str], Contender]


def main() -> None:
    """One table per task."""
    parser = new_parser(__doc__)
    parser.add_argument("--rows", type=int, help="of either side (50,000 on a GPU, 5,000 on a CPU)")
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=TASKS)
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="leave these out, such as KeOps")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--precision", choices=("tf32", "bf16", "float32"), default="tf32", help="on a GPU (tf32)")
    parser.add_argument("--json", type=Path, help="also write all rows to this file")
    arguments = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX, once imported, takes most of the GPU
    torch.backends.cuda.matmul.allow_tf32 = arguments.precision != "float32"
    device = resolve_device(arguments.device)
    rows = arguments.rows or (50_000 if device.type == "cuda" else 5000)
    data = make_data(rows, arguments.dim, device, arguments.precision)
    installed = {package.name: package.version for package in distributions()}
    versions = {name: installed[name] for name in PACKAGES if name in installed}
    common = {"machine": describe_machine(device.type), "versions": versions}
    print(f"{common['machine']}, {', '.join(' '.join(item) for item in versions.items())}", flush=True)
    results: list[dict[str, Any]] = []
    with using_precision(arguments.precision):
        for task in [arguments.only] if arguments.only else TASKS:
            results += [
                common | {"task": task} | result for result in compare(task, data, arguments.repeats, arguments.without)
            ]
            if arguments.json:
                write_json(arguments.json, results)


def make_data(rows: int, dim: int, device: torch.device, precision: Precision) -> Data:
    """The same numbers on every device."""
    generator = torch.Generator().manual_seed(0)
    b = unit(torch.randn(rows, dim, generator=generator))
    a = b[torch.randperm(rows, generator=generator)]
    a = unit(a + 0.05 * torch.randn(a.shape, generator=generator))
    column = 0.1 * torch.randn(rows, generator=generator)
    a, b, column = a.to(device), b.to(device), column.to(device)
    return Data(a, b, column, a[:CHECKED].double() @ b.double().T, precision, device.type)


def compare(task: str, data: Data, repeats: int, left_out: Sequence[str]) -> list[dict[str, Any]]:
    """Prepare and check the contenders, time those that are right in turns, and print the table."""
    results: dict[str, dict[str, Any]] = {}
    running: dict[str, Contender] = {}
    for name, make in TASKS[task].items():
        results[name] = {"what": name, "shape": [len(data.a), *data.b.shape], "device": data.device}
        try:
            if name in left_out:
                raise SkippedError("left out")
            running[name] = prepare(make, data, task, results[name])
        except Exception as problem:  # whatever a package may throw
            results[name]["skipped"] = reason(problem)
            if make is kedge and not isinstance(problem, SkippedError):
                raise
        if "kedge" not in running:  # nothing to compare with
            break
    for turn in range(repeats + 1):
        for name, contender in list(running.items()):
            try:
                seconds = timed(contender.run)[0] / contender.steps
            except Exception as problem:
                if name == "kedge":
                    raise
                results[name]["skipped"] = reason(problem)
                del running[name]
                continue
            if turn:  # the first warms up
                results[name].setdefault("ms", []).append(1000 * seconds)
    print(f"\n{task}\n\n{HEADER}\n|{'---|' * 9}")
    for result in results.values():
        print(table_row(result, results["kedge"]), flush=True)
    return list(results.values())


def prepare(make: Maker, data: Data, task: str, result: dict[str, Any]) -> Contender:
    """A contender that has run once and was right; what that took goes into `result`."""
    torch.cuda.empty_cache()  # others may want it
    began = time.perf_counter()
    contender = make(data, task)
    answer = timed(contender.run)[1]
    result["ready_seconds"] = time.perf_counter() - began
    print(f"{task}, {result['what']}: ready in {result['ready_seconds']:.1f} s", file=sys.stderr, flush=True)
    expected = data.expected(task)
    values = torch.as_tensor(contender.values(answer))[:CHECKED].to(expected).reshape(expected.shape)
    error = float((values - expected).abs().max())
    result |= {"what": result["what"] + contender.note, "precision": contender.precision, "error": error}
    if not error <= TOLERANCE[contender.precision]:
        problem = AssertionError if make is kedge else SkippedError
        raise problem(f"differs by {error:.1e}")
    del answer, values
    seen = data.device == "cpu" or contender.in_torch
    result["peak_mb"] = peak_memory(contender.run, data.device) if seen else None
    return contender


def reason(problem: Exception) -> str:
    """Why a contender was left out, short enough for a table."""
    first = (str(problem).strip() or "no message").splitlines()[0].replace("|", "/")[:120]
    return first if isinstance(problem, SkippedError) else f"{type(problem).__name__}: {first}"


def peak_memory(run: Callable[[], Any], device: str) -> float | None:
    """MB that a call takes at most: of torch on a GPU, of the process on a CPU; None where the system does not say."""
    forget_peak()
    before = torch.cuda.memory_allocated() / 1e6 if device == "cuda" else peak_megabytes(device)
    timed(run)
    taken = peak_megabytes(device) - before
    return None if math.isnan(taken) else taken


def table_row(result: dict[str, Any], kedge_result: dict[str, Any]) -> str:
    """A contender's line; its figures go into `result` too."""
    n, m, dim = result["shape"]
    ready = f" (ready in {result['ready_seconds']:.1f} s)" if "ready_seconds" in result else ""
    line = f"| {result['what']}{ready} | {n} x {m} x {dim} | {result.get('precision', '')} | {result['device']} |"
    if "skipped" in result:
        return f"{line} skipped: {result['skipped']} | | | | |"
    times, memory = result["ms"], result["peak_mb"]
    middle = result["median_ms"] = float(np.median(times))
    result["tflops"] = 2 * n * m * dim / middle / 1e9
    result["ratio"] = middle / kedge_result["median_ms"]
    return (
        f"{line} {median_and_range(times)} | {result['tflops']:.3g} | "
        f"{'n/a' if memory is None else f'{memory:.0f}'} | {result['error']:.0e} | {result['ratio']:.2f} |"
    )


def kedge(data: Data, task: str) -> Contender:
    """The library; for argmax the kernel behind `best_partners`, which also finds the second best."""
    fast = use_fused(data.a, data.b)
    precision = data.precision if fast else data.float32
    softmin = BlockedSoftmin(data.a, data.b)
    if task == "softmin":
        return Contender(lambda: -softmin.rows(1 / SCALE, data.column), precision)
    if task == "top10":
        return Contender(lambda: top_k(data.a, data.b, NEIGHBOURS)[0], precision)
    if not fast:
        raise SkippedError("kedge has this alone on a GPU with Triton")
    from kedge.matching.kernels import fused

    return Contender(lambda: fused.best_two(data.a, data.b, data.column)[1], precision)


def plain_torch(data: Data, task: str) -> Contender:
    """The product, whole if it is not too large, otherwise some rows at a time, and a reduction of it."""
    short = data.a.is_cuda and data.precision == "bf16"
    a, b = (rows.bfloat16() if short else rows for rows in (data.a, data.b))
    reduce: Callable[[Tensor], Tensor] = {
        "softmin": lambda rows: (SCALE * rows @ b.T + data.column).logsumexp(dim=1) / SCALE,
        "top10": lambda rows: (rows @ b.T).topk(NEIGHBOURS, dim=1).values,
        "argmax": lambda rows: (rows @ b.T - data.column).max(dim=1).values,
    }[task]
    count = SLICE[data.device] if data.too_large else len(a)
    return Contender(
        lambda: torch.cat([reduce(rows) for rows in a.split(count)]),
        "bf16" if short else data.float32,
        f", {count} rows at a time" if data.too_large else ", matrix stored",
    )


def keops(data: Data, task: str) -> Contender:
    """KeOps; its softmin is the reduction behind GeomLoss's "online". Of neighbours it names the columns alone."""
    import pykeops
    from pykeops.torch import Vi, Vj

    if data.a.is_cuda and not pykeops.config.gpu_available:  # it would take the GPU's addresses for its own
        raise SkippedError("KeOps finds no CUDA or nvrtc")
    pykeops.set_verbose(False)
    where = {"dim": 1, "backend": "GPU" if data.a.is_cuda else "CPU"}
    product, column = Vi(data.a) | Vj(data.b), Vj(data.column[:, None])
    if task == "softmin":
        return Contender(lambda: (SCALE * product + column).logsumexp(**where) / SCALE, "float32")
    if task == "argmax":
        return Contender(lambda: -(column - product).min_argmin(**where)[0], "float32")
    return Contender(
        lambda: (-product).argKmin(NEIGHBOURS, **where),
        "float32",
        values=lambda columns: data.exact.gather(1, columns[:CHECKED]),
    )


def flash_sinkhorn(data: Data, task: str) -> Contender:
    """Kernels of flash-sinkhorn. Between unit rows half the squared distance, its cost, is 1 less the similarity; its
    half-step leaves out the norms, so that it is the very same sum.
    """
    if not data.a.is_cuda:
        raise SkippedError("needs a GPU")
    from flash_sinkhorn import c_transform_fwd
    from flash_sinkhorn.kernels.sinkhorn_flashstyle_sqeuclid import flashsinkhorn_lse

    a, b, column, how = data.a, data.b, data.column, {"cost_scale": 0.5, "allow_tf32": data.float32 == "tf32"}
    if task == "softmin":
        return Contender(lambda: -flashsinkhorn_lse(a, b, column, 1 / SCALE, **how), data.float32)
    return Contender(lambda: 1 - c_transform_fwd(a, b, -column, **how)[0], data.float32)


def pot(data: Data, _: str) -> Contender:
    """POT's solver in the log domain: one product, half-steps, and the plan at the end."""
    if data.too_large:
        raise SkippedError("stores the matrix")
    from ot.bregman import sinkhorn_log

    n = len(data.a)
    weights = data.a.new_full((n,), 1 / n)
    how = {"numItermax": ITERATIONS, "stopThr": 0, "log": True, "warn": False}

    def last_step(log: dict[str, Any]) -> Tensor:
        # It was made with POT's own potential, so the exact difference between that and ours is added.
        total = -(log["log_u"][:CHECKED] + math.log(n)) / SCALE
        return total + data.softmin(data.column) - data.softmin(log["log_v"])

    return Contender(
        lambda: sinkhorn_log(weights, weights, -(data.a @ data.b.T), 1 / SCALE, **how)[1],
        data.float32,
        f", matrix stored, {ITERATIONS} iterations / {2 * ITERATIONS}",
        steps=2 * ITERATIONS,
        values=last_step,
    )


def ott(data: Data, _: str) -> Contender:
    """OTT's half-step between point clouds, in batches of rows, compiled."""
    import jax
    from ott.geometry.costs import NegDotProduct
    from ott.geometry.pointcloud import PointCloud

    place = jax.devices("gpu" if data.a.is_cuda else "cpu")[0]
    f, g, count = torch.zeros(len(data.a)), data.column / SCALE, SLICE[data.device]
    inputs = [jax.device_put(numbers.cpu().numpy(), place) for numbers in (data.a, data.b, f, g)]

    @jax.jit
    def half_step(a: Any, b: Any, f: Any, g: Any) -> Any:
        cloud = PointCloud(a, b, cost_fn=NegDotProduct(), batch_size=count)
        return cloud.apply_lse_kernel(f, g, 1 / SCALE, axis=1)[0]

    def run() -> Any:
        with jax.default_matmul_precision("tensorfloat32" if data.float32 == "tf32" else "float32"):
            return half_step(*inputs).block_until_ready()

    return Contender(run, data.float32, f", {count} rows at a time", values=np.array, in_torch=False)


def faiss_flat(data: Data, _: str) -> Contender:
    """A search of FAISS' flat index; filling that belongs to getting ready."""
    import faiss

    a, b, dim = data.a, data.b, data.b.shape[1]
    if not data.a.is_cuda:
        index, a, b = faiss.IndexFlatIP(dim), a.numpy(), b.numpy()
    elif hasattr(faiss, "GpuIndexFlatIP"):
        importlib.import_module("faiss.contrib.torch_utils")  # has its indices take tensors
        index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), dim)
    else:
        raise SkippedError("this faiss has no GPU support")
    index.add(b)
    return Contender(lambda: index.search(a, NEIGHBOURS)[0], "float32", in_torch=False)


COMMON: dict[str, Maker] = {"kedge": kedge, "torch": plain_torch, "KeOps": keops}
TASKS: dict[str, dict[str, Maker]] = {
    "softmin": COMMON | {"flash-sinkhorn": flash_sinkhorn, "POT": pot, "OTT": ott},
    "top10": COMMON | {"FAISS flat": faiss_flat},
    "argmax": COMMON | {"flash-sinkhorn": flash_sinkhorn},
}


if __name__ == "__main__":
    main()

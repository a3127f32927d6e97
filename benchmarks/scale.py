"""One discovery of large synthetic spaces with known pairs, from memory-mapped files: time, memory, rows right.

    python benchmarks/scale.py                                     a million rows against a million, on a GPU
    python benchmarks/scale.py --rows 100000 --device cpu          two cores, some minutes
    python benchmarks/scale.py --rows 10000000 --dtype float16     on a GPU, from files of half the size
    python benchmarks/scale.py --rows 200000 --dim 768 --json scale.json
    python benchmarks/scale.py --rows 100000 --exact               all rows compared with all

2,000 clusters whose spread falls from 1 to 0.06 over the dimensions. Y is X turned, shuffled and with noise (0.2 of the
spread in every dimension); 15 seeds. Time is all of `fit`, starting from the files; the first run of a kernel compiles
it. Memory of the process includes what it has read of the files, which the system can take back.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from kedge import AnchorDiscovery, Embeddings
from kedge.estimators.devices import resolve_device
from setting import StageClock, forget_peak, new_parser, peak_megabytes
from stored import Record, add_json_option

CLUSTERS, SEEDS = 2000, 15
BLOCK = 65_536


def main() -> None:
    """Make the spaces, discover, compare."""
    parser = new_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="of the files (float32)")
    parser.add_argument("--exact", action="store_true", help="compare all rows with all, as `kedge discover --exact`")
    parser.add_argument("--repeats", type=int, default=1, help="fits, of which the first also compiles (1)")
    add_json_option(parser)
    arguments = parser.parse_args()
    record = Record(arguments.json, {"dim": arguments.dim}, arguments.device)
    with tempfile.TemporaryDirectory() as scratch:
        device = resolve_device(arguments.device)
        truth = write_spaces(Path(scratch), arguments.rows, arguments.dim, device, arguments.dtype)
        case = {"rows": arguments.rows, "dtype": arguments.dtype, "exact": arguments.exact}
        fit = partial(discover, Path(scratch), truth, arguments.device, exact=arguments.exact)
        results = [record.row(case | {"repeat": repeat}, fit) for repeat in range(arguments.repeats)]
    for result in results:
        print(
            f"{result['machine']}: {arguments.rows} x {arguments.rows} x {arguments.dim}: {result['seconds']:.1f} s "
            f"({', '.join(f'{name} {spent:.1f}' for name, spent in result['stages'].items())}), rows right "
            f"{result['rows_right']:.4f}, pairs {result['pairs']}, {result['verdict']}, "
            f"{result['approximate'] or 'exact'}, memory: "
            f"process {result['process_mb']:.0f} MB, GPU {result['gpu_mb']:.0f} MB"
        )


def discover(folder: Path, truth: np.ndarray, device: str, *, exact: bool = False) -> dict[str, object]:
    """Fit, and say what it took."""
    forget_peak()
    began, clock = time.perf_counter(), StageClock()
    keys = [str(row) for row in range(len(truth))]
    x, y = (Embeddings(keys, np.load(folder / name, mmap_mode="r")) for name in ("x.npy", "y.npy"))
    seeds = np.stack([np.arange(SEEDS), truth[:SEEDS]], axis=1)
    discovery = AnchorDiscovery(device=device, on_step=clock, exact=exact).fit(x, y, seeds)
    return {
        "seconds": time.perf_counter() - began,
        "stages": clock.seconds,
        "rows_right": float(np.mean(discovery.match_ == truth)),
        "pairs": len(discovery.pairs_),
        "verdict": discovery.health_.pairs.verdict,
        "approximate": discovery.candidate_recall_ and str(discovery.candidate_recall_),
        "process_mb": peak_megabytes("cpu"),
        "gpu_mb": peak_megabytes("cuda"),
    }


def write_spaces(folder: Path, rows: int, dim: int, device: torch.device, dtype: str = "float32") -> np.ndarray:
    """Write x.npy and y.npy (n, d), and return for every row of X its row in Y (n,)."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=generator)

    spread = torch.logspace(0, -1.2, dim, device=device)
    centers = normal(CLUSTERS, dim) * spread
    turn, _ = torch.linalg.qr(normal(dim, dim))
    place = np.random.default_rng(0).permutation(rows)
    x, y = (
        np.lib.format.open_memmap(folder / name, mode="w+", dtype=dtype, shape=(rows, dim))
        for name in ("x.npy", "y.npy")
    )
    for begin in range(0, rows, BLOCK):
        count = min(BLOCK, rows - begin)
        member = torch.randint(0, CLUSTERS, (count,), device=device, generator=generator)
        block = centers[member] + 0.7 * normal(count, dim) * spread
        x[begin : begin + count] = block.cpu().numpy()
        y[place[begin : begin + count]] = (block @ turn + 0.2 * normal(count, dim) * spread).cpu().numpy()
    return place


if __name__ == "__main__":
    main()

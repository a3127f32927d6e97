"""What dimensions cost: the same rows in 300 to 4,096 dimensions, and spaces that have many to begin with.

    python benchmarks/dimensions.py --data DIR                              5,000 sentences in 300 ... 4,096 dimensions
    python benchmarks/dimensions.py --data DIR --cases images --dims 128 1536
    python benchmarks/dimensions.py --data DIR --cases mobilenet words many-words no-seeds
    python benchmarks/dimensions.py --data DIR --cases memory                20,000 sentences in 3,072 dimensions
    python benchmarks/dimensions.py --data DIR --before ../kedge-before     beside another checkout, in the same run

`sentences` and `images` are real vectors. To get more dimensions, noise of a falling spectrum is added beside them, and
all is rotated at random; to get fewer, their leading principal axes are kept. `mobilenet` (10,000 images), `words`
(5,000), `many-words` (20,000) and `no-seeds` (20,000 words) are as they are. All but the last have 15 seeds. Each fit
runs in a process of its own on the CPU, or with `--device cuda` in this one. Right is the share of rows whose partner
is right. Memory (on the CPU only) is the peak of the process, less what it had with everything loaded and no vector
read, in multiples of the two spaces in float32.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from before_after import HERE, fit, require_checkout
from kedge import AnchorDiscovery, Embeddings
from paper.pairs_of_spaces import load_pair
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, timed, write_json

CARRIED = {"sentences": "sentences", "images": "vit"}
AS_THEY_ARE = {
    "mobilenet": ("mobilenet", 10_000, 15),
    "words": ("easy", 5_000, 15),
    "many-words": ("easy", 20_000, 15),
    "no-seeds": ("easy", 20_000, 0),
}
MEMORY = ("sentences", 20_000, 3072)
COLUMNS = (
    "spaces",
    "rows",
    "dimensions",
    "seeds",
    "seconds",
    "to the first",
    "memory",
    "right",
    "before",
    "right",
    "after / before",
)


def main() -> None:
    """Run the cases and print a table."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    names = [*CARRIED, *AS_THEY_ARE, "memory"]
    parser.add_argument("--cases", nargs="+", choices=names, default=["sentences"], help="which (sentences)")
    parser.add_argument("--dims", nargs="+", type=int, default=[300, 768, 1536, 3072, 4096], help="of carried vectors")
    parser.add_argument("--rows", type=int, default=5000, help="of carried vectors (5,000)")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout, to run beside this one")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="of a fit on the CPU (2)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    print(f"{describe_machine(arguments.device)}, {arguments.threads} threads\n")
    print(markdown_header(COLUMNS), flush=True)
    results: list[dict[str, Any]] = []
    for name in arguments.cases:
        first = None
        for dims in arguments.dims if name in CARRIED else [None]:
            x, y, seeds = spaces_of(arguments.data, name, dims, arguments.rows)
            spaces, truth = hide(x, y, seeds)
            result = {"spaces": name, "rows": len(x), "dimensions": [x.shape[1], y.shape[1]], "seeds": seeds}
            result |= run(HERE.parent, spaces, truth, arguments.threads, arguments.device)
            if arguments.before:
                before = run(require_checkout(arguments.before), spaces, truth, arguments.threads, "cpu")
                result |= {f"{key}_before": value for key, value in before.items()}
            first = first or result["seconds"]
            print(markdown_row(cells(result, first)), flush=True)
            results.append(result)
            if arguments.json:
                write_json(arguments.json, results)


def spaces_of(data: Path, name: str, dims: int | None, rows: int) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Vectors (n, dx) and (n, dy) whose row i is one thing, and how many seeds there are to be."""
    if name == "memory":
        name, rows, dims = MEMORY
    if dims is None:
        kind, rows, seeds = AS_THEY_ARE[name]
        pair = load_pair(data, kind, rows)
        return pair.x.vectors, pair.y.vectors, seeds
    pair = load_pair(data, CARRIED[name], rows)
    return carry(pair.x.vectors, dims, 1), carry(pair.y.vectors, dims, 2), 15


def carry(vectors: NDArray[Any], dims: int, random_state: int) -> NDArray[np.float32]:
    """Vectors (n, d), as directions, in so many dimensions: with noise beside them, or their leading axes."""
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows, own = vectors.shape
    if dims <= own:
        centered = vectors - vectors.mean(axis=0)
        _, axes = np.linalg.eigh(centered.T @ centered)
        return (centered @ axes[:, ::-1][:, :dims]).astype(np.float32)
    chance = np.random.default_rng(random_state)
    more = dims - own
    noise = chance.standard_normal((rows, more)) * np.geomspace(0.6, 0.05, more) / np.sqrt(more)
    rotation, _ = np.linalg.qr(chance.standard_normal((dims, dims)))
    return (np.concatenate([vectors, noise], axis=1) @ rotation).astype(np.float32)


def hide(x: NDArray[Any], y: NDArray[Any], seeds: int) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """A case for `fit`, the rows of Y shuffled; and for each row of X its row in Y (n,)."""
    chance = np.random.default_rng(0)
    order = chance.permutation(len(y))
    truth = np.argsort(order)
    known = chance.choice(len(x), seeds, replace=False)
    keys = np.array([str(row) for row in range(len(x))])
    case = {
        "x": x,
        "y": y[order],
        "keys_x": keys,
        "keys_y": keys,
        "seeds": np.stack([known, truth[known]], axis=1).reshape(-1, 2),
        "queries_x": x[:10],
        "queries_y": y[:10],
        "random_state": 0,
    }
    return case, truth


def run(checkout: Path, spaces: dict[str, Any], truth: NDArray[Any], threads: int, device: str) -> dict[str, Any]:
    """Seconds of a fit by a checkout, and the share of rows that are right."""
    if device == "cpu":
        with tempfile.TemporaryDirectory() as folder:
            answer = fit(checkout, spaces, threads, Path(folder))
        seconds, match, verdict = answer.seconds, answer.match, answer.verdicts["map"]
        memory = answer.peak_bytes / (4 * (spaces["x"].size + spaces["y"].size))
    else:
        x, y = (Embeddings(spaces[f"keys_{side}"].tolist(), spaces[side]) for side in "xy")
        discovery = AnchorDiscovery(device=device)
        timed(lambda: discovery.fit(x, y, spaces["seeds"]))  # kernels compile the first time
        seconds, _ = timed(lambda: discovery.fit(x, y, spaces["seeds"]))
        match, verdict, memory = discovery.match_, discovery.health_.map.verdict, None
    return {"seconds": seconds, "memory": memory, "right": float((match == truth).mean()), "verdict": verdict}


def cells(result: dict[str, Any], first: float) -> list[str]:
    """A row of the table."""
    dims = " x ".join(map(str, dict.fromkeys(result["dimensions"])))
    row = [result["spaces"], f"{result['rows']:,}", dims, str(result["seeds"]), f"{result['seconds']:.1f}"]
    memory = "" if result["memory"] is None else f"{result['memory']:.2f}"
    row += [f"{result['seconds'] / first:.2f}", memory, f"{result['right']:.4f}"]
    if "seconds_before" not in result:
        return [*row, "", "", ""]
    ratio = result["seconds"] / result["seconds_before"]
    return [*row, f"{result['seconds_before']:.1f}", f"{result['right_before']:.4f}", f"{ratio:.2f}"]


if __name__ == "__main__":
    main()

"""How many rows are needed if little or nothing is shared? What `kedge check` says of two files comes from here.

    python benchmarks/rows_needed.py --data DIR --pairs sentences --rows 5000 12500 --device cuda --out FILE
    ... --pairs easy texts texts-fr vit --rows 3800
    ... --pairs easy medium texts texts-fr vit --rows 3900 --share 0.5

The runs are those of `disjoint.py`: two sets of items of the given size that share the given part of them, and the
given number of seeds; the map is tried on 2,000 items that neither side has seen. *Reached* is the share of them that
find their counterpart first, relative to what a rotation fitted to all pairs reaches. Rows are counted per dimension of
the space that has fewer. Runs that the file already holds are not repeated.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from disjoint import UNSEEN, run
from kedge.geometry import nearest_rotation
from paper.pairs_of_spaces import load_pair
from setting import (
    add_data_option,
    add_run_options,
    describe_machine,
    markdown_header,
    markdown_row,
    new_parser,
    run_cases,
)

COLUMNS = ("pair", "share", "seeds", "rows", "per dimension", "unseen first", "by all pairs", "reached", "map")


@dataclass(frozen=True)
class Case:
    """Two spaces with so many rows each and so many items in both, and so many seeds besides."""

    pair: str
    share: float
    seeds: int
    rows: int
    state: int


def main() -> None:
    """Measure what is not there yet, and print a table."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=["sentences", "easy"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1250, 2500, 5000])
    parser.add_argument("--share", nargs="+", type=float, default=[0.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[15])
    add_run_options(parser, states=1)
    arguments = parser.parse_args()
    grid = product(arguments.pairs, arguments.share, arguments.seeds, arguments.rows, range(arguments.states))
    results = run_cases(measure, [Case(*setting) for setting in grid], arguments)
    print(f"{describe_machine(arguments.device)}\n\n{markdown_header(COLUMNS)}")
    for case, found in sorted(results.items(), key=lambda item: str(asdict(item[0]))):
        print(markdown_row([str(cell) for cell in cells(case, found)]))


def cells(case: Case, found: dict[str, Any]) -> list[object]:
    """A line of the table."""
    shares = [f"{found[name]:.3f}" for name in ("unseen", "by all pairs", "reached")]
    per_dimension = f"{case.rows / found['dimensions']:.1f}"
    return [case.pair, case.share, case.seeds, case.rows, per_dimension, *shares, found["verdict"]]


def measure(data: Path, case: Case, device: str) -> dict[str, Any]:
    """One run, beside what all pairs reach."""
    loaded = load_pair(data, case.pair)
    x, y = (space.vectors.astype(np.float32) for space in (loaded.x, loaded.y))
    found = run(x, y, case.rows, case.seeds, case.share, case.state, device)
    by_all_pairs = reached_by_all_pairs(x, y, case.state)
    kept = {name: found[name] for name in ("unseen", "verdict", "seconds")}
    reached = {"by all pairs": by_all_pairs, "reached": found["unseen"] / by_all_pairs}
    return kept | reached | {"dimensions": min(x.shape[1], y.shape[1])}


def reached_by_all_pairs(x: NDArray[np.float32], y: NDArray[np.float32], state: int) -> float:
    """Share of the unseen rows that a rotation fitted to all others brings to their counterpart first."""
    order = np.random.default_rng(state).permutation(len(x))
    unseen, known = order[:UNSEEN], order[UNSEEN:]
    x, y = (normalised(rows, known) for rows in (x, y))
    rotation = nearest_rotation(torch.from_numpy(x[known].T @ y[known])).numpy()
    similarity = x[unseen] @ rotation @ y[unseen].T
    return float((similarity.argmax(axis=1) == np.arange(UNSEEN)).mean())


def normalised(rows: NDArray[np.float32], known: NDArray[np.int64]) -> NDArray[np.float32]:
    """Unit rows (n, d) without the mean of the known ones, scaled to unit length again."""
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows - rows[known].mean(axis=0)
    centered: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return centered


if __name__ == "__main__":
    main()

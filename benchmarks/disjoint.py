"""Two spaces with few items in common, or none but the seeds: how good is the map, by rows, seeds and share?

    python benchmarks/disjoint.py --data DIR --pairs texts easy --plot disjoint.png     many minutes on two cores
    python benchmarks/disjoint.py --data DIR --pairs sentences --rows 5000 10000 20000 38000 --seeds 0 15 --device cuda
    python benchmarks/disjoint.py --data DIR --pairs sentences --rows 30000 --share 0.5 0.1 --seeds 0 15 --device cuda

For each pair of spaces, this takes two sets of items of the given size that share the given part of them, and the given
number of seeds. The map is tried on 2,000 items that neither side has seen. The figure is the share of them that find
their counterpart first, by plain cosine. Where items are shared, it also prints how many of them have their counterpart
as their match, how many of the listed pairs are right, their mean confidence, and the estimate of the share of X's
items that Y has too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge import AnchorDiscovery
from paper.pairs_of_spaces import load_pair
from setting import add_data_option, describe_machine, markdown_header, markdown_row, new_parser, timed, write_json

UNSEEN = 2000
COLUMNS = ("pair", "rows", "share", "seeds", "unseen first", "shared rows right", "listed", "right", "said right")
COLUMNS = (*COLUMNS, "overlap said", "map", "s")


def main() -> None:
    """Run the grid and print a table, and draw the curves if asked to."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=["texts", "easy"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1000, 2000, 3500])
    parser.add_argument("--seeds", nargs="+", type=int, default=[5, 15, 50])
    parser.add_argument("--share", nargs="+", type=float, default=[0.0], help="of items in both spaces (none)")
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args()
    print(f"{describe_machine(arguments.device)}\n\n{markdown_header(COLUMNS)}", flush=True)
    results: list[dict[str, Any]] = []
    for pair in arguments.pairs:
        loaded = load_pair(arguments.data, pair)
        x, y = (space.vectors.astype(np.float32) for space in (loaded.x, loaded.y))
        for share in arguments.share:
            for seeds in arguments.seeds:
                for rows in arguments.rows:
                    setting = {"pair": pair, "rows": rows, "share": share, "seeds": seeds}
                    found = run(x, y, rows, seeds, share, arguments.random_state, arguments.device)
                    results.append(setting | found)
                    print(markdown_row([_cell(value) for value in results[-1].values()]), flush=True)
                    if arguments.json:
                        write_json(arguments.json, results)
    if arguments.plot:
        draw(results, arguments.rows, arguments.plot)


def run(
    x: NDArray[np.float32], y: NDArray[np.float32], rows: int, seeds: int, share: float, state: int, device: str
) -> dict[str, Any]:
    """One discovery between rows of which so many are shared: new items in their place, pairs, verdict and time."""
    order = np.random.default_rng(state).permutation(len(x))
    common = round(share * rows)
    unseen, known, rest = order[:UNSEEN], order[UNSEEN : UNSEEN + seeds], order[UNSEEN + seeds :]
    shared, rest = rest[:common], rest[common:]
    own = rows - common
    if len(rest) < 2 * own:
        raise SystemExit(f"{len(rest)} items are left, which is too few for two times {own} rows")
    rows_x = np.concatenate([known, shared, rest[:own]])
    rows_y = np.concatenate([known, shared, rest[own : 2 * own]])
    pairs = np.stack([np.arange(seeds)] * 2, axis=1)
    discovery = AnchorDiscovery(n_anchors=100, disjoint=not share, random_state=state, device=device)
    seconds, _ = timed(lambda: discovery.fit(x[rows_x], y[rows_y], pairs))
    similarity = _unit(discovery.translate(x[unseen])) @ _unit(y[unseen]).T
    shared_rows = np.arange(seeds, seeds + common)
    found = discovery.pairs_[:, 0] >= seeds
    listed, said = discovery.pairs_[found], discovery.confidence_[discovery.pairs_[found, 0]]
    overlap = discovery.health_.overlap.x
    right = (listed[:, 0] == listed[:, 1]) & (listed[:, 0] < seeds + common)
    return {
        "unseen": float((similarity.argmax(axis=1) == np.arange(UNSEEN)).mean()),
        "shared right": float((discovery.match_[shared_rows] == shared_rows).mean()) if common else None,
        "listed": len(listed),
        "listed right": float(right.mean()) if len(listed) else None,
        "said right": float(said.mean()) if len(listed) else None,
        "overlap": f"{overlap.low:.2f} to {overlap.high:.2f}",
        "verdict": f"{discovery.health_.map.verdict} ({discovery.health_.map.score:.2f})",
        "seconds": seconds,
    }


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else f"{value}"


def draw(results: list[dict[str, Any]], rows: list[int], path: Path) -> None:
    """A curve for every pair of spaces, share and number of seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    curves: dict[tuple[str, float, int], list[float]] = {}
    for result in results:
        curves.setdefault((result["pair"], result["share"], result["seeds"]), []).append(result["unseen"])
    for (pair, share, seeds), values in curves.items():
        axes.plot(rows, values, marker="o", label=f"{pair}, {share:.0%} shared, {seeds} seeds")
    axes.set(xlabel="rows per space", ylabel="new items in their place first", ylim=(0, 1), xscale="log")
    axes.set_xticks(rows, [f"{count:,}" for count in rows])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()

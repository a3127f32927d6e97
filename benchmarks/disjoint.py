"""Two spaces with nothing in common but the seeds: how good is the map, by rows and by seeds?

    python benchmarks/disjoint.py --data DIR --pairs texts easy --plot disjoint.png     many minutes on two cores

For each pair of spaces, two disjoint sets of items of so many rows and so many seeds besides; the map is tried on 2,000
items that neither side has seen. The figure is the share of them that is brought to its counterpart first.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kedge import AnchorDiscovery
from setting import add_data_option, new_parser
from shared import UNSEEN, loaded, unseen_top_1


def main() -> None:
    """Run the grid and print a table, and draw the curves if asked to."""
    parser = new_parser(__doc__)
    add_data_option(parser)
    parser.add_argument("--pairs", nargs="+", default=["texts", "easy"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1000, 2000, 3500])
    parser.add_argument("--seeds", nargs="+", type=int, default=[5, 15, 50])
    parser.add_argument("--random-state", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args()
    curves: dict[tuple[str, int], list[float]] = {}
    print("| pair | rows per space | seeds | new items in their place | map |\n|---|---|---|---|---|")
    for pair in arguments.pairs:
        for seeds in arguments.seeds:
            for rows in arguments.rows:
                top_1, verdict = run(arguments.data, pair, rows, seeds, arguments.random_state, arguments.device)
                curves.setdefault((pair, seeds), []).append(top_1)
                print(f"| {pair} | {rows} | {seeds} | {top_1:.3f} | {verdict} |", flush=True)
    if arguments.plot:
        draw(curves, arguments.rows, arguments.plot)


def run(data: Path, pair: str, rows: int, seeds: int, state: int, device: str) -> tuple[float, str]:
    """One discovery between disjoint rows: new items in their place, and the verdict on the map."""
    x, y = loaded(data, pair)
    order = np.random.default_rng(state).permutation(len(x))
    unseen, known, rest = order[:UNSEEN], order[UNSEEN : UNSEEN + seeds], order[UNSEEN + seeds :]
    if len(rest) < 2 * rows:
        raise SystemExit(f"{pair}: {len(rest)} items are left, which is too few for two times {rows} rows")
    rows_x, rows_y = np.concatenate([known, rest[:rows]]), np.concatenate([known, rest[rows : 2 * rows]])
    pairs = np.stack([np.arange(seeds)] * 2, axis=1)
    discovery = AnchorDiscovery(n_anchors=100, disjoint=True, random_state=state, device=device)
    discovery.fit(x[rows_x], y[rows_y], pairs)
    return unseen_top_1(discovery, x[unseen], y[unseen]), discovery.health_.map.verdict


def draw(curves: dict[tuple[str, int], list[float]], rows: list[int], path: Path) -> None:
    """A curve for every pair of spaces and number of seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for (pair, seeds), values in curves.items():
        axes.plot(rows, values, marker="o", label=f"{pair}, {seeds} seeds")
    axes.set(
        xlabel="rows per space, none in common", ylabel="new items in their place first", ylim=(0, 1), xscale="log"
    )
    axes.set_xticks(rows, [f"{count:,}" for count in rows])
    axes.minorticks_off()
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()

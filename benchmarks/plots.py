"""Plots of what `benchmarks/fused.py --json` measured, for docs/performance.md.

python benchmarks/plots.py                       from benchmarks/results to docs/figures
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from kedge.report import save_figure
from setting import new_parser

HERE = Path(__file__).parent
COLOURS = {"softmin": "#1f6f8b", "best two": "#d1495b", "top 10": "#2e8b57", "means of 150": "#8d6a9f"}
GREY = "#888888"
Row = dict[str, Any]


def main() -> None:
    """Draw all plots, one SVG each."""
    parser = new_parser(__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "figures")
    arguments = parser.parse_args()
    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    arguments.out.mkdir(exist_ok=True)
    rows = json.loads((arguments.results / "fused-h200.json").read_text())
    against_rows(rows, "seconds", "torch_seconds", "milliseconds", lambda taken: 1000 * np.median(taken))
    save(arguments.out / "time-against-rows.svg")
    against_rows(rows, "peak_mb", "torch_peak_mb", "memory beyond the inputs, MB", float)
    save(arguments.out / "memory-against-rows.svg")
    speed_against_dimensions(rows)
    save(arguments.out / "speed-against-dimensions.svg")


def against_rows(rows: list[Row], ours: str, plain: str, label: str, figure: Callable[[Any], float]) -> None:
    """Plot the kernels and plain torch against the number of rows, for d = 300 in tf32."""
    _, panels = plt.subplots(1, 4, figsize=(11, 2.9), sharex=True, sharey=True, layout="constrained")
    for axes, (name, colour) in zip(panels, COLOURS.items(), strict=True):
        some = sorted(chosen(rows, name, "tf32", dim=300), key=lambda row: row["rows"])
        counts = [row["rows"] for row in some]
        axes.loglog(
            counts, [figure(row[plain]) for row in some], "o--", color=GREY, markersize=3.5, label="plain torch"
        )
        axes.loglog(counts, [figure(row[ours]) for row in some], "o-", color=colour, markersize=3.5, label="fused")
        thousands(axes)
        axes.set(title=name, xlabel="rows on either side")
        axes.legend(frameon=False)
    panels[0].set_ylabel(label)


def speed_against_dimensions(rows: list[Row]) -> None:
    """Plot TFLOP/s of the kernels and of the product alone against the number of dimensions, for 50,000 rows."""
    _, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axes, precision in zip(panels, ("tf32", "bf16"), strict=True):
        for name, colour in {"product alone, padded": GREY, **COLOURS}.items():
            some = sorted(chosen(rows, name, precision, rows=50_000), key=lambda row: row["dim"])
            line = "s--" if name.startswith("product") else "o-"
            dims, speeds = [row["dim"] for row in some], [row["tflops"] for row in some]
            axes.plot(dims, speeds, line, color=colour, markersize=3.5, label=name)
        axes.set(title=precision, xlabel="dimensions", ylim=(0, None))
    panels[0].set_ylabel("TFLOP/s of the product")
    panels[1].legend(frameon=False, bbox_to_anchor=(1, 1), loc="upper left")


def chosen(measured: list[Row], what: str, precision: str, **where: int) -> list[Row]:
    """The measurements of one kernel at one precision, filtered by further fields."""
    return [
        row
        for row in measured
        if (row["what"], row["precision"]) == (what, precision) and all(row[key] == of for key, of in where.items())
    ]


def thousands(axes: Axes) -> None:
    """Label the x axis with ticks such as 5k and 50k."""
    axes.set_xticks([5000, 20_000, 50_000, 200_000])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def save(path: Path) -> None:
    """Save and close the current figure."""
    save_figure(plt.gcf(), path)
    plt.close()


if __name__ == "__main__":
    main()

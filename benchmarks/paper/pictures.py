"""Figures of the experiments: the paper's relative spaces in two dimensions, and bar charts of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from kedge.geometry import principal_axes, unit
from kedge.report import require_matplotlib, save_figure

# Words whose neighbourhoods are drawn, if the spaces have them.
_CENTERS = ("school", "water", "music", "doctor", "army")
_NEIGHBOURHOOD = 15
_BACKGROUND = 1500


def picture_of(keys: Sequence[str], x: Tensor, sets: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Compute the points to draw, as plain numbers.

    Parameters
    ----------
    keys : sequence of str, length n
    x : Tensor, shape (n, dx)
        Unit rows; the neighbours of a center are the nearest ones here.
    sets : mapping of name to two tensors, shapes (n, a)
        Relative coordinates of both spaces. Both are projected on the axes that separate the neighbourhoods in the
        first, so that spaces that agree look alike.
    """
    row_of = {key: row for row, key in enumerate(keys)}
    groups = {
        center: (x @ x[row_of[center]]).topk(min(_NEIGHBOURHOOD, len(x))).indices.tolist()
        for center in _CENTERS
        if center in row_of
    }
    coloured = [row for rows in groups.values() for row in rows] or list(range(len(keys)))
    background = range(0, len(keys), max(1, len(keys) // _BACKGROUND))
    points: dict[str, Any] = {}
    for name, spaces in sets.items():
        of_x, of_y = (unit(space) for space in spaces)
        axes = principal_axes(of_x[coloured] - of_x[coloured].mean(dim=0), 2)
        projected_x, projected_y = ((space - space.mean(dim=0)) @ axes for space in (of_x, of_y))
        points[name] = {
            side: {
                "background": _rounded(points_of_side[list(background)]),
                "groups": {word: _rounded(points_of_side[rows]) for word, rows in groups.items()},
            }
            for side, points_of_side in (("x", projected_x), ("y", projected_y))
        }
    return points


def draw_picture(points: Mapping[str, Any], name_x: str, name_y: str, stem: Path) -> list[Path]:
    """Draw a grid, one row per set and one column per space, to `stem`.png and .svg; returns the paths."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.2 * len(points)), layout="constrained")
    grid = figure.subplots(len(points), 2, squeeze=False, sharex="row", sharey="row")
    for row, (set_name, sides) in zip(grid, points.items(), strict=True):
        for axes, side, space in zip(row, ("x", "y"), (name_x, name_y), strict=True):
            axes.scatter(*zip(*sides[side]["background"], strict=True), s=2, color="0.82", linewidths=0)
            for colour, (word, places) in enumerate(sides[side]["groups"].items()):
                axes.scatter(*zip(*places, strict=True), s=14, color=f"C{colour}", label=word, linewidths=0)
            axes.set(xticks=[], yticks=[], title=f"{set_name}: {space}")
    handles, labels = grid[0][0].get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title="words close to")
    return _save(figure, stem)


def draw_bars(bars: Mapping[str, Mapping[str, Mapping[str, float]]], measure: str, stem: Path) -> list[Path]:
    """Draw groups of bars, such as sets of anchors by direction, to `stem`.png and .svg; returns the paths.

    `bars` maps each group and bar to its `mean` and standard deviation `std`; all groups have the same bars.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    names = list(next(iter(bars.values())))
    width = 0.8 / len(names)
    figure = Figure(figsize=(max(5.0, 1.5 + 1.4 * len(bars)), 3.4), layout="constrained")
    axes = figure.subplots()
    for position, name in enumerate(names):
        places = [group + (position - (len(names) - 1) / 2) * width for group in range(len(bars))]
        means, spreads = ([group[name][value] for group in bars.values()] for value in ("mean", "std"))
        axes.bar(places, means, 0.9 * width, yerr=spreads, label=name, error_kw={"linewidth": 1})
    axes.set_xticks(range(len(bars)), list(bars), fontsize=8)
    axes.set_ylabel(measure)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    return _save(figure, stem)


def _save(figure: Any, stem: Path) -> list[Path]:
    written = [stem.with_name(stem.name + suffix) for suffix in (".png", ".svg")]
    for path in written:
        save_figure(figure, path)
    return written


def _rounded(places: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in place] for place in places.tolist()]

"""Matplotlib figures for papers: the spaces, how the discovery converged, and the confidence of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery
from kedge.report.figures.curves import expected_precision, rounds_of
from kedge.report.figures.saving import require_matplotlib
from kedge.report.picture.projection import VIEWS, PlaneProjection, draw_sample, project_to_plane
from kedge.solving.steps import Step
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREY = "#1f6f8b", "#d1495b", "0.8"
_BINS = 40


def draw_spaces(discovery: AnchorDiscovery, x: SpaceLike, y: SpaceLike, max_rows: int = 3000) -> Figure:
    """Draw X above Y, one column per view, with at most `max_rows` rows of either space.

    Partners share a colour, given by the position of X's row relative to the anchors found, so that spaces that agree
    look alike; unmatched rows are grey.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    discovery, x, y = discovery.in_texts(x, y)
    projection = project_to_plane(discovery, x, y, draw_sample(discovery, x, y, max_rows))
    pairs, colours = projection.pairs, _colours_of(projection)
    figure = Figure(figsize=(3.2 * len(projection.views), 6.2), layout="constrained")
    grid = figure.subplots(2, len(projection.views), squeeze=False)
    for column, (view, places) in zip(grid.T, projection.views.items(), strict=True):
        column[0].set_title(view, fontsize=9)
        for axes, points in zip(column, places, strict=True):
            axes.scatter(*points[pairs:].T, s=2, color=_GREY, linewidths=0, rasterized=True)
            axes.scatter(*points[:pairs].T, s=4, c=colours, linewidths=0, rasterized=True)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(_GREY)
        if view != VIEWS[0]:  # the spaces are comparable, so draw them on the same scale
            reach = 1.05 * max(float(np.abs(points).max(initial=0)) for points in places)
            for axes in column:
                axes.set(xlim=(-reach, reach), ylim=(-reach, reach))
    for axes, space in zip(grid[:, 0], (x, y), strict=True):
        axes.set_ylabel(Path(space.source).name)
    return figure


def draw_convergence(discovery: AnchorDiscovery) -> Figure:
    """Draw how sharp the soft match became as epsilon fell, and the share of rows in mutual pairs while finishing."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    if discovery.method == "paper":
        axes = figure.subplots()
        _lines(axes, discovery.history_, "paper", "loss")
        axes.set(xlabel="step", ylabel="loss")
        return figure
    left, right = figure.subplots(1, 2)
    _lines(left, discovery.history_, "anneal", "sharpness")
    left.set(xlabel="round of annealing", ylabel="mean largest share of a row", ylim=(0, 1.03))
    _lines(right, discovery.history_, "finish", "mutual")
    right.set(xlabel="round of finishing", ylabel="share of rows in mutual pairs", ylim=(0, 1.03))
    right.xaxis.get_major_locator().set_params(integer=True)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    if len(left.lines) > 1:
        left.legend(frameon=False, fontsize=8)
    return figure


def draw_confidence(discovery: AnchorDiscovery) -> Figure:
    """Draw a histogram of the pairs' confidence, and the expected precision of the most confident ones."""
    if not len(discovery.pairs_):
        raise InputError("the run lists no pairs, so there is no confidence to draw")
    require_matplotlib()
    from matplotlib.figure import Figure

    confidence = discovery.pair_confidence_
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(confidence, bins=_BINS, range=(min(0.5, float(confidence.min())), 1), color=_BLUE)
    left.set(xlabel="confidence", ylabel="pairs")
    precision = expected_precision(confidence)
    right.plot(range(1, len(precision) + 1), precision, color=_BLUE)
    right.set(
        xlabel="pairs kept, most confident first",
        ylabel="expected precision",
        ylim=(min(0.9, precision[-1] - 0.02), 1.003),
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


FIGURES: dict[str, Callable[[AnchorDiscovery, Embeddings, Embeddings], Figure]] = {
    "spaces": draw_spaces,
    "convergence": lambda discovery, _x, _y: draw_convergence(discovery),
    "confidence": lambda discovery, _x, _y: draw_confidence(discovery),
}
"""Functions that draw a run and its two spaces, by kind of figure."""


def _colours_of(projection: PlaneProjection) -> NDArray[np.float64]:
    """A colour (p, 3) for every pair: the hue is the direction of X's row, and the colour pales towards the center."""
    from matplotlib.colors import hsv_to_rgb

    places = projection.views[VIEWS[2]][0][: projection.pairs].astype(np.float64)
    radius = np.hypot(*places.T)
    strength = np.clip(radius / max(float(np.quantile(radius, 0.9)), 1e-12), 0.25, 1) if len(radius) else radius
    hue = (np.arctan2(places[:, 1], places[:, 0]) / (2 * np.pi)) % 1
    colours: NDArray[np.float64] = hsv_to_rgb(np.stack([hue, strength, np.full_like(hue, 0.85)], axis=1))
    return colours


def _lines(axes: Axes, history: Sequence[Step], stage: str, figure: str) -> None:
    """Draw one line per attempt: the value `figure` of a stage, by round."""
    for position, curve in enumerate(rounds_of(history, stage, figure)):
        colour = (_BLUE, _RED, "#2e8b57")[position % 3]
        rounds = range(1, len(curve.values) + 1)
        axes.plot(rounds, curve.values, "o-", color=colour, markersize=3, label=curve.attempt)

"""Both spaces in two dimensions: as they are, relative to the seeds, and relative to the anchors found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.geometry import principal_axes, unit
from kedge.spaces import Embeddings

VIEWS = ("as they are", "relative to the seeds", "relative to the anchors found")

Places = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class Sample:
    """Some rows of X (n,) and of Y (m,) to draw.

    The first p rows of either side are partners of each other; `pair_numbers` (p,) are their indices among the run's
    linked pairs (found ones first, then seeds). The other rows are unmatched.
    """

    rows_x: NDArray[np.int64]
    rows_y: NDArray[np.int64]
    pair_numbers: NDArray[np.int64]


def draw_sample(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, max_rows: int, random_state: int = 0
) -> Sample:
    """Draw at most `max_rows` rows of either space at random.

    Pairs are drawn in proportion to their share of the smaller space, unmatched rows for the rest.
    """
    chance = np.random.default_rng(random_state)

    def drawn(count: int, wanted: int) -> NDArray[np.int64]:
        return np.sort(chance.permutation(count)[:wanted])

    linked = discovery.linked_pairs().keys
    smaller = len(linked) + min(len(discovery.x_.unmatched_keys), len(discovery.y_.unmatched_keys))
    numbers = drawn(len(linked), math.ceil(len(linked) * max_rows / smaller))
    pairs = [linked[number] for number in numbers]
    unmatched_x, unmatched_y = (
        [unmatched[place] for place in drawn(len(unmatched), max_rows - len(pairs))]
        for unmatched in (discovery.x_.unmatched_keys, discovery.y_.unmatched_keys)
    )
    rows_x = x.rows([left for left, _ in pairs] + unmatched_x)
    rows_y = y.rows([right for _, right in pairs] + unmatched_y)
    return Sample(rows_x, rows_y, numbers)


@dataclass(frozen=True)
class PlaneProjection:
    """Positions of some rows of X and Y in two dimensions, by view, and which of them are pairs.

    `views` maps a view to positions (n, 2) and (m, 2); without seeds there is no view relative to them. The first
    `pairs` rows of either side are partners of each other, the others are unmatched. `keys_x` (n,) and `keys_y` (m,)
    are their keys.
    """

    keys_x: list[str]
    keys_y: list[str]
    pairs: int
    views: dict[str, Places]


def project_to_plane(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, sample: Sample) -> PlaneProjection:
    """Project the sample's rows to the plane in every view.

    As they are, the spaces have no axes in common, so each is shown along its own two leading axes. Relative
    coordinates are comparable, so both spaces are shown along those of X.
    """
    rows_x, rows_y = x.vectors[sample.rows_x], y.vectors[sample.rows_y]
    of_x, of_y = discovery.x_.normalise(rows_x), discovery.y_.normalise(rows_y)
    views = {VIEWS[0]: (_in_axes_of(of_x, of_x), _in_axes_of(of_y, of_y))}
    if len(discovery.seeds_):
        views[VIEWS[1]] = project_together(
            discovery.x_.relative(rows_x, anchors="seeds"), discovery.y_.relative(rows_y, anchors="seeds")
        )
    views[VIEWS[2]] = project_together(discovery.x_.relative(rows_x), discovery.y_.relative(rows_y))
    keys_x, keys_y = ([space.keys[row] for row in rows] for space, rows in ((x, sample.rows_x), (y, sample.rows_y)))
    return PlaneProjection(keys_x, keys_y, len(sample.pair_numbers), views)


def project_together(left: NDArray[np.float32], right: NDArray[np.float32]) -> Places:
    """Project rows of X (n, a) and Y (m, a) in the same coordinates along the two leading axes of X's."""
    return _in_axes_of(left, left), _in_axes_of(right, left)


def _in_axes_of(rows: NDArray[np.float32], of: NDArray[np.float32]) -> NDArray[np.float32]:
    """Project unit rows (n, d), centered by their own mean, along the two leading axes of others (m, d)."""
    scaled, others = (unit(torch.from_numpy(side)) for side in (rows, of))
    axes = principal_axes(others - others.mean(dim=0), 2)
    projected: NDArray[np.float32] = ((scaled - scaled.mean(dim=0)) @ axes).numpy()
    return np.pad(projected, ((0, 0), (0, 2 - projected.shape[1])))  # one anchor gives only one axis

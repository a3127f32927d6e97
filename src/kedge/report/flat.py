"""Both spaces in two dimensions: as they are, relative to the seeds, and relative to the anchors found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.discovery import AnchorDiscovery
from kedge.geometry import principal_axes, unit
from kedge.spaces import Embeddings

Item = TypeVar("Item")

VIEWS = ("as they are", "relative to the seeds", "relative to the anchors found")


@dataclass(frozen=True)
class FlatSpaces:
    """Places of some rows of X and of Y in two dimensions, by view, and which of them are pairs.

    `views` maps a view to places (n, 2) and (m, 2); without seeds there is none relative to them. The first `pairs`
    rows of either side are partners of each other, the others are in no pair. `keys_x` (n,) and `keys_y` (m,) name
    them.
    """

    keys_x: list[str]
    keys_y: list[str]
    pairs: int
    views: dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]


def flatten(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings, most: int, random_state: int = 0) -> FlatSpaces:
    """At most `most` rows of either space: pairs drawn at random, and as large a part of the rows in no pair.

    As they are, each space is turned to its own two leading axes, for want of common ones. Relative coordinates
    can be compared, so both spaces are drawn in the axes of X's.
    """
    chance = np.random.default_rng(random_state)
    share = min(1.0, most / max(len(x), len(y)))
    pairs = _drawn(discovery.pair_keys_, share, chance)
    keys_x = [left for left, _ in pairs] + _drawn(discovery.unmatched_keys_x_, share, chance)
    keys_y = [right for _, right in pairs] + _drawn(discovery.unmatched_keys_y_, share, chance)
    rows_x, rows_y = x.vectors[x.rows(keys_x)], y.vectors[y.rows(keys_y)]
    of_x, of_y = discovery.normalise_x(rows_x), discovery.normalise_y(rows_y)
    views = {VIEWS[0]: (_in_axes_of(of_x, of_x), _in_axes_of(of_y, of_y))}
    if len(discovery.seeds_):
        left, right = discovery.transform_x(rows_x, anchors="seeds"), discovery.transform_y(rows_y, anchors="seeds")
        views[VIEWS[1]] = (_in_axes_of(left, left), _in_axes_of(right, left))
    left, right = discovery.transform_x(rows_x), discovery.transform_y(rows_y)
    views[VIEWS[2]] = (_in_axes_of(left, left), _in_axes_of(right, left))
    return FlatSpaces(keys_x, keys_y, len(pairs), views)


def _drawn(items: list[Item], share: float, chance: np.random.Generator) -> list[Item]:
    """A share of the items, in their order."""
    chosen = np.sort(chance.permutation(len(items))[: round(share * len(items))])
    return [items[place] for place in chosen.tolist()]


def _in_axes_of(rows: NDArray[np.float32], of: NDArray[np.float32]) -> NDArray[np.float32]:
    """Unit rows (n, d), less their mean, along the two leading axes of others (m, d)."""
    scaled, others = (unit(torch.from_numpy(side)) for side in (rows, of))
    axes = principal_axes(others - others.mean(dim=0), 2)
    flat: NDArray[np.float32] = ((scaled - scaled.mean(dim=0)) @ axes).numpy()
    return flat

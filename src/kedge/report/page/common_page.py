"""A common space of many spaces as a page: small multiples, search between members, the matrix of pairs, and loops."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import __version__
from kedge.many.common_space import CommonSpace
from kedge.matching import top_k
from kedge.report.page.rendering import as_json, asset, render, require_page_target
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.writing.atomic import atomic_path

MAX_GROUPS = 3000
"""The maximum number of groups that are drawn."""

_SEALED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_COLOURS = 10
_NEAR = 5
_MAX_NEAR = 300_000  # maximum length of all lists of near groups together, over all pairs of spaces
_INSIDE = 0.98  # share of coordinates inside the panel; points beyond are drawn at its border


def write_common_page(path: str | Path, common: CommonSpace, spaces: Mapping[str, SpaceLike]) -> None:
    """Write a self-contained page of a common space, given its members as they were fitted."""
    from markupsafe import Markup

    path = Path(path)
    require_page_target(path)
    health = common.health_
    names = list(common.members_)
    sizes = (common.groups_ >= 0).sum(axis=1)
    each = {(one.first, one.second): one for one in health.each}
    page = render(
        "common.html",
        version=__version__,
        policy=_SEALED,
        health=health,
        names=names,
        everyone=[*names, *health.left_out],
        rows=[member.rows for member in common.members_.values()],
        each=each | {(second, first): one for (first, second), one in each.items()},
        groups=int((sizes > 1).sum()),
        everywhere=int((sizes == len(names)).sum()),
        max_groups=MAX_GROUPS,
        searched=searched_groups(len(names), min(len(common.groups_), MAX_GROUPS)),
        broken={
            frozenset(two) for loop in health.loops if loop.closed is False for two in combinations(loop.spaces, 2)
        },
        frozenset=frozenset,
        data=Markup(as_json(_drawn(common, spaces)).replace("<", "\\u003c")),
        script=Markup(asset("common.js")),
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _drawn(common: CommonSpace, spaces: Mapping[str, SpaceLike]) -> dict[str, Any]:
    """The data of the groups that are drawn: keys, probabilities, colours, neighbours, and row positions by space."""
    groups = common.groups_[:MAX_GROUPS]
    coordinates = {name: common.project(spaces[name], space=name)[:, :-2] for name in common.members_}
    stacked = np.concatenate([rows[:MAX_GROUPS] for rows in coordinates.values()]).astype(np.float64)
    _, _, axes = np.linalg.svd(stacked - stacked.mean(axis=0), full_matrices=False)
    projection = {name: (rows - stacked.mean(axis=0)) @ axes[:2].T for name, rows in coordinates.items()}
    for name, rows in projection.items():  # spaces with small loadings would look tiny next to the others
        projection[name] = rows / max(float(np.sqrt((rows**2).mean())), 1e-12)
    radius = float(np.quantile(np.abs(np.concatenate(list(projection.values()))), _INSIDE)) or 1.0
    points: list[list[list[float] | None]] = []
    for place, name in enumerate(common.members_):
        within = np.clip(projection[name] / radius, -1, 1).round(3).tolist()
        points.append([None if row < 0 else within[row] for row in groups[:, place].tolist()])
    angles = _angles(points, len(groups))
    return {
        "keys": [[None if key is None else str(key) for key in keys] for keys in common.group_keys_[:MAX_GROUPS]],
        "probability": common.group_probability_[:MAX_GROUPS].round(4).tolist(),
        "colours": ((angles + np.pi) / (2 * np.pi) * _COLOURS).astype(int).clip(0, _COLOURS - 1).tolist(),
        "points": points,
        "near": _nearest(common, spaces, groups),
    }


def _nearest(common: CommonSpace, spaces: Mapping[str, SpaceLike], groups: NDArray[np.int64]) -> dict[str, Any]:
    """The nearest groups for every two members, keyed by their numbers as "s,t".

    For the row in s of every searchable group, these are the groups whose rows in t are most likely the same item,
    likeliest first.
    """
    names = list(common.members_)
    vectors = [as_space(spaces[name], name).vectors for name in names]
    asked = groups[: searched_groups(len(names), len(groups))]
    found: dict[str, Any] = {}
    for s, t in permutations(range(len(names)), 2):
        pair = common.between(names[s], names[t])
        here, there = np.flatnonzero(asked[:, s] >= 0), np.flatnonzero(groups[:, t] >= 0)
        near: list[list[int]] = [[] for _ in asked]
        if len(here) and len(there):
            queries = torch.from_numpy(pair.x_.shared(vectors[s][asked[here, s]]))
            targets = torch.from_numpy(pair.y_.shared(vectors[t][groups[there, t]]))
            _, rows = top_k(queries, targets, min(_NEAR, len(there)))
            for group, best in zip(here.tolist(), there[rows.numpy()].tolist(), strict=True):
                near[group] = best
        found[f"{s},{t}"] = near
    return found


def searched_groups(spaces: int, groups: int) -> int:
    """How many groups can be searched for, limited so that the page of many spaces stays small."""
    return min(groups, _MAX_NEAR // (_NEAR * max(spaces * (spaces - 1), 1)))


def _angles(points: list[list[list[float] | None]], count: int) -> NDArray[np.float64]:
    """The angle (g,) of each group's first row around the center; it gives the group one colour in all panels."""
    found = np.zeros(count)
    for group in range(count):
        first = next((rows[group] for rows in points if rows[group] is not None), None)
        if first is not None:
            found[group] = np.arctan2(first[1], first[0])
    return found

"""Both spaces as a table for embedding-atlas: the position of each row, its neighbours, and its role in the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.estimators import AnchorDiscovery
from kedge.extras import needing
from kedge.report.picture.neighbourhoods import Neighbourhoods, Side, shared_directions
from kedge.report.picture.projection import Places, draw_sample, project_together
from kedge.report.picture.tsne import lay_out
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike
from kedge.spaces.writing.atomic import atomic_path

_NEIGHBOURS = 8


def require_pyarrow() -> None:
    """Raise with installation advice if the package that writes the file is missing."""
    with needing("Parquet files need", "pyarrow", install="kedge[parquet]"):
        import pyarrow.parquet  # noqa: F401


def write_atlas(
    path: str | Path,
    discovery: AnchorDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    *,
    max_rows: int,
    labels: Mapping[str, str] | None = None,
    layout: bool = False,
) -> int:
    """Write a Parquet file for embedding-atlas, and return its number of rows: those of X, followed by those of Y.

    Columns: `key`; `space`, X or Y; `role`, the first of suspect seed, contradicted seed, seed, anchor, pair and
    unmatched that applies; `partner` and `confidence`, null if there is none (a seed was given, so it has no
    confidence); `label`, if labels are given; `projection_x` and `projection_y`, positions of both spaces in the same
    picture; `neighbors`, rows of this table and their distance, which is 1 minus the similarity: the nearest rows of
    the same space by cosine, and the rows of the other space that most likely stand for the same item.

    Parameters
    ----------
    path : path
        File to write, atomically.
    discovery, x, y
        A fitted discovery and the spaces it was fitted on.
    max_rows : int
        At most this many rows of a space are written; larger spaces are sampled at random.
    labels : mapping, optional
        Labels by key, of rows of X, Y or both.
    layout : bool
        Whether to compute positions by t-SNE, which takes a minute or more for many rows, rather than along the two
        leading axes of shared coordinates.
    """
    require_pyarrow()
    import pyarrow as pa
    from pyarrow.parquet import write_table

    discovery, x, y = discovery.in_texts(x, y)
    sample = draw_sample(discovery, x, y, max_rows)
    drawn_x, drawn_y = x.take(sample.rows_x), y.take(sample.rows_y)
    keys_x, keys_y = list(drawn_x.keys), list(drawn_y.keys)
    pairs, found = len(sample.pair_numbers), sample.pair_numbers < len(discovery.pairs_)
    linked = discovery.linked_pairs().confidence[sample.pair_numbers].tolist()
    confidence = [sure if is_found else None for sure, is_found in zip(linked, found.tolist(), strict=True)]
    columns_x = _columns("x", discovery, keys_x, keys_y[:pairs], confidence)
    columns_y = _columns("y", discovery, keys_y, keys_x[:pairs], confidence)
    columns = {
        name: pa.array(columns_x[name] + columns_y[name], pa.float64() if name == "confidence" else pa.string())
        for name in columns_x
    }
    if labels is not None:
        columns["label"] = pa.array([labels.get(key) for key in keys_x + keys_y], pa.string())
    places = np.concatenate((lay_out if layout else _linear)(discovery, drawn_x, drawn_y))
    columns["projection_x"], columns["projection_y"] = map(pa.array, places.T)
    ids, distances = _neighbours(discovery, drawn_x, drawn_y)
    columns["neighbors"] = pa.StructArray.from_arrays([pa.array(ids), pa.array(distances)], ["ids", "distances"])
    with atomic_path(Path(path)) as temporary:
        write_table(pa.table(columns), temporary)
    return len(columns["key"])


def opening_command(path: str | Path) -> str:
    """The command that opens such a file in embedding-atlas."""
    columns = "--text key --x projection_x --y projection_y --neighbors neighbors"
    return f"embedding-atlas {shlex.quote(str(path))} {columns}"


def _columns(
    side: Side, discovery: AnchorDiscovery, keys: list[str], partners: list[str], confidence: list[float | None]
) -> dict[str, list[Any]]:
    """Columns for some rows of a space; the first rows have the given partners and confidence, the others have none."""

    def of_this_side(pairs: Any) -> set[str]:
        return {pair[0 if side == "x" else 1] for pair in pairs}

    suspects = of_this_side(compress(discovery.seed_keys_, discovery.seed_is_suspect_))
    contradicted = of_this_side(compress(discovery.seed_keys_, discovery.seed_opinion_ == "contradicted"))
    seeds, anchors = of_this_side(discovery.seed_keys_), of_this_side(discovery.anchor_keys_)
    named = (("suspect seed", suspects), ("contradicted seed", contradicted), ("seed", seeds), ("anchor", anchors))
    roles = ["pair"] * len(partners) + ["unmatched"] * (len(keys) - len(partners))
    for number, key in enumerate(keys):
        for role, those in named:
            if key in those:
                roles[number] = role
                break
    nothing = [None] * (len(keys) - len(partners))
    return {
        "key": keys,
        "space": [side.upper()] * len(keys),
        "role": roles,
        "partner": partners + nothing,
        "confidence": confidence + nothing,
    }


def _linear(discovery: AnchorDiscovery, x: Embeddings, y: Embeddings) -> Places:
    """Positions (n, 2) and (m, 2) along the two leading axes of X in shared coordinates."""
    directions = shared_directions(discovery, x, y).numpy()
    return project_together(directions[: len(x)], directions[len(x) :])


def _neighbours(
    discovery: AnchorDiscovery, x: Embeddings, y: Embeddings
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float32]]]:
    """The nearest rows of each row of the table, nearest first, and their distances."""
    neighbourhoods = Neighbourhoods(discovery, x, y)
    ids: list[NDArray[np.int64]] = []
    distances: list[NDArray[np.float32]] = []
    sides: tuple[tuple[Side, Embeddings, int, int], ...] = (("x", x, 0, len(x)), ("y", y, len(x), 0))
    for side, space, begin, other_begin in sides:
        own = neighbourhoods.within(side, np.arange(len(space)), _NEIGHBOURS)
        across = neighbourhoods.across(side, np.arange(len(space)), _NEIGHBOURS)
        rows = np.concatenate([own.rows + begin, across.rows + other_begin], axis=1)
        far = 1 - np.concatenate([own.similarity, across.similarity], axis=1)
        order = far.argsort(axis=1, kind="stable")
        ids.extend(np.take_along_axis(rows, order, axis=1))
        distances.extend(np.take_along_axis(far, order, axis=1))
    return ids, distances

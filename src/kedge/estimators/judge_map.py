"""`kedge.judge`: is this map right? Judged without labels, whoever made the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from kedge.errors import InputError
from kedge.estimators.devices import load_space, resolve_device
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.estimators.pair_inputs import PairsLike, as_seed_rows
from kedge.geometry import normalise, unit
from kedge.judging.judge import Judgement, LabelFreeJudge
from kedge.matching import DEFAULT_BUDGET, Problem, match_csls
from kedge.solving.steps import Log
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings

MapLike: TypeAlias = Callable[[NDArray[np.float32]], ArrayLike] | ArrayLike
"""A matrix (dx, dy), or a function from vectors (k, dx) to vectors (k, dy): a `Translator`, a model's `predict`, ..."""

_ROWS = 16_384
# All rows are compared with all; if there are more than this, a sample says the same.
_MAX_ROWS = 15_000


def judge(
    x: SpaceLike,
    y: SpaceLike,
    map: MapLike,
    *,
    seeds: PairsLike = None,
    random_state: RandomState = 0,
    device: str = "auto",
) -> Judgement:
    """Judge whether a map takes vectors of X to where they belong in Y, without labels and whoever made the map.

    Rows of X are mapped and matched with Y by cosine. The map is ok if more rows recognise their counterparts than
    chance explains or, where the spaces share few items, if it stands out among what random starts reach on the same
    spaces. A map that is right about topics but wrong about details is called uncertain or failed.

    Parameters
    ----------
    x, y : spaces (n, dx) and (m, dy)
        In any form that `AnchorDiscovery.fit` takes, with vectors as the map expects and returns them.
    map : array (dx, dy) or callable
        The map to judge: x @ map, or map(x).
    seeds : pairs, optional
        Known pairs. One is enough to rule out the mirror image, which is a rival if there are none.
    random_state, device
        As in `AnchorDiscovery`.

    Returns
    -------
    Judgement
        `verdict` ("ok", "uncertain" or "failed"), `score` (0 to 1), `reason` and `advice`, and what they rest on.

    Examples
    --------
    >>> kedge.judge(x, y, w).verdict
    'ok'
    """
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    known = as_seed_rows(seeds, space_x, space_y, 0)
    state, torch_device = as_random_state(random_state), resolve_device(device)
    chance = np.random.default_rng(state)
    space_x, space_y, known = _sample(space_x, space_y, known, chance)
    loaded_x = load_space(space_x.vectors, torch_device, "x", center=True)
    loaded_y = load_space(space_y.vectors, torch_device, "y", center=True)
    mapped = torch.from_numpy(_mapped(map, space_x.vectors, space_y.dim)).to(torch_device)
    seeds_x, seeds_y = torch.from_numpy(known.T.copy()).to(torch_device)
    spectra = (loaded_x.spectrum, loaded_y.spectrum)
    problem = Problem(loaded_x.rows, loaded_y.rows, seeds_x, seeds_y, DEFAULT_BUDGET, spectra=spectra)
    mapped = unit(normalise(mapped, loaded_y.center) @ loaded_y.axes)
    match = match_csls(mapped, unit(loaded_y.rows), budget=DEFAULT_BUDGET)
    return LabelFreeJudge(problem, state, Log()).judge(problem, match, loaded_x.rows.float().T @ mapped)


def _sample(
    x: Embeddings, y: Embeddings, seeds: NDArray[np.int64], chance: np.random.Generator
) -> tuple[Embeddings, Embeddings, NDArray[np.int64]]:
    """At most `_MAX_ROWS` rows of either space and those of seeds; and the seeds as rows (s, 2) of these."""
    sides, columns = [], []
    for space, rows in ((x, seeds[:, 0]), (y, seeds[:, 1])):
        if len(space) <= _MAX_ROWS:
            kept = np.arange(len(space))
        else:
            kept = np.union1d(chance.permutation(len(space))[:_MAX_ROWS], rows)
        sides.append(space if len(kept) == len(space) else space.take(kept.tolist()))
        columns.append(np.searchsorted(kept, rows))
    return sides[0], sides[1], np.stack(columns, axis=1)


def _mapped(mapping: MapLike, vectors: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """The vectors (n, dx), mapped to (n, dy)."""
    apply: Any = mapping if callable(mapping) else lambda rows: rows @ np.asarray(mapping, dtype=np.float32)
    if not callable(mapping) and np.shape(mapping) != (vectors.shape[1], dim):
        raise InputError(
            f"map must be a matrix of shape ({vectors.shape[1]}, {dim}), from X's dimensions to Y's, or a function; "
            f"got shape {np.shape(mapping)}"
        )
    mapped = np.empty((len(vectors), dim), dtype=np.float32)
    for begin in range(0, len(vectors), _ROWS):
        rows = np.array(vectors[begin : begin + _ROWS], dtype=np.float32)
        found = np.asarray(apply(rows), dtype=np.float32)
        if found.shape != (len(rows), dim) or not np.isfinite(found).all():
            raise InputError(
                f"map must give finite vectors of shape ({len(rows)}, {dim}) for {len(rows)} rows of X, got shape "
                f"{found.shape}{'' if np.isfinite(found).all() else ' with NaN or infinite values'}"
            )
        mapped[begin : begin + _ROWS] = found
    return mapped

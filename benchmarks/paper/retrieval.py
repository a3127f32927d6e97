"""One random state of the words and images experiments: discover from 15 pairs, then retrieve across spaces."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.estimators import AnchorDiscovery
from kedge.estimators.devices import resolve_device
from kedge.geometry import moments_of, relative, unit
from kedge.matching import top_k, using_precision
from kedge.models.anchors import place_free_anchors
from kedge.solving.steps import OnStep
from kedge.tasks import neighbour_scores
from paper.pairs_of_spaces import SEEDS, SpacePair, Task, draw_task
from paper.pictures import picture_of

K = 10
METRICS = ("jaccard", "mrr", "cosine")
DIRECTIONS = ("x->x", "x->y", "y->x", "y->y")
OPTIMISED = ("y", "x")
"""The space whose anchors are free; those of the other space are given."""


class _Space:
    """Vectors (n, d) of one space in coordinates relative to anchors (a, d): `rows` (n, a), of unit norm."""

    def __init__(self, vectors: Tensor, anchors: Tensor) -> None:
        coordinates = relative(vectors, anchors)
        self.rows = unit(coordinates)
        self._anchors = anchors
        self._scaled = vectors / coordinates.norm(dim=1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)

    @cached_property
    def near(self) -> Tensor:
        """The k nearest rows (n, k) of each row, including itself."""
        return self.nearest_in(self)

    def nearest_in(self, target: _Space) -> Tensor:
        """The k nearest rows (n, k) in the target of each row."""
        # <r, A v> = <A^T r, v>: cheaper if a space has fewer dimensions than anchors.
        if target._anchors.shape[1] < self.rows.shape[1]:
            return top_k(self.rows @ target._anchors, target._scaled, K)[1]
        if self._anchors.shape[1] < self.rows.shape[1]:
            return top_k(self._scaled, target.rows @ self._anchors, K)[1]
        return top_k(self.rows, target.rows, K)[1]


def retrieval_state(
    pair: SpacePair,
    random_state: int,
    *,
    device: str = "auto",
    paper_optimiser: bool = False,
    with_picture: bool = False,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Discover from 15 seeds and score all sets of anchors, free in either space, in all directions.

    Pairs have no direction, so one discovery is enough: its pairs can place the free anchors in either space. The
    paper's optimiser has to run once for each.
    """
    task = draw_task(pair, random_state)
    began = time.perf_counter()
    discovery = AnchorDiscovery(whiten=0, random_state=random_state, device=device, on_step=on_step)
    discovery.fit(task.x, task.y, task.seeds, anchors=task.anchors)
    seconds = time.perf_counter() - began

    def load(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(resolve_device(device))

    x, y = load(discovery.x_.normalise(pair.x)), load(discovery.y_.normalise(pair.y))
    anchors = load(pair.x.rows(task.anchors))
    pairs_x, pairs_y = (load(rows) for rows in _found_pairs(discovery, pair, task))
    free = {
        "Found": {
            "y": load(discovery.y_.anchors["free"]),
            "x": place_free_anchors(moments_of(y[pairs_y], x[pairs_x]), y[anchors]),
        }
    }
    if paper_optimiser:
        by_paper = AnchorDiscovery(method="paper", whiten=0, random_state=random_state, device=device, on_step=on_step)
        free["Paper's optimiser"] = {
            optimised: load(by_paper.fit(source, target, task.seeds, anchors=task.anchors).y_.anchors["free"])
            for optimised, source, target in (("y", task.x, task.y), ("x", task.y, task.x))
        }

    seeds = anchors[:SEEDS]
    with using_precision("float32"):
        given_x, given_y = _Space(x, x[anchors]), _Space(y, y[anchors])
        gt = _scores(given_x, given_y)
        seed = _scores(_Space(x, x[seeds]), _Space(y, y[seeds]))
        scores = {"GT": {"y": gt, "x": gt}, "Seed": {"y": seed, "x": seed}}
        for name, placed in free.items():
            scores[name] = {
                "y": _scores(given_x, _Space(y, placed["y"])),
                "x": _scores(_Space(x, placed["x"]), given_y),
            }
    picture = {}
    if with_picture:
        sets = {
            "GT": (given_x.rows, given_y.rows),
            "Seed": (relative(x, x[seeds]), relative(y, y[seeds])),
            "Found": (given_x.rows, relative(y, free["Found"]["y"])),
        }
        picture = {"picture": picture_of(pair.x.keys, x, sets)}
    right = sum(left == other for left, other in discovery.pair_keys_)
    hidden = np.array([left == other for left, other in discovery.anchor_keys_])[~discovery.anchor_is_seed_]
    return {
        "scores": scores,
        "anchors_exact": float(hidden.mean()),
        "pairs_precision": right / max(len(discovery.pairs_), 1),
        "pairs_recall": right / len(pair.x),
        "health": discovery.health_.pairs.score,
        "verdict": discovery.health_.pairs.verdict,
        "seconds": seconds,
    } | picture


def _found_pairs(discovery: AnchorDiscovery, pair: SpacePair, task: Task) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pairs found, as rows of both spaces in the order of `pair`; all matches if no pair was certain enough."""
    pairs = discovery.pairs_
    if not len(pairs):
        pairs = np.stack([np.arange(len(discovery.match_)), discovery.match_], axis=1)
    return pairs[:, 0], pair.y.rows(task.y.keys[row] for row in pairs[:, 1].tolist())


def _scores(x: _Space, y: _Space) -> dict[str, dict[str, float]]:
    """Jaccard, MRR and cosine in all directions."""
    spaces = {"x": x, "y": y}
    scores = {}
    for direction in DIRECTIONS:
        source, target = (spaces[name] for name in direction.split("->"))
        found = neighbour_scores(source.near, source.near if source is target else source.nearest_in(target))
        cosine = float((source.rows * target.rows).sum(dim=1).mean())
        scores[direction] = {"jaccard": found.jaccard, "mrr": found.mrr, "cosine": cosine}
    return scores

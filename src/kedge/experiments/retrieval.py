"""The words and images experiments: the same things in two spaces, 15 known pairs; who finds whom?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.discovery import AnchorDiscovery
from kedge.discovery.anchors import place_free_anchors
from kedge.discovery.devices import resolve_device
from kedge.discovery.steps import OnStep
from kedge.experiments import published
from kedge.experiments.pairs_of_spaces import ANCHORS, SEEDS, SpacePair, Task, draw_task
from kedge.experiments.parts import OnPart, Parts, digest_of
from kedge.experiments.pictures import draw_picture, picture_of
from kedge.experiments.results import Result
from kedge.experiments.tables import Table, mean_and_spread, shown
from kedge.geometry import relative, unit
from kedge.matching import top_k
from kedge.tasks import retrieval_scores

K = 10
METRICS = ("jaccard", "mrr", "cosine")
DIRECTIONS = ("x->x", "x->y", "y->x", "y->y")
OPTIMISED = ("y", "x")
"""Which space's anchors are free; those of the other are given."""
OURS = ("GT", "Seed", "Found", "Paper's optimiser")


@dataclass(frozen=True)
class _Space:
    """Unit rows (n, a) of one space in relative coordinates, and each row's nearest (n, k)."""

    rows: Tensor
    near: Tensor

    @classmethod
    def relative_to(cls, vectors: Tensor, anchors: Tensor) -> _Space:
        """Rows (n, d) compared with anchors (a, d)."""
        rows = unit(relative(vectors, anchors))
        return cls(rows, top_k(rows, rows, K)[1])


def retrieval_state(
    pair: SpacePair,
    random_state: int,
    *,
    device: str = "auto",
    paper_optimiser: bool = False,
    with_picture: bool = False,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Discover from 15 seeds and score all sets of anchors, whichever space they are free in, both ways.

    A pair is a pair in both directions, so that one discovery serves for either space: its pairs place free anchors
    in the one or in the other. The paper's optimiser has to run once for each.
    """
    task = draw_task(pair, random_state)
    began = time.perf_counter()
    discovery = AnchorDiscovery(random_state=random_state, device=device, on_step=on_step)
    discovery.fit(task.x, task.y, task.seeds, anchors=task.anchors)
    seconds = time.perf_counter() - began

    def load(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(resolve_device(device))

    x, y = load(discovery.normalise_x(pair.x)), load(discovery.normalise_y(pair.y))
    anchors = load(pair.x.rows(task.anchors))
    pairs_x, pairs_y = (load(rows) for rows in _found_pairs(discovery, pair, task))
    free = {"Found": {"y": load(discovery.free_anchors_), "x": place_free_anchors(y[pairs_y], x[pairs_x], y[anchors])}}
    if paper_optimiser:
        by_paper = AnchorDiscovery(method="paper", random_state=random_state, device=device, on_step=on_step)
        free["Paper's optimiser"] = {
            optimised: load(by_paper.fit(source, target, task.seeds, anchors=task.anchors).free_anchors_)
            for optimised, source, target in (("y", task.x, task.y), ("x", task.y, task.x))
        }

    given_x, given_y = _Space.relative_to(x, x[anchors]), _Space.relative_to(y, y[anchors])
    seeds = anchors[:SEEDS]
    gt = _scores(given_x, given_y)
    seed = _scores(_Space.relative_to(x, x[seeds]), _Space.relative_to(y, y[seeds]))
    scores = {"GT": {"y": gt, "x": gt}, "Seed": {"y": seed, "x": seed}}
    for name, placed in free.items():
        scores[name] = {
            "y": _scores(given_x, _Space.relative_to(y, placed["y"])),
            "x": _scores(_Space.relative_to(x, placed["x"]), given_y),
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
        "health": discovery.health_.score,
        "verdict": discovery.health_.verdict,
        "seconds": seconds,
    } | picture


def _found_pairs(discovery: AnchorDiscovery, pair: SpacePair, task: Task) -> tuple[NDArray[Any], NDArray[Any]]:
    """The pairs found, as rows of both spaces in their common order; all matches where no pair was sure enough."""
    pairs = discovery.pairs_
    if not len(pairs):
        pairs = np.stack([np.arange(len(discovery.match_)), discovery.match_], axis=1)
    return pairs[:, 0], pair.y.rows(task.y.keys[row] for row in pairs[:, 1].tolist())


def _scores(x: _Space, y: _Space) -> dict[str, dict[str, float]]:
    """Jaccard, MRR and cosine of all directions."""
    across = {
        direction: asdict(retrieval_scores(source.rows, target.rows, K, near_source=source.near))
        for direction, source, target in (("x->y", x, y), ("y->x", y, x))
    }
    scores = across | {"x->x": _within(x), "y->y": _within(y)}
    return {direction: {metric: scores[direction][metric] for metric in METRICS} for direction in DIRECTIONS}


def _within(space: _Space) -> dict[str, float]:
    """A space against itself: everything is 1, but for rows that are the same in these coordinates."""
    itself = space.near == torch.arange(len(space.near), device=space.near.device)[:, None]
    rank = itself.int().argmax(dim=1) + 1
    return {
        "jaccard": 1.0,
        "mrr": float((itself.any(dim=1) / rank).mean()),
        "cosine": float(space.rows.square().sum(dim=1).mean()),
    }


# Whose published figures stand beside ours: pairs of the paper's kind.
Published = Mapping[tuple[str, str], Mapping[str, tuple[float, ...]]]
_PUBLISHED: dict[str, tuple[Published, str]] = {
    "files": (published.WORDS, published.WORDS_DATA),
    "medium": (published.WORDS, published.WORDS_DATA),
    "vit": (
        {(optimised, direction): rows for optimised in OPTIMISED for direction, rows in published.IMAGES.items()},
        published.IMAGES_DATA,
    ),
}


def retrieval_tables(
    pair: SpacePair, states: list[dict[str, Any]], theirs: Published, their_data: str
) -> tuple[list[Table], dict[str, Any]]:
    """The paper's table of a pair with its figures beside ours, one of how right the pairs are, and the summary.

    `theirs` are the paper's figures by optimised space and direction.
    """
    summary = summarise(states)
    names = {"x": pair.name_x, "y": pair.name_y}
    rows = []
    for optimised in OPTIMISED:
        for direction in DIRECTIONS:
            source, target = direction.split("->")
            cells = [
                shown([summary["scores"][name][optimised][direction][metric] for metric in METRICS])
                if name in summary["scores"]
                else "not run"
                for name in OURS
            ]
            beside = theirs.get((optimised, direction))
            cells += [published.shown(beside[name]) if beside else "" for name in published.ROWS if theirs]
            rows.append((names[optimised], f"{names[source]} → {names[target]}", *cells))
    columns = ("optimised", "source → target", *OURS, *(f"paper: {name}" for name in published.ROWS if theirs))
    title = f"{pair.name_x} x {pair.name_y}: {len(pair.x)} rows, {SEEDS} seeds, {ANCHORS} anchors, {len(states)} states"
    remarks = [
        f"Jaccard@{K} / MRR@{K} / cosine, mean over the random states, ± the largest standard deviation of the three."
    ]
    if theirs:
        remarks.append(f"The columns *paper* are published figures, from other data: {their_data}.")
    tables = [Table(title, columns, rows, remarks), _pairs_table(pair, states, summary)]
    return tables, {"rows": len(pair.x), "x": pair.name_x, "y": pair.name_y, "summary": summary, "states": states}


def _pairs_table(pair: SpacePair, states: list[dict[str, Any]], summary: dict[str, Any]) -> Table:
    columns = ("hidden anchors exact", "pairs: precision", "pairs: recall", "health", "aligned", "seconds a discovery")
    aligned = sum(state["verdict"] == "aligned" for state in states)
    cells = [shown([summary[name]]) for name in ("anchors_exact", "pairs_precision", "pairs_recall", "health")]
    cells += [f"{aligned} of {len(states)}", f"{max(state['seconds'] for state in states):.0f} (most)"]
    return Table(f"{pair.name_x} x {pair.name_y}: the pairs found", columns, [tuple(cells)])


def reproduce_retrieval(
    name: str,
    pairs: Sequence[SpacePair],
    out: Path,
    *,
    random_states: Sequence[int],
    device: str = "auto",
    paper_optimiser: bool = False,
    figures: bool = True,
    on_part: OnPart,
    on_step: OnStep | None = None,
) -> Result:
    """Run the words or the images experiment; finished parts are kept in `out`, and not done again.

    Parameters
    ----------
    name : str
        "words" or "images".
    pairs : sequence of SpacePair
    out : Path
        A folder.
    paper_optimiser : bool
        Whether to run the paper's optimiser too, which takes very long without a GPU.
    figures : bool
        Whether to draw the paper's figure, of words (needs `kedge[plot]`).
    """
    tables, details, pictures = [], {}, []
    for pair in pairs:
        settings = {"data": digest_of(pair.x, pair.y), "paper_optimiser": paper_optimiser, "seeds": SEEDS}
        parts = Parts(out / "parts", settings, on_part)
        states = []
        for state in random_states:
            state_of = partial(
                retrieval_state,
                pair,
                state,
                device=device,
                paper_optimiser=paper_optimiser,
                with_picture=name == "words",
                on_step=on_step,
            )
            states.append(parts.get(f"{name}-{pair.name}-state-{state}", state_of))
        drawn = [state.pop("picture") for state in states if "picture" in state][:1]
        for points in drawn if figures else []:
            pictures += draw_picture(points, pair.name_x, pair.name_y, out / f"{name}-{pair.name}")
        pair_tables, details[pair.name] = retrieval_tables(pair, states, *_PUBLISHED.get(pair.name, ({}, "")))
        tables += pair_tables
    return Result(name, tables, details, pictures)


def summarise(states: list[Any]) -> Any:
    """Mean and standard deviation of every number in records of one shape."""
    first = states[0]
    if isinstance(first, dict):
        return {
            name: summarise([state[name] for state in states])
            for name, value in first.items()
            if isinstance(value, dict | float | int)
        }
    return mean_and_spread(states)

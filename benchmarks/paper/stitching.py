"""One random state of a stitching experiment: train a classifier on one space, predict from the other."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.estimators import AnchorDiscovery, KnownAnchors
from kedge.solving.paper import PaperSettings
from kedge.solving.schedule import Schedule
from kedge.solving.steps import OnStep
from kedge.spaces import Embeddings
from kedge.tasks import Stitcher
from kedge.tasks.stitching import Coordinates, Space
from paper.pairs_of_spaces import ANCHORS, SEEDS, require_enough

# Texts without true counterparts never look aligned, and slower attempts would not help.
_ONE_ATTEMPT = Schedule()
_PAPER = PaperSettings(steps=125, learning_rate=0.05)


@dataclass(frozen=True)
class Side:
    """Vectors of one encoder: an unlabelled space to find anchors in, and labelled vectors for the heads."""

    name: str
    encoder: str
    space: Embeddings
    train: Embeddings
    train_labels: NDArray[Any]
    test: Embeddings
    test_labels: NDArray[Any]


@dataclass(frozen=True)
class StitchingTask:
    """Two sides, and parallel texts to draw anchors from.

    Anchors are given in `source` and free in `target`. `parallel_source` and `parallel_target` hold the same texts, row
    by row; texts drawn as anchors are added to the spaces if they are not in them.
    """

    name: str
    source: Side
    target: Side
    parallel_source: Embeddings
    parallel_target: Embeddings

    def __post_init__(self) -> None:
        require_enough(len(self.parallel_source), f"{self.name}: parallel texts")
        for side in (self.source, self.target):
            if not (len(set(side.train_labels.tolist())) > 1 and len(side.test)):
                raise InputError(
                    f"{self.name}, {side.name}: texts with at least two labels to train on and some to test on are "
                    f"needed, got {len(side.train)} and {len(side.test)}; give larger files or --limit"
                )

    @property
    def has_counterparts(self) -> bool:
        """Whether the spaces themselves hold the parallel texts, so that rows have true counterparts."""
        return self.parallel_source.keys[0] in self.source.space.row_of

    def spaces(self, random_state: int, count: int) -> tuple[Embeddings, Embeddings, list[tuple[str, str]]]:
        """Both spaces with `count` random parallel texts added, the target's rows shuffled, and the pairs of keys."""
        chance = np.random.default_rng(random_state)
        chosen = chance.choice(len(self.parallel_source), ANCHORS, replace=False)[:count]
        source = _joined(self.source.space, self.parallel_source.take(chosen))
        target = _joined(self.target.space, self.parallel_target.take(chosen))
        target = target.take(chance.permutation(len(target)))
        keys = ((self.parallel_source.keys[row], self.parallel_target.keys[row]) for row in chosen.tolist())
        return source, target, list(keys)


def stitching_state(
    task: StitchingTask,
    random_state: int,
    *,
    head: str = "mlp",
    device: str = "auto",
    paper_optimiser: bool = False,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Weighted F1 and MAE by set of anchors, decoder (trains the head) and encoder (gives its input)."""
    few = task.spaces(random_state, SEEDS)
    coordinates: dict[str, Coordinates] = {
        "GT": KnownAnchors().fit(*task.spaces(random_state, ANCHORS)),
        "Seed": KnownAnchors().fit(*few),
    }
    began = time.perf_counter()
    schedule = None if task.has_counterparts else _ONE_ATTEMPT
    found = AnchorDiscovery(whiten=0, random_state=random_state, schedule=schedule, device=device, on_step=on_step).fit(
        *few
    )
    seconds = time.perf_counter() - began
    coordinates["Found"] = found
    if paper_optimiser:
        coordinates["Paper's optimiser"] = AnchorDiscovery(
            method="paper", paper=_PAPER, whiten=0, random_state=random_state, device=device, on_step=on_step
        ).fit(*few)
    return {
        "scores": {name: _scores(task, each, head, random_state) for name, each in coordinates.items()},
        "health": found.health_.map.score,
        "verdict": found.health_.map.verdict,
        "seconds": seconds,
    }


def _scores(task: StitchingTask, coordinates: Coordinates, head: str, random_state: int) -> dict[str, dict[str, float]]:
    sides: tuple[tuple[Space, Side], ...] = (("x", task.source), ("y", task.target))
    scores: dict[str, dict[str, float]] = {}
    for space, decoder in sides:
        stitcher = Stitcher(coordinates, head=head, space=space, random_state=random_state)
        stitcher.fit(decoder.train, decoder.train_labels)
        for read, encoder in sides:
            score = asdict(stitcher.score(encoder.test, encoder.test_labels, read))
            named = f"{decoder.name}<-{encoder.name}"
            scores[named] = {metric: value for metric, value in score.items() if value is not None}
    return scores


def _joined(space: Embeddings, more: Embeddings) -> Embeddings:
    """Add rows to a space, except those whose keys it already has."""
    new = [row for row, key in enumerate(more.keys) if key not in space.row_of]
    if not new:
        return space
    return Embeddings(
        [*space.keys, *(more.keys[row] for row in new)],
        np.concatenate([space.vectors, more.vectors[new]]),
        space.source,
    )

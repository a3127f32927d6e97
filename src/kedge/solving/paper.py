"""The paper's own optimiser: Adam over free anchors on the sphere, the match re-estimated at every step.

Notation as in the paper: A_X are the anchors of X, R_X = rr(X, A_X), A~_Y the free anchors, Pi the match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from kedge.errors import InputError
from kedge.geometry import center_of, exponential_map, normalise, orthogonal_map, relative, unit
from kedge.matching import BlockedSoftmin, Problem, match_csls, sinkhorn
from kedge.solving.alignment import Alignment
from kedge.solving.starts import match_by_seeds
from kedge.solving.steps import Log, Step

PaperInit = Literal["seeds", "random"]


@dataclass(frozen=True)
class PaperSettings:
    """The paper's settings for retrieval; for stitching it uses 125 steps at rate 0.05."""

    steps: int = 250
    learning_rate: float = 0.02
    sinkhorn_epsilon: float = 1e-4
    sinkhorn_steps: int = 1
    sinkhorn_stop: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("steps", "learning_rate", "sinkhorn_epsilon", "sinkhorn_steps"):
            if not getattr(self, name) > 0:
                raise InputError(f"PaperSettings: {name} must be positive, got {getattr(self, name)}")


def solve_as_printed(
    problem: Problem,
    anchors: Tensor,
    init: PaperInit,
    settings: PaperSettings,
    generator: torch.Generator,
    log: Log,
) -> Alignment:
    """Optimise the free anchors, and match all rows by their relative representations."""
    x, y = problem.x, problem.y
    free = optimise_anchors(problem, anchors, init, settings, generator, log)
    match = match_csls(unit(relative(x, x[anchors])), unit(relative(y, free)), budget=problem.budget)
    return Alignment(match, _loss_settled(log.history), free_anchors=free)


def optimise_anchors(
    problem: Problem,
    anchors: Tensor,
    init: PaperInit,
    settings: PaperSettings,
    generator: torch.Generator,
    log: Log,
) -> Tensor:
    """Free anchors (a, dy) for the anchors (a,), rows of X; the log gets the loss of every step."""
    x, y = problem.x, problem.y
    relative_x = relative(x, x[anchors])  # R_X (n, a)
    base = _initial_anchors(problem, anchors, init, generator)
    tangent = torch.zeros_like(base, requires_grad=True)
    optimiser = torch.optim.Adam([tangent], lr=settings.learning_rate)
    for index in range(1, settings.steps + 1):
        relative_y = relative(y, exponential_map(base, tangent))  # R_Y (m, a)
        match = _permutation(relative_y.detach(), relative_x, settings, problem.budget)
        loss = torch.nn.functional.mse_loss(relative_y, relative_x[match])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        log.report("paper", index, settings.steps, loss=float(loss.detach()))
    return exponential_map(base, tangent).detach()


def _center(rows: Tensor) -> Tensor:
    return normalise(rows, center_of(rows))


def _loss_settled(history: Sequence[Step]) -> bool:
    """Whether the loss changed by less than 1 % over the last ten steps; the paper takes all steps regardless."""
    losses = [step.figures["loss"] for step in history]
    return len(losses) > 10 and abs(losses[-1] - losses[-11]) < 0.01 * losses[-11]


def _permutation(relative_y: Tensor, relative_x: Tensor, settings: PaperSettings, budget: int) -> Tensor:
    """Pi: for every row of Y, the row (m,) of X to which the Sinkhorn plan sends the most of it."""
    softmin = BlockedSoftmin(relative_y, relative_x, "euclidean", budget=budget)
    plan = sinkhorn(
        softmin,
        settings.sinkhorn_epsilon,
        max_iter=settings.sinkhorn_steps,
        stop_threshold=settings.sinkhorn_stop,
    )
    return softmin.partners(plan.g)


def _initial_anchors(problem: Problem, anchors: Tensor, init: PaperInit, generator: torch.Generator) -> Tensor:
    """A~_Y (a, dy) at the start: the rows of Y for seeds, and noise or the rotation of the seeds for other anchors."""
    x, y = problem.x, problem.y
    if init == "random":
        start = torch.randn(len(anchors), y.shape[1], generator=generator).to(y)
    else:
        matchable = problem
        if not problem.centered:  # the seed coordinates of uncentered rows are all alike
            matchable = replace(problem, x=_center(x), y=_center(y))
        rows_x, rows_y = match_by_seeds(matchable).pairs()
        start = x[anchors] @ orthogonal_map(x[rows_x], y[rows_y])
    partners = problem.seed_partners(anchors)
    seeded = partners >= 0
    if init == "random" and not bool(seeded.any()):
        raise InputError("method 'paper' with init 'random' needs seeds among the anchors; add them to the anchor keys")
    start[seeded] = y[partners[seeded]]
    return unit(start)

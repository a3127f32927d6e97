"""Did it work? Judged without labels, by whether the pairs predict each other.

The found pairs are split in two halves, and a map is fitted to each. A row *agrees* when the map that never
saw it sends it to the partner it was given. Where the spaces are aligned, the halves tell the same story and
nearly all rows agree; a self-made illusion does not carry over from one half to the other. How much agreement
such an illusion still reaches is measured on the same two spaces, by matching them from a random rotation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor

from kedge.discovery.alignment import fit_map
from kedge.discovery.problem import Problem
from kedge.discovery.steps import OnStep, Step
from kedge.geometry import unit
from kedge.matching import Match, match_csls, row_blocks

Verdict = Literal["aligned", "doubtful", "not aligned"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_ALIGNED, _DOUBTFUL = 0.6, 0.35
_SAMPLE = 4000
_CHANCE_STARTS, _CHANCE_ROUNDS = 3, 6
# Fewer mutual pairs than this say nothing, however well they agree.
_FEWEST_PAIRS = 20


@dataclass(frozen=True)
class Health:
    """The label-free answer: `score` in [0, 1], a verdict, and one sentence each of reason and advice.

    `agreement` is the share of rows that the half of the pairs they are not in predicts; `chance` the most that
    random starts reach on the same spaces; `mutual` the share of rows in mutual pairs.
    """

    score: float
    verdict: Verdict
    reason: str
    advice: str
    agreement: float
    chance: float
    mutual: float


@dataclass(frozen=True)
class Judgement:
    """The health of a match, and what a margin is worth: `confidence` maps margins to probabilities."""

    health: Health
    confidence: Callable[[NDArray[np.float32]], NDArray[np.float32]]


def judge(problem: Problem, match: Match, generator: torch.Generator, on_step: OnStep) -> Judgement:
    """Judge a match of all rows of the problem."""
    steps = _CHANCE_STARTS + 2
    sample, sample_match = _sample_of_match(problem, match, generator)
    agreement = _agreement_rate(sample, sample_match, generator)
    on_step(Step("judge", 1, steps, {"agreement": agreement or 0.0}))
    by_chance = []
    for start in range(_CHANCE_STARTS):
        by_chance.append(_agreement_rate(sample, _match_by_chance(sample, generator), generator))
        on_step(Step("judge", 2 + start, steps, {"agreement": agreement or 0.0, "chance": by_chance[-1] or 0.0}))
    mutual = float(match.mutual.float().mean())
    health = _health(agreement, [rate for rate in by_chance if rate is not None], mutual)
    confidence = _calibrate(problem, match, health, generator)
    on_step(Step("judge", steps, steps, {"health": health.score}))
    return Judgement(health, confidence)


def _held_out_agreement(
    problem: Problem, match: Match, probes: Tensor, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Mask (p,) of the probed rows (p,) of X that a map fitted without them sends to their partner.

    Also returns how many pairs the smaller half had.
    """
    in_first = (torch.rand(len(problem.x), generator=generator) < 0.5).to(problem.x.device)
    rows_x, rows_y = match.pairs()
    agrees = torch.zeros(len(probes), dtype=torch.bool, device=probes.device)
    half_sizes = []
    for train_mask, test_mask in ((in_first, ~in_first), (~in_first, in_first)):
        train = train_mask[rows_x]
        half_sizes.append(int(train.sum()))
        held_out_map = fit_map(problem, rows_x[train], rows_y[train])
        tested = test_mask[probes].nonzero(as_tuple=True)[0]
        rows = probes[tested]
        for block_rows, block in row_blocks(unit(problem.x[rows] @ held_out_map), problem.y, problem.budget):
            best = block.sub_(match.column_hubness).argmax(dim=1)
            agrees[tested[block_rows]] = best == match.partner[rows[block_rows]]
    return agrees, min(half_sizes)


def _sample_of_match(problem: Problem, match: Match, generator: torch.Generator) -> tuple[Problem, Match]:
    """A part of the problem small enough to compare with chance: rows of X together with their partners."""
    drawn = torch.randperm(len(problem.x), generator=generator)[:_SAMPLE].to(problem.x.device)
    partners = torch.unique(match.partner[drawn])
    if len(partners) < min(_SAMPLE, len(problem.y)):  # fill up, so that rows keep rivals
        others = torch.randperm(len(problem.y), generator=generator)[:_SAMPLE].to(problem.y.device)
        partners = torch.unique(torch.cat([partners, others]))
    sample = replace(_without_seeds(problem), x=problem.x[drawn], y=problem.y[partners])
    return sample, Match(
        torch.searchsorted(partners, match.partner[drawn]),
        match.margin[drawn],
        match.column_hubness[partners],
    )


def _without_seeds(problem: Problem) -> Problem:
    """The seeds would pull both halves, and chance, towards the same map."""
    nobody = problem.seeds_x[:0]
    return replace(problem, seeds_x=nobody, seeds_y=nobody)


def _match_by_chance(problem: Problem, generator: torch.Generator) -> Match:
    """What the hard alternation makes of these spaces from a random rotation."""
    noise = torch.randn(problem.x.shape[1], problem.y.shape[1], generator=generator, dtype=torch.float64)
    left, _, right = torch.linalg.svd(noise, full_matrices=False)
    current = (left @ right).to(problem.x)
    for _ in range(_CHANCE_ROUNDS - 1):
        match = match_csls(unit(problem.x @ current), problem.y, budget=problem.budget)
        current = fit_map(problem, *match.pairs())
    return match_csls(unit(problem.x @ current), problem.y, budget=problem.budget)


def _agreement_rate(problem: Problem, match: Match, generator: torch.Generator) -> float | None:
    """Share of the rows in mutual pairs that agree; None where there are too few pairs to tell."""
    rows, _ = match.pairs()
    agrees, smaller_half = _held_out_agreement(problem, match, rows, generator)
    return float(agrees.float().mean()) if smaller_half >= _FEWEST_PAIRS else None


def _above_chance(rate: NDArray[np.float64] | float, chance: float) -> NDArray[np.float64]:
    return np.clip((np.asarray(rate) - chance) / max(1 - chance, 1e-6), 0, 1)


def _calibrate(
    problem: Problem, match: Match, health: Health, generator: torch.Generator
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """P(spaces aligned) times how often rows of a given margin agree, less what chance explains.

    The first factor is a ramp over the doubtful scores, the second a rising function of the margin.
    """
    aligned = np.clip((health.score - _DOUBTFUL) / (_ALIGNED - _DOUBTFUL), 0, 1)
    probes = torch.randperm(len(problem.x), generator=generator)[:_SAMPLE].to(problem.x.device)
    agrees, _ = _held_out_agreement(_without_seeds(problem), match, probes, generator)
    margins = match.margin[probes].double().cpu().numpy()
    order = np.argsort(margins, kind="stable")
    rate = isotonic_regression(agrees.double().cpu().numpy()[order]).x
    corrected = aligned * _above_chance(rate, health.chance)

    def confidence(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.interp(values, margins[order], corrected).astype(np.float32)

    return confidence


def _health(agreement: float | None, by_chance: list[float], mutual: float) -> Health:
    """The verdict; `agreement`, and what random starts reached, may be missing for want of pairs."""
    if agreement is None:
        return Health(
            score=0.0,
            verdict="doubtful",
            reason=f"Nothing can be said: there are fewer than {_FEWEST_PAIRS} pairs in a half of what was judged.",
            advice="Give more rows of both spaces; look at the pairs yourself.",
            agreement=0.0,
            chance=0.0,
            mutual=mutual,
        )
    chance = max(by_chance, default=0.0)
    score = float(_above_chance(agreement, chance))
    told = f"{agreement:.0%} of the pairs are predicted by the others"
    told += f", where a random start reaches {chance:.0%}" if by_chance else ""
    if score >= _DOUBTFUL and not by_chance:
        verdict: Verdict = "doubtful"
        reason = f"Chance could not be measured on so few rows: {told}."
        advice = "Give more rows of both spaces; look at the pairs yourself."
    elif score >= _ALIGNED:
        verdict = "aligned"
        reason = f"The pairs support each other: {told}."
        advice = "Use pairs of high confidence first, and look at a few of them."
    elif score >= _DOUBTFUL:
        verdict = "doubtful"
        reason = f"The pairs support each other only in part: {told}."
        advice = "Check a sample of the pairs by eye; give more seeds, or leave out rows that have no counterpart."
    else:
        verdict = "not aligned"
        reason = f"The pairs do not support each other: {told}."
        advice = "Give more seeds, check that the seeds are right, and that both files hold the same kind of things."
    return Health(score, verdict, reason, advice, agreement, chance, mutual)

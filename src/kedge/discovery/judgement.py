"""Did it work? Judged without labels, by whether the pairs predict each other.

The found pairs are split in two halves, and a pair model is fitted to each. A row *agrees* when the model that never
saw it gives it the partner it was given. Where the spaces are aligned, the halves tell the same story and
nearly all rows agree; a self-made illusion does not carry over from one half to the other. How much agreement
such an illusion still reaches is measured on the same two spaces, by the same method from random rotations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, get_args

import torch
from torch import Tensor

from kedge.discovery.alignment import Turned, fit_model, read_rows
from kedge.discovery.annealing import anneal, finish, leading_axes
from kedge.discovery.journal import Journal
from kedge.discovery.problem import Problem
from kedge.discovery.schedule import Schedule
from kedge.discovery.steps import Step
from kedge.geometry import orthogonal_map, unit
from kedge.matching import Match, Rows, hubness, row_blocks

Verdict = Literal["aligned", "doubtful", "not aligned"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ALIGNED, DOUBTFUL = 0.3, 0.15
"""Least scores of the two better verdicts. Unrelated spaces stay below 0.1 as a rule; noise in few dimensions has
reached 0.17.
"""

_SAMPLE = 4000
_CHANCE_STARTS = 3
_CHANCE_SCHEDULE = Schedule(sample_size=_SAMPLE, anneal_rounds=15, finish_rounds=5)
# Fewer mutual pairs than this say nothing, however well they agree.
_FEWEST_PAIRS = 20
# Seeds that are enough for most pairs of spaces.
_ENOUGH_SEEDS = 15
_CENTRE = "Centre the spaces: uncentred rows are all alike."


@dataclass(frozen=True)
class Health:
    """The label-free answer: `score` in [0, 1], a verdict, and one sentence each of reason and advice.

    `agreement` is the share of pairs that the half of the pairs they are not in predicts; `chance` the most that
    random starts reach on the same spaces (either is None where there are too few rows to measure it); `mutual` the
    share of rows in mutual pairs.
    """

    score: float
    verdict: Verdict
    reason: str
    advice: str
    agreement: float | None
    chance: float | None
    mutual: float


class Judge:
    """Judges matches of one problem; what chance reaches on it is measured once, when first asked for.

    The same match always gets the same judgement.
    """

    def __init__(self, problem: Problem, random_state: int, journal: Journal) -> None:
        self._problem = problem
        self._random_state = random_state
        self._journal = journal

    def health(self, match: Match) -> Health:
        """Whether a match of all rows is right, by and large."""
        by_chance = self._by_chance
        sample, sample_match = _sample_of_match(self._problem, match, self._generator())
        agreement = _agreement_rate(sample, sample_match, self._generator())
        return _health(agreement, by_chance, float(match.mutual.float().mean()), self._problem)

    @cached_property
    def _by_chance(self) -> list[float]:
        """Agreement after a few random starts, where there are enough pairs to tell."""
        sample = self._problem.without_seeds().sample(_SAMPLE, self._generator())
        axes_x, axes_y = (leading_axes(rows, _CHANCE_SCHEDULE.rank) for rows in (sample.x, sample.y))
        x, y = unit(sample.x.gathered() @ axes_x), unit(sample.y.gathered() @ axes_y)
        kept = self._journal.recall("chance", x.device)
        rates = [] if kept is None else kept["rates"].tolist()
        for number in range(len(rates) + 1, _CHANCE_STARTS + 1):
            generator = torch.Generator().manual_seed((self._random_state + number) % 2**63)
            rotation = partial(_random_rotation, x, y, generator)
            annealed = anneal(sample, x, y, rotation, _CHANCE_SCHEDULE, Journal())
            start = partial(Turned, axes_x @ annealed, axes_y)
            match = finish(sample, start, _CHANCE_SCHEDULE.finish_rounds, Journal()).match
            rate = _agreement_rate(sample, match, generator)
            rates.append(math.nan if rate is None else rate)
            self._journal.tell(Step("chance", number, _CHANCE_STARTS, {"agreement": rate or 0.0}))
            self._journal.keep("chance", rates=torch.tensor(rates, dtype=torch.float64))
        return [rate for rate in rates if not math.isnan(rate)]

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self._random_state)


def _random_rotation(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """A rotation (dx, dy) that knows nothing."""
    rows = max(x.shape[1], y.shape[1])
    left, right = (torch.randn(rows, space.shape[1], generator=generator).to(space) for space in (x, y))
    return orthogonal_map(left, right)


def _held_out_agreement(problem: Problem, match: Match, generator: torch.Generator) -> tuple[Tensor, int]:
    """Mask (p,) of the pairs that a model fitted without them predicts, and how many the smaller half had.

    The problem is a sample, which every process holds.
    """
    in_first = (torch.rand(len(problem.x), generator=generator) < 0.5).to(problem.x.device)
    rows_x, rows_y = match.pairs()
    agrees = torch.zeros(len(rows_x), dtype=torch.bool, device=rows_x.device)
    ridge = fit_model(problem, rows_x, rows_y).ridge
    half_sizes = []
    for train in (in_first[rows_x], ~in_first[rows_x]):
        half_sizes.append(int(train.sum()))
        x, y = read_rows(problem, fit_model(problem, rows_x[train], rows_y[train], ridge))
        tested = (~train).nonzero(as_tuple=True)[0]
        queries = Rows.shared(x.take(rows_x[tested]))
        hubs = hubness(y, x, budget=problem.budget)
        blocks = row_blocks(queries.own, y.gathered(), problem.budget, bias=-hubs)
        best = torch.cat([rows_y[:0], *(block.argmax(dim=1) for _, block in blocks)])
        agrees[tested] = queries.joined(best) == rows_y[tested]
    return agrees, min(half_sizes)


def _agreement_rate(problem: Problem, match: Match, generator: torch.Generator) -> float | None:
    """Share of the pairs that agree; None where there are too few to tell."""
    agrees, smaller_half = _held_out_agreement(problem, match, generator)
    return float(agrees.float().mean()) if smaller_half >= _FEWEST_PAIRS else None


def _sample_of_match(problem: Problem, match: Match, generator: torch.Generator) -> tuple[Problem, Match]:
    """A part of the problem small enough to compare with chance: rows of X together with their partners.

    Without the seeds: they would pull both halves towards the same map.
    """
    drawn = torch.randperm(len(problem.x), generator=generator)[:_SAMPLE].to(problem.x.device)
    partners = torch.unique(match.partner[drawn])
    if len(partners) < min(_SAMPLE, len(problem.y)):  # fill up, so that rows keep rivals
        others = torch.randperm(len(problem.y), generator=generator).to(problem.y.device)
        others = others[~torch.isin(others, partners)][: _SAMPLE - len(partners)]
        partners = torch.unique(torch.cat([partners, others]))
    sample = replace(
        problem.without_seeds(), x=Rows.shared(problem.x.take(drawn)), y=Rows.shared(problem.y.take(partners))
    )
    return sample, Match(
        torch.searchsorted(partners, match.partner[drawn]),
        match.margin[drawn],
        match.column_hubness[partners],
    )


def _health(agreement: float | None, by_chance: list[float], mutual: float, problem: Problem) -> Health:
    """The verdict; `agreement`, and what random starts reached, may be missing for want of pairs."""
    if agreement is None:
        return Health(
            score=0.0,
            verdict="doubtful",
            reason=f"Nothing can be said: there are fewer than {_FEWEST_PAIRS} pairs in a half of what was judged.",
            advice=_more_rows(problem),
            agreement=None,
            chance=None,
            mutual=mutual,
        )
    chance = max(by_chance, default=0.0)
    score = min(max((agreement - chance) / max(1 - chance, 1e-6), 0.0), 1.0)
    told = f"{agreement:.0%} of the pairs are predicted by the others"
    told += f", where a random start reaches {chance:.0%}" if by_chance else ""
    verdict: Verdict
    if score >= DOUBTFUL and not by_chance:
        score, verdict = DOUBTFUL, "doubtful"
        reason = f"Chance could not be measured on so few rows: {told}."
        advice = _more_rows(problem)
    elif score >= ALIGNED:
        verdict = "aligned"
        reason = f"The pairs support each other: {told}."
        advice = "Use pairs of high confidence first, and look at a few of them."
    elif score >= DOUBTFUL:
        verdict = "doubtful"
        reason = f"The pairs support each other only in part: {told}."
        advice = f"Check a sample of the pairs by eye; the spaces may share too few items. {_remedy(problem)}"
    else:
        verdict = "not aligned"
        reason = f"The pairs do not support each other: {told}."
        advice = _remedy(problem)
    return Health(score, verdict, reason, advice, agreement, chance if by_chance else None, mutual)


def _more_rows(problem: Problem) -> str:
    """What helps where there are too few pairs to judge by."""
    return "Give more rows of both spaces; look at the pairs yourself." if problem.centred else _CENTRE


def _remedy(problem: Problem) -> str:
    """What helps most often, given what was done."""
    if not problem.centred:
        return _CENTRE
    if len(problem.seeds_x) < _ENOUGH_SEEDS:
        return f"Give more seeds: there were {len(problem.seeds_x)}, {_ENOUGH_SEEDS} are enough for most spaces."
    return "Give more seeds, check that they are right, and that both files hold the same kind of things."

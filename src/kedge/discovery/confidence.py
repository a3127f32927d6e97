"""How sure is a pair? A probability for every row, measured on the two spaces themselves.

Two things make a naive answer too sure. *The map has seen the pairs*: it was fitted to them, the wrong ones
included, and makes them look good. So every row is mapped by a map fitted without its own pair (cross-fitting), and
matched again. *Rows without a counterpart find somebody too.* How often, and by what margin, is measured: the
partners of some rows are taken away, and whatever pairs those rows enter now are false. A row that is in no pair has
either no counterpart or none it can recognise; if a share q of such rows enters a false pair, then u unpaired rows
stand for u q / (1 - q) false pairs. Their margins are those of the false pairs just seen, so that the share of false
pairs at a margin is a ratio of two histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from kedge.discovery.alignment import map_from, pair_moments
from kedge.discovery.journal import Journal, match_from, match_state
from kedge.discovery.judgement import ALIGNED, DOUBTFUL, Health
from kedge.discovery.problem import Problem
from kedge.discovery.steps import Step
from kedge.geometry import Moments, unit
from kedge.matching import Match, Rows, match_csls

_FOLDS = 10
# This share of the pairs loses its partner at a time, until so many have.
_TAKEN_SHARE = 0.2
_TAKEN = 2000
_BINS = 20
# Rows that are in no pair: how often their candidate is right all the same, as a share of how often the least sure
# pair is, depending on whether it is in a pair with another row. Seen on words and images; the one thing here that is
# not measured on the spaces at hand.
_UNCLAIMED, _CLAIMED = 0.7, 0.2


@dataclass(frozen=True)
class Confidence:
    """A match of all rows by maps that had not seen them (any match, where it is worth nothing), and what it is worth.

    `paired` (n,) is the probability that a row's partner is right if the two are a mutual pair, `least` that of
    the least sure pair.
    """

    match: Match
    paired: NDArray[np.float32]
    least: float

    def of(self, rows_x: NDArray[np.int64], rows_y: NDArray[np.int64]) -> NDArray[np.float32]:
        """Probabilities (k,) that rows (k,) of X and of Y belong together, whether or not they are pairs."""
        partner, mutual = self.match.partner.cpu().numpy(), self.match.mutual.cpu().numpy()
        claimed_y = np.isin(rows_y, partner[mutual])
        unpaired = self.least * np.where(claimed_y, _CLAIMED, _UNCLAIMED)
        in_a_pair = np.where(
            partner[rows_x] == rows_y, self.paired[rows_x], np.minimum(1 - self.paired[rows_x], self.least)
        )
        return np.where(mutual[rows_x], in_a_pair, unpaired).astype(np.float32)


def measure_confidence(
    problem: Problem, match: Match, health: Health, generator: torch.Generator, journal: Journal
) -> Confidence:
    """Match again by maps that had not seen the rows, and measure what the margins are worth."""
    # What the pairs are worth if the spaces are aligned, times whether they are.
    trust = float(np.clip((health.score - DOUBTFUL) / (ALIGNED - DOUBTFUL), 0, 1))
    if trust == 0:
        return Confidence(match, np.zeros(len(problem.x), dtype=np.float32), 0.0)
    mapped = cross_fitted(problem, match, generator)
    state = journal.once(
        "confidence",
        problem.y.device,
        lambda: match_state(match_csls(mapped, problem.y, budget=problem.budget)),
    )
    honest = match_from(state)
    rows, partners = honest.pairs()
    if not len(rows):
        return Confidence(honest, np.zeros(len(problem.x), dtype=np.float32), 0.0)
    per_round = max(1, int(_TAKEN_SHARE * len(rows)))
    rounds = min(5, -(-_TAKEN // per_round))
    journal.tell(Step("confidence", 1, rounds + 1))
    kept = journal.recall("false-pairs", rows.device)
    done, false_margins = (0, rows.new_empty(0).double()) if kept is None else (int(kept["round"]), kept["margins"])
    for index in range(rounds):
        bereft = torch.randperm(len(rows), generator=generator)[:per_round].to(rows.device)
        if index < done:
            continue
        without = match_csls(mapped, problem.y.without(partners[bereft]), budget=problem.budget)
        margins = without.margin[rows[bereft]]
        false_margins = torch.cat([false_margins, margins[margins > 0].double()])
        journal.tell(Step("confidence", 2 + index, rounds + 1))
        journal.keep("false-pairs", round=index + 1, margins=false_margins)
    at, probabilities = _probabilities(
        honest.margin[rows].double().cpu().numpy(),
        false_margins.cpu().numpy(),
        taken=per_round * rounds,
        unpaired=len(problem.x) - len(rows),
    )
    paired = trust * np.interp(honest.margin.double().cpu().numpy(), at, probabilities)
    return Confidence(honest, paired.astype(np.float32), trust * float(probabilities[0]))


def cross_fitted(problem: Problem, match: Match, generator: torch.Generator) -> Rows:
    """Unit rows (n, dy): every row of X sent through a map that was fitted without its own pair.

    Without the seeds: a wrong one must not speak for itself.
    """
    fold = torch.randint(_FOLDS, (len(problem.x),), generator=generator).to(problem.x.device)
    rows_x, rows_y = match.pairs()
    of_folds = [pair_moments(problem, rows_x[fold[rows_x] == i], rows_y[fold[rows_x] == i]) for i in range(_FOLDS)]
    of_all = reduce(Moments.__add__, of_folds)
    own = problem.y.own.new_empty(len(problem.x.own), problem.y.dim)
    for index, left_out in enumerate(of_folds):
        inside = fold[problem.x.span] == index
        own[inside] = unit(problem.x.own[inside] @ map_from(of_all - left_out))
    return Rows.divided(own, len(problem.x))


def _probabilities(
    margins: NDArray[np.float64], false_margins: NDArray[np.float64], *, taken: int, unpaired: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Margins, ascending, and the probability that a pair with that margin is right, never falling.

    Parameters
    ----------
    margins : float array, shape (p,)
        Of the pairs.
    false_margins : float array, shape (f,)
        Of the pairs that rows entered whose partner was taken away.
    taken : int
        How many partners were taken away.
    unpaired : int
        How many rows are in no pair.
    """
    found_another = min(len(false_margins) / taken, 0.99)
    weight = unpaired * found_another / (1 - found_another) / max(len(false_margins), 1)
    edges = np.quantile(margins, np.linspace(0, 1, min(_BINS, len(margins)) + 1))
    edges[0], edges[-1] = -np.inf, np.inf
    edges = np.unique(edges)
    counts = np.histogram(margins, edges)[0]
    totals, false_counts = (
        np.histogram(*of, weights=by)[0] for of, by in (((margins, edges), margins), ((false_margins, edges), None))
    )
    filled = counts > 0
    counts, totals, false_counts = counts[filled], totals[filled], false_counts[filled]
    false_share = np.clip(weight * false_counts / counts, 0, 1)
    share = isotonic_regression(false_share, weights=counts, increasing=False).x
    return totals / counts, 1 - share

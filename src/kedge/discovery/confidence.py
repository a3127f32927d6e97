"""How sure is a pair? A probability for every row, measured on the two spaces themselves.

Two things make a naive answer too sure. *The pair model has seen the pairs*: it was fitted to them, the wrong ones
included, and makes them look good. So every row is read by a model fitted without its own pair (cross-fitting), and
matched again. *Rows without a counterpart find somebody too.* How often, and by what margin, is measured: some rows of
either space are taken away, the others matched, the model fitted and the rows matched again as before; whatever pairs
the rows that lost their partners enter now are false, as believed in as any false pair is. A row that is in no pair has
either no counterpart or none it can recognise; if a share q of such rows enters a false pair, then u unpaired rows
stand for u q / (1 - q) false pairs. Their margins are those of the false pairs just seen, so that the share of false
pairs at a margin is a ratio of two histograms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor

from kedge.discovery.alignment import fit_model, pair_moments, read_rows
from kedge.discovery.journal import Journal, match_from, match_state
from kedge.discovery.judgement import ALIGNED, DOUBTFUL, Health
from kedge.discovery.problem import Problem
from kedge.discovery.steps import Step
from kedge.geometry import Moments
from kedge.matching import Match, Rows, match_csls, processes

_FOLDS = 10
# This share of the pairs loses its partner at a time, until so many have.
_TAKEN_SHARE = 0.15
_TAKEN = 1500
_BINS = 20
# Rounds in which rows that lost their partners come to believe in others.
_BELIEVING = 2
# Rows that are in no pair: how often their candidate is right all the same, as a share of how often the least sure
# pair is, depending on whether it is in a pair with another row. Seen on words and images; the one thing here that is
# not measured on the spaces at hand.
_UNCLAIMED, _CLAIMED = 0.7, 0.2


@dataclass(frozen=True)
class Confidence:
    """A match of all rows by models that had not seen them, and what it is worth.

    `paired` (n,) is the probability that a row's partner is right if the two are a mutual pair, `least` that of
    the least sure pair. In the match seeds are pairs; `unaided` (n,) are the partners that rows have without them.
    `trust` is whether the spaces are aligned at all, which all probabilities count in.
    """

    match: Match
    paired: NDArray[np.float32]
    least: float
    unaided: Tensor
    trust: float

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
    problem: Problem,
    honest: HonestRows,
    guesses: Tensor,
    seeds: tuple[Tensor, Tensor],
    health: Health,
    journal: Journal,
) -> Confidence:
    """Match rows as read by models that had not seen their pairs, and measure what the margins are worth.

    Rows that are in no pair keep their partner of the match before, `guesses` (n,): it is as good a guess as any.
    Seeds, rows (s,) of X and of Y, are pairs whatever the match says, unless nothing is to be trusted.
    """
    # What the pairs are worth if the spaces are aligned, times whether they are.
    trust = float(np.clip((health.score - DOUBTFUL) / (ALIGNED - DOUBTFUL), 0, 1))
    state = journal.once("confidence", problem.y.device, lambda: match_state(honest.match()))
    match = match_from(state)
    match = replace(match, partner=torch.where(match.mutual, match.partner, guesses))
    rows, partners = match.pairs()
    if trust == 0 or not len(rows):
        return Confidence(match, np.zeros(len(problem.x), dtype=np.float32), 0.0, match.partner, 0.0)
    false_margins, taken = _false_margins(problem, rows, partners, journal)
    at, probabilities = _probabilities(
        match.margin[rows].double().cpu().numpy(),
        false_margins.cpu().numpy(),
        taken=taken,
        unpaired=len(problem.x) - len(rows),
    )
    given = _with_seeds(match, *seeds)
    paired = trust * np.interp(given.margin.double().cpu().numpy(), at, probabilities)
    paired[seeds[0].cpu().numpy()] = 1.0
    return Confidence(given, paired.astype(np.float32), trust * float(probabilities[0]), match.partner, trust)


def _false_margins(problem: Problem, rows: Tensor, partners: Tensor, journal: Journal) -> tuple[Tensor, int]:
    """Margins (f,) of the pairs that rows enter whose partners were taken away, and how many rows that was done to.

    Of the pairs (p,), some lose their row of Y, and others their row of X: as many, if as many rows of Y as of X are in
    no pair, so that the bereft find as much company as rows without a counterpart do.
    """
    per_round = max(1, int(_TAKEN_SHARE * len(rows)))
    alone_x, alone_y = len(problem.x) - len(rows), len(problem.y) - len(rows)
    company = round(per_round * min(1.0, alone_y / max(alone_x, 1)))
    rounds = min(5, -(-_TAKEN // per_round))
    journal.tell(Step("confidence", 1, rounds + 1))
    kept = journal.recall("false-pairs", rows.device)
    done, margins = (0, rows.new_empty(0).double()) if kept is None else (int(kept["round"]), kept["margins"])
    for index in range(done, rounds):
        generator = torch.Generator().manual_seed(index)
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        bereft, orphaned, others = order.tensor_split((per_round, per_round + company))
        left = problem.without_seeds().without(rows[orphaned], partners[bereft])
        place_x, place_y = _places(len(problem.x), rows[orphaned]), _places(len(problem.y), partners[bereft])
        pairs = place_x[rows[others]], place_y[partners[others]]
        for _ in range(_BELIEVING):
            pairs = match_csls(*read_rows(left, fit_model(left, *pairs)), budget=left.budget).pairs()
        match = cross_fitted(left, *pairs, generator).match()
        found = match.margin[place_x[rows[bereft]]]
        margins = torch.cat([margins, found[found > 0].double()])
        journal.tell(Step("confidence", 2 + index, rounds + 1))
        journal.keep("false-pairs", round=index + 1, margins=margins)
    return margins, per_round * rounds


def _places(count: int, gone: Tensor) -> Tensor:
    """Where each of so many rows is once some are gone (count,)."""
    kept = torch.ones(count, dtype=torch.int64, device=gone.device)
    kept[gone] = 0
    return kept.cumsum(0) - 1


@dataclass(frozen=True)
class HonestRows:
    """Rows of X (n, c) and Y (m, c) whose inner product is their similarity, each of X read without its own pair."""

    x: Rows
    y: Rows
    budget: int

    def match(self) -> Match:
        """The match by CSLS."""
        return match_csls(self.x, self.y, budget=self.budget)


def cross_fitted(problem: Problem, rows_x: Tensor, rows_y: Tensor, generator: torch.Generator) -> HonestRows:
    """All rows, read by pair models that are fitted to the pairs (p,) of rows less those of one fold of X at a time."""
    model = fit_model(problem, rows_x, rows_y)
    if model.ridge == 0:  # too few pairs for a model, let alone for several
        return HonestRows(*read_rows(problem, model), problem.budget)
    fold = torch.randint(_FOLDS, (len(problem.x),), generator=generator).to(problem.x.device)
    of_folds = [pair_moments(problem, rows_x[fold[rows_x] == i], rows_y[fold[rows_x] == i]) for i in range(_FOLDS)]
    of_all = reduce(Moments.__add__, of_folds)
    models = [
        model.refitted(problem.spectrum_x, problem.spectrum_y, (of_all - left_out).cross) for left_out in of_folds
    ]
    white = problem.spectrum_y.whitening(model.ridge)

    def read_y(rows: Tensor) -> Tensor:
        # A row loses something else under each model: a row of X picks what it does under its own by a 1 among zeros.
        losses = [-other.losses_y(rows) for other in models]
        return torch.cat([rows @ white.to(rows.dtype), torch.ones_like(losses[0]), *losses], dim=1)

    y = problem.y.sent(read_y)
    own = y.own.new_empty(len(problem.x.own), y.dim)
    for index, other in enumerate(models):
        inside = fold[problem.x.span] == index
        rows = problem.x.own[inside]
        products = rows @ other.products_x(problem.spectrum_y).to(rows.dtype)
        picked = rows.new_zeros(len(rows), _FOLDS)
        picked[:, index] = 1
        own[inside] = torch.cat([products, model.information - other.losses_x(rows), picked], dim=1)
    x = Rows(own, problem.x.bounds, own if processes().alone else None)
    return HonestRows(x, y, problem.budget)


def _with_seeds(match: Match, seeds_x: Tensor, seeds_y: Tensor) -> Match:
    """The match in which every seed (s,) is a pair, and nobody else's row of Y is a seed's."""
    partner, margin = match.partner.clone(), match.margin.clone()
    margin[torch.isin(partner, seeds_y)] = -torch.inf
    partner[seeds_x], margin[seeds_x] = seeds_y, torch.inf
    return Match(partner, margin, match.column_hubness)


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

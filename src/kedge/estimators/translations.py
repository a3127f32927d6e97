"""Translations: for every row of X the best few of Y, each with the probability that it is acceptable.

They come from a fitted discovery and its spaces, without a new discovery: rows are read once by the pair model of the
run, to get the pairs that it implies, and then by models that had not seen their own pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.estimators.devices import load_problem, resolve_device, to_numpy
from kedge.estimators.pair_inputs import PairsLike, as_pair_rows
from kedge.judging.acceptability import (
    CANDIDATES,
    KnownRows,
    answer_lexicon,
    judge_by_unseen,
    learn_sharpness,
    trust_in,
)
from kedge.judging.health import Answer
from kedge.matching import ExactComparison, Problem, compare, using_precision
from kedge.models.cross_fitting import cross_fitted
from kedge.models.pair_fitting import known_and_found
from kedge.models.pair_model import PairModel
from kedge.spaces import rows_from_key_pairs
from kedge.spaces.conversion import SpaceLike, as_space

if TYPE_CHECKING:
    from kedge.estimators.fitted import FittedDiscovery

# Pairs of rows, n times m, up to which all rows of Y compete for one of X; beyond, those nearest before hubness do.
_EXACT = {"cpu": 30_000**2, "cuda": 500_000**2}


@dataclass(frozen=True)
class Translations:
    """For each row of X the best rows (n, k) of Y, and the probability (n, k) that each is acceptable.

    They are best first, -1 where there are fewer. `answer` says whether they are fit for a lexicon; it rests on `known`
    pairs, held out in turn, of which `known_first` have a right answer first.
    """

    rows: NDArray[np.int64]
    probability: NDArray[np.float32]
    answer: Answer
    known: int
    known_first: int

    def listed(self, min_confidence: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of X (t,) and ranks (t,), from 0, of the translations at least this probable, in the order of X."""
        if not 0 <= min_confidence <= 1:
            raise InputError(f"min_confidence must be from 0 to 1, got {min_confidence!r}")
        rows, ranks = np.nonzero((self.probability >= np.float32(min_confidence)) & (self.rows >= 0))
        return rows.astype(np.int64), ranks.astype(np.int64)


def find_translations(
    discovery: FittedDiscovery,
    x: SpaceLike,
    y: SpaceLike,
    *,
    top: int = 3,
    known: PairsLike = None,
    min_confidence: float = 0.5,
    device: str = "auto",
) -> Translations:
    """The best `top` rows of Y for each row of X.

    The seeds that do not look wrong, and the `known` pairs, calibrate the probabilities; a row may have several known
    partners, any of which is right. Twenty or more that are no seeds also say whether the map is right, whatever the
    discovery said. The answer is about translations of at least `min_confidence`.
    """
    if not 1 <= top <= CANDIDATES:
        raise InputError(f"top must be from 1 to {CANDIDATES}, got {top!r}")
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    given = as_pair_rows(known, space_x, space_y, "known")
    in_texts, text_x, text_y = discovery.in_texts(space_x, space_y)
    seeds = rows_from_key_pairs(in_texts.seed_keys_, text_x, text_y)[~discovery.seed_is_suspect_]
    on_device = resolve_device(device)
    problem, loaded_x, loaded_y = load_problem(discovery, text_x.vectors, text_y.vectors, seeds, on_device)
    model = discovery.model_.on(on_device, torch.float32).in_coordinates(loaded_x.axes.T, loaded_y.axes.T)
    with using_precision(discovery.precision):
        ranked, rows = _read_unaided(problem, model, discovery.random_state_)
    answers = torch.from_numpy(np.concatenate([seeds, given])).to(problem.device)
    tested = _known_rows(ranked, rows, answers)
    unseen = _known_rows(ranked, rows, answers[~torch.isin(answers[:, 0], problem.seeds_x)])
    health = discovery.health_
    of_map = judge_by_unseen(health.judgement, unseen)
    recognised = health.recognised * min(len(problem.x), len(problem.y)) / len(problem.x)
    sharpness = learn_sharpness(ranked, recognised, health.overlap.x.high, tested, len(problem.y))
    probability = (sharpness.probabilities(ranked) * (trust_in(of_map) * tested.trust))[:, :top]
    answer = answer_lexicon(probability, tested, of_map, min_confidence)
    return Translations(to_numpy(rows[:, :top]), to_numpy(probability.float()), answer, tested.count, tested.first)


def _read_unaided(problem: Problem, model: PairModel, random_state: int) -> tuple[Tensor, Tensor]:
    """The candidates of all rows of X, best first, by models that had not seen their pairs: values and rows (n, k)."""
    compared = compare(problem, model)
    pairs = known_and_found(problem, compared.match())
    generator = torch.Generator().manual_seed(random_state)
    unaided = cross_fitted(problem, *pairs, generator, candidates=compared.candidates)
    match = unaided.match()
    if len(problem.x) * len(problem.y) <= _EXACT[problem.device.type]:
        unaided = ExactComparison(unaided.x.float(), unaided.y.float(), problem.budget)
    return unaided.ranked(match, CANDIDATES)


def _known_rows(ranked: Tensor, rows: Tensor, pairs: Tensor) -> KnownRows:
    """The rows of X that are in pairs (p, 2), each once, and which of their candidates are right."""
    known_x, place = torch.unique(pairs[:, 0], return_inverse=True)
    acceptable = torch.zeros(len(known_x), rows.shape[1], dtype=torch.bool, device=rows.device)
    for number, right in zip(place.tolist(), pairs[:, 1].tolist(), strict=True):
        acceptable[number] |= rows[known_x[number]] == right
    return KnownRows(ranked[known_x], acceptable)

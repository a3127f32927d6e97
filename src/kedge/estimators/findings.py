"""From a match to everything a run is used for: the probable pairs, the pair model, the maps and the anchors.

All of it is learned from one list of pairs: the seeds as given, unless they look wrong, and the found pairs that are
probable and touch no row of a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.geometry import nearest_rotation
from kedge.judging.answers import answer_all, judge_by_known, places_are_known
from kedge.judging.confidence import Confidence, measure_confidence
from kedge.judging.doubtful_seeds import contradicted_seeds, name_opinions, rows_closer, suspect_seeds
from kedge.judging.health import Health
from kedge.judging.judge import Judgement
from kedge.judging.known_calibration import held_to_known
from kedge.judging.recognition import MIN_ROWS, PROBABLE
from kedge.matching import Candidates, Match, Problem, compare, held, read_y
from kedge.models.anchors import place_free_anchors, snap
from kedge.models.cross_fitting import cross_fitted
from kedge.models.maps.choosing import ENOUGH_KNOWN, Centers, ChosenMap, choose_map
from kedge.models.mixed_scores import MAX_QUERIES, MAX_ROWS, ScoreOffsets, measure_offset
from kedge.models.pair_fitting import fit_model, found_pairs, known_and_found, pair_moments
from kedge.models.pair_model import PairModel
from kedge.models.query_map import QueryTranslation, choose_query_translation
from kedge.models.side import Side
from kedge.models.soft_pairs import soft_cross
from kedge.models.translation_trust import MAX_SEEN, TrustEvidence, weigh_evidence
from kedge.models.translator import TranslationStep, Translator
from kedge.solving.alignment import Alignment
from kedge.solving.finishing import PAIRS_PER_DIM
from kedge.solving.steps import Log
from kedge.spaces import Embeddings

_FOLDS = 5
# Rows of either space from which soft pairs are taken.
_MAP_ROWS = 20_000


@dataclass(frozen=True)
class Findings:
    """What a run has learned.

    `pairs` (p, 2) are the found pairs that are probable enough, surest first, without the seeds. Of the seeds,
    `suspects` (s,) is a mask of those that look so wrong that nothing is learned from them, `opinions` (s,) are what
    the run thinks of each, `closer` (s,) says how many rows are closer to a seed's rows than these are to each other,
    and `seeds_found` (s,) what was found for their rows of X without them. `free_anchors` (a, dy) are unit vectors,
    `snapped_anchors` (a,) distinct rows of Y.
    """

    health: Health
    confidence: Confidence
    pairs: NDArray[np.int64]
    suspects: Tensor
    opinions: NDArray[np.str_]
    closer: Tensor
    seeds_found: Tensor
    model: PairModel
    map: ChosenMap
    map_back: ChosenMap
    free_anchors: Tensor
    snapped_anchors: Tensor


def learn_findings(
    problem: Problem,
    anchors: Tensor,
    alignment: Alignment,
    judged: Judgement,
    centers: Centers,
    min_confidence: float,
    generator: torch.Generator,
    log: Log,
    *,
    unused: Tensor,
    disjoint: bool = False,
) -> Findings:
    """Decide which pairs are probable, and learn from them; none are if the spaces are known to be disjoint.

    `unused` is a mask (s,) of the seeds that were kept from the search: they test what is learned from others.
    """
    honest = cross_fitted(
        problem, *known_and_found(problem, alignment.match), generator, candidates=alignment.candidates
    )
    closer = rows_closer(problem, honest.x, honest.y)
    judged = judge_by_known(problem, judged, centers)
    known_places = places_are_known(judged)
    suspects, contradicted = suspect_seeds(problem, closer), contradicted_seeds(problem, closer)
    if judged.known_rank is not None:  # found pairs may be wrong, and a few rows closer mean little in a small space
        suspects = suspects & contradicted
    suspects = suspects & known_places
    contradicted = suspects | (contradicted & known_places)
    trusted, certain = problem.without_seeds(suspects), problem.without_seeds(contradicted)
    seeds = certain.seeds_x, certain.seeds_y
    confidence = measure_confidence(problem, honest, alignment.match.partner, seeds, judged, log, disjoint=disjoint)
    if _probable_suffice(trusted, confidence):  # read once more, by models of the probable pairs
        candidates = honest.candidates
        del honest  # as large as both spaces
        rows_x, rows_y, _ = _to_learn_from(trusted, confidence)
        best = partial(_match_by_all, problem, rows_x, rows_y, candidates)
        guesses = log.once("best", Match, best).partner
        honest = cross_fitted(problem, rows_x, rows_y, generator, candidates=candidates)
        again = measure_confidence(problem, honest, guesses, seeds, judged, log.within("best"), disjoint=disjoint)
        confidence = max(confidence, again, key=_expected_right)
    seeds_found = confidence.unaided.partner[problem.seeds_x]
    # The first reading may doubt a seed that a better one finds.
    suspects, contradicted = (mask & (seeds_found != problem.seeds_y) for mask in (suspects, contradicted))
    trusted, upheld = problem.without_seeds(suspects), problem.without_seeds(contradicted)
    tested = unused & ~suspects
    testing = trusted
    if bool(tested.any()):  # seeds that the search began with would make confidence look too good
        testing = problem.without_seeds(~tested)
        confidence = held_to_known(confidence, testing)
    tested = tested[~suspects]
    pairs = _probable_pairs(upheld, confidence, min_confidence)

    rows_x, rows_y, known = _to_learn_from(trusted, confidence)
    model = _fit_shared(problem, rows_x, rows_y, known, tested)
    soft = None
    start = alignment.rotation
    if _few_found(trusted, confidence) and (start is not None or judged.answer.verdict != "failed"):
        if start is None:
            start = nearest_rotation(pair_moments(problem, rows_x, rows_y).cross)
        soft = _soft_cross(trusted.without_seeds(tested), start, generator)
    forward = choose_map(problem, rows_x, rows_y, known, centers.y, soft, tested=tested)
    soft_back = None if soft is None else soft.T
    back = choose_map(problem.reversed(), rows_y, rows_x, known, centers.x, soft_back, tested=tested)
    described = problem.whitened(alignment.whitening)
    free = alignment.free_anchors
    if free is None:
        free = place_free_anchors(pair_moments(described, rows_x, rows_y), described.take_x(anchors))
        estimates = held(problem, model.shared_x(problem.take_x(anchors)), model.biases, left=True).float()
        y = read_y(problem, model)
        snapped = snap(upheld, anchors, estimates, y, confidence.match.column_hubness)
    else:  # placed by the method itself, and snapped to the rows nearest to them
        snapped = snap(upheld, anchors, free, described.y)
    sureness = confidence.paired[pairs[:, 0]]
    health = answer_all(
        trusted, testing, alignment, judged, confidence, sureness, forward, len(problem.seeds_x), disjoint=disjoint
    )
    opinions = name_opinions(seeds_found == problem.seeds_y, contradicted, known=known_places)
    return Findings(
        health, confidence, pairs, suspects, opinions, closer, seeds_found, model, forward, back, free, snapped
    )


def _expected_right(confidence: Confidence) -> float:
    """How many of the probable pairs are expected to be right, by which readings are compared.

    Where nearly all mutual pairs are right, fitting models without the improbable ones costs more than it gains.
    """
    sureness = confidence.paired[confidence.match.pairs()[0].cpu().numpy()]
    return float(sureness[sureness >= PROBABLE].sum())


def _match_by_all(problem: Problem, rows_x: Tensor, rows_y: Tensor, candidates: Candidates | None) -> Match:
    """The match by the pair model fitted to all of these pairs (p,) of rows."""
    return compare(problem, fit_model(problem, rows_x, rows_y), candidates).match()


def _probable_pairs(upheld: Problem, confidence: Confidence, min_confidence: float) -> NDArray[np.int64]:
    """Mutual pairs (p, 2) that are at least this probable and touch no row of a seed.

    Surest first, and of equally sure ones, the larger margin first.
    """
    match = confidence.match
    rows, partners = (side.cpu().numpy() for side in found_pairs(upheld, match))
    probability, margin = confidence.paired[rows], match.margin.cpu().numpy()[rows]
    order = np.lexsort((-margin, -probability))
    return np.stack([rows, partners], axis=1)[order][probability[order] >= min_confidence]


def _to_learn_from(trusted: Problem, confidence: Confidence) -> tuple[Tensor, Tensor, int]:
    """The pairs to learn from, as rows (p,) of X and of Y, the seeds first; and how many seeds there are.

    The others are the probable pairs, or all mutual ones if the probable ones are few or in doubt: what pairs have in
    common is then better evidence than how sure each of them is.
    """
    probable = None
    if _probable_suffice(trusted, confidence):
        probable = torch.from_numpy(confidence.paired >= PROBABLE).to(trusted.device)
    return *known_and_found(trusted, confidence.match, probable), len(trusted.seeds_x)


def _probable_suffice(trusted: Problem, confidence: Confidence) -> bool:
    """Whether enough pairs are probable to learn from them alone."""
    rows = confidence.match.pairs()[0]
    return confidence.trust == 1 and _enough(confidence, rows, trusted)


def _few_found(trusted: Problem, confidence: Confidence) -> bool:
    """Whether few found pairs are probable, although there are enough rows left that could be in some."""
    found, _ = found_pairs(trusted, confidence.match)
    left = min(len(trusted.x), len(trusted.y)) - len(trusted.seeds_x)
    return left >= MIN_ROWS and not (confidence.trust == 1 and _enough(confidence, found, trusted))


def _enough(confidence: Confidence, rows: Tensor, problem: Problem) -> bool:
    """Whether enough of the pairs of these rows of X are probable."""
    probable = int((confidence.paired[rows.cpu().numpy()] >= PROBABLE).sum())
    return probable >= PAIRS_PER_DIM * min(problem.dims)


def _soft_cross(trusted: Problem, start: Tensor, generator: torch.Generator) -> Tensor:
    """The cross moment (dx, dy) of soft pairs on a sample: of more rows of one space if the other has few."""
    size = max(_MAP_ROWS, _MAP_ROWS**2 // min(len(trusted.x), len(trusted.y)))
    return soft_cross(trusted.sample(size, generator), start)


def _fit_shared(problem: Problem, rows_x: Tensor, rows_y: Tensor, known: int, tested: Tensor) -> PairModel:
    """The pair model of pairs (p,), or of the first `known`, which are certain, if that reads the tested ones better.

    `tested` is a mask (known,) of those that are tested; an empty one stands for all.
    """
    if ENOUGH_KNOWN <= known < len(rows_x):
        places = tested.nonzero(as_tuple=True)[0] if bool(tested.any()) else torch.arange(known, device=rows_x.device)
        with_found = _held_out_rank(problem, rows_x, rows_y, places)
        alone = _held_out_rank(problem, rows_x[:known], rows_y[:known], places)
        if alone > with_found:
            rows_x, rows_y = rows_x[:known], rows_y[:known]
    return fit_model(problem, rows_x, rows_y)


def _held_out_rank(problem: Problem, rows_x: Tensor, rows_y: Tensor, places: Tensor) -> float:
    """Mean reciprocal rank of the partners in some pairs (k,), among each other, by models that had not seen them."""
    model = fit_model(problem, rows_x, rows_y)
    fold = torch.full((len(rows_x),), _FOLDS, device=rows_x.device)
    fold[places] = torch.arange(len(places), device=rows_x.device) % _FOLDS
    ranks = []
    for index in range(_FOLDS):
        inside = (fold[places] == index).nonzero(as_tuple=True)[0]
        others = fold != index
        cross = pair_moments(problem, rows_x[others], rows_y[others]).cross
        other = model.refitted(problem.spectrum_x, problem.spectrum_y, cross)
        queries, targets = (
            other.shared_x(problem.take_x(rows_x[places[inside]])),
            other.shared_y(problem.take_y(rows_y[places])),
        )
        similarity = queries @ targets.T
        ranks.append((similarity > similarity.gather(1, inside[:, None])).sum(dim=1) + 1)
    return float((1 / torch.cat(ranks).double()).mean())


def learn_trust(chosen: ChosenMap, x: Embeddings, side: Side) -> TrustEvidence | None:
    """What trust in single translations rests on: the rows of X that the map was tested on, and a sample of all."""
    if chosen.margins is None or side.directions is None or side.correlations is None:
        return None
    drawn = np.random.default_rng(0).permutation(len(x))[:MAX_SEEN]
    tested, seen = (
        side.normaliser(np.array(x.vectors[rows], dtype=np.float32))
        for rows in (chosen.margins.rows.cpu().numpy(), drawn)
    )
    margins = chosen.margins.margins.cpu().numpy()
    return weigh_evidence(tested, margins, seen, side.directions, side.correlations)


def learn_score_offsets(
    x: Embeddings, y: Embeddings, pairs: NDArray[np.int64], there: Translator, back: Translator
) -> ScoreOffsets | None:
    """What makes scores of translated and native rows comparable in either space, from known and found pairs (p, 2)."""
    chance = np.random.default_rng(0)
    drawn_x, drawn_y = (chance.permutation(len(space))[: MAX_QUERIES + MAX_ROWS] for space in (x, y))
    own_x, own_y = (np.array(space.vectors[rows], dtype=np.float32) for space, rows in ((x, drawn_x), (y, drawn_y)))
    to_y = measure_offset(own_y, there(own_x), _partners(pairs[:, ::-1], drawn_y, drawn_x), len(x))
    to_x = measure_offset(own_x, back(own_y), _partners(pairs, drawn_x, drawn_y), len(y))
    return None if to_y is None or to_x is None else ScoreOffsets(to_y, to_x)


def _partners(pairs: NDArray[np.int64], rows: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each of some rows (n,), the place of its partner by pairs (p, 2) among other rows (m,); -1 without one."""
    place = {row: number for number, row in enumerate(others.tolist())}
    partner = dict(pairs.tolist())
    return np.array([place.get(partner.get(row, -1), -1) for row in rows.tolist()], dtype=np.int64)


def learn_query_translation(
    step: TranslationStep,
    queries: Embeddings,
    x: Embeddings,
    y: Embeddings,
    pairs: NDArray[np.int64],
    *,
    centered: bool,
) -> QueryTranslation:
    """How queries (q, dx) are translated, tested on pairs (p, 2) of rows against the step that translates rows of X."""
    tried = np.unique(pairs, axis=0)
    rows = (queries.vectors, x.vectors[tried[:, 0]], y.vectors[tried[:, 1]])
    # Copies: a memory map may be read-only, and of half precision.
    return choose_query_translation(
        step, *(torch.from_numpy(np.array(some, dtype=np.float32)) for some in rows), centered=centered
    )

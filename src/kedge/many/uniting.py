"""Unite spaces, and what is known between them, into one common space: pairs, loops, rotations, factors, groups.

First, each pair of spaces is aligned by itself and judged. The pairs that pass and break no loop hold the common space
together; a pair that fails by itself is tried once more from where its neighbours have led. Then everything is fitted
to all pairs at once: a rotation per space (`synchronisation`), coordinates with likelihoods (`common_factors`), and the
groups (`grouping`), to which rotations and coordinates are fitted once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import median_low

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.estimators.devices import Loaded, to_numpy
from kedge.geometry import Spectrum
from kedge.judging.recognition import PROBABLE, Choices, Recognition, count_recognised
from kedge.many.member import Member
from kedge.many.numerics.common_factors import CommonFactors, fit_factors, rotation_factors
from kedge.many.numerics.grouping import Groups, merge_groups
from kedge.many.numerics.loops import Loop, breaking_pairs, close_loop
from kedge.many.numerics.pair_graph import Pair, main_component, pairs_to_run, pairs_to_try, triangles_of
from kedge.many.numerics.synchronisation import synchronise
from kedge.many.pairwise import PairOutcome, align_alone, align_from, problem_of
from kedge.matching import CosineReading, Match, Reading, compare
from kedge.models.pair_fitting import moments_of_halves
from kedge.models.pair_model import choose_ridge
from kedge.solving.finishing import PAIRS_PER_DIM
from kedge.solving.steps import Log

# Before it is rotated, a space is scaled by this power of its variances, as in a whiten-rotate-recolor map.
_POWER, _RIDGE = -0.25, 0.01
# The ridge is the median of those chosen for this many of the largest pairs.
_RIDGES_OF = 3

Report = Callable[[Pair, PairOutcome], None]
"""Called with every pair of spaces that has been aligned."""


@dataclass(frozen=True)
class Union:
    """The result of uniting many spaces, in their principal axes.

    `members` are the numbers of the spaces that hold together. For each of these, in order, `into` (ds, d) maps
    normalised rows into the common space and `back` (d, ds) out of it; `factors` reads them. `outcomes` holds the pairs
    that were run, by numbers of all spaces. `matches` holds the matches of all pairs of members as the factors read
    them, by numbers among the members, and `recognised` how many rows recognise their counterpart. `breaking` are pairs
    that look right by themselves but break their loops.
    """

    members: tuple[int, ...]
    into: tuple[Tensor, ...]
    back: tuple[Tensor, ...]
    factors: CommonFactors | None
    groups: Groups
    outcomes: Mapping[Pair, PairOutcome]
    loops: tuple[Loop, ...]
    breaking: tuple[Pair, ...]
    matches: Mapping[Pair, Match]
    recognised: Mapping[Pair, Recognition]


def unite(
    spaces: Sequence[Loaded],
    known: Tensor,
    random_state: int,
    log: Log,
    *,
    disjoint: bool = False,
    min_confidence: float = 0.5,
    on_pair: Report | None = None,
) -> Union:
    """Unite spaces, given tuples (a, k) of rows that are known to be one item, -1 where unknown.

    `disjoint` declares that the spaces have no items in common except the known ones, so no others are searched for.
    `min_confidence` only decides what is listed in the groups: everything is learned from those that are probable.
    """
    outcomes = _run_alone(spaces, known, random_state, log, on_pair, disjoint=disjoint)
    loops = [] if disjoint else loops_of(outcomes)
    breaking = tuple(breaking_pairs(loops))
    trusted = {pair: found for pair, found in outcomes.items() if found.ok and pair not in breaking}
    members = tuple(sorted(main_component(len(spaces), trusted)))
    if not members:
        nobody = Groups(torch.empty(0, 0, dtype=torch.int64), torch.empty(0))
        return Union((), (), (), None, nobody, outcomes, tuple(loops), breaking, {}, {})
    some = [spaces[space] for space in members]
    into, back, factors = _fit_common(some, _among(members, trusted))
    again = [pair for pair in outcomes if pair not in trusted and set(pair) <= set(members)]
    for s, t in again:
        a, b = members.index(s), members.index(t)
        reading: Reading = CosineReading(into[a].float(), into[b].float()) if disjoint else factors.pair_model(a, b)
        seeds = _seeds(known, s, t)
        found = align_from(spaces[s], spaces[t], seeds, reading, random_state, log, disjoint=disjoint)
        if found.ok or not outcomes[s, t].ok:
            outcomes[s, t] = found
        if found.ok:
            trusted[s, t] = found
        if on_pair is not None:
            on_pair((s, t), found)
    breaking = tuple(pair for pair in breaking if pair not in trusted)
    holding = _among(members, trusted)
    if again:
        into, back, factors = _fit_common(some, holding)
    # Other spaces make it harder to fit noise, so the lowest chance rate of all pairs is a sufficient baseline.
    chance = min(found.judged.chance_rate for found in holding.values())
    matches, recognised = _read_all(some, factors, chance)
    seeds = known[:, list(members)].cpu()
    if disjoint:
        groups = _known_groups(some, seeds)
    else:
        merged = partial(
            merge_groups,
            factors.on_cpu(),
            [space.rows for space in some],
            {pair: found.share for pair, found in recognised.items()},
            seeds,
            chance_rate=chance,
        )
        probable = merged(min_probability=PROBABLE)
        groups = probable if min_confidence == PROBABLE else merged(min_probability=min_confidence)
        into, back, factors = _fit_common(some, holding, probable)
    return Union(members, into, back, factors, groups, outcomes, tuple(loops), breaking, matches, recognised)


def loops_of(outcomes: Mapping[Pair, PairOutcome]) -> list[Loop]:
    """The loops over all triangles of pairs that were aligned by themselves."""
    return [
        close_loop((s, t, u), outcomes[s, t].link, outcomes[t, u].link, outcomes[s, u].link_back)
        for s, t, u in triangles_of(outcomes)
    ]


def _fit_common(
    spaces: Sequence[Loaded], outcomes: Mapping[Pair, PairOutcome], groups: Groups | None = None
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], CommonFactors]:
    """Fit the maps into the common space and back, and the factors, of spaces that the outcomes connect.

    Once there are `groups`, their pairs take the place of the outcomes', also between spaces that were not run. Where
    they are too few, the outcomes' stay, and so do soft pairs.
    """
    crosses = {pair: found.cross for pair, found in outcomes.items()}
    hard = {pair: found.pairs for pair, found in outcomes.items() if not found.soft}
    grouped = {} if groups is None else {pair: groups.pairs(*pair) for pair in combinations(range(len(spaces)), 2)}
    for (s, t), pairs in grouped.items():
        enough = len(pairs) >= PAIRS_PER_DIM * min(spaces[s].rows.shape[1], spaces[t].rows.shape[1])
        if len(pairs) and ((s, t) not in outcomes or (enough and not outcomes[s, t].soft)):
            crosses[s, t] = _cross(spaces[s], spaces[t], pairs)
        if enough:
            hard[s, t] = pairs
    into, back = _fit_rotations(spaces, crosses)
    if {space for pair in hard for space in pair} != set(range(len(spaces))):
        return into, back, rotation_factors([space.spectrum for space in spaces], into)
    return into, back, _fit_hard(spaces, hard)


def _fit_rotations(
    spaces: Sequence[Loaded], crosses: Mapping[Pair, Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Maps that half-whiten and rotate into the common space, and that rotate out of it and half-recolor."""
    spectra = [space.spectrum for space in spaces]
    half_white = {(s, t): half_whitened(spectra[s], spectra[t], cross) for (s, t), cross in crosses.items()}
    rotations = synchronise(half_white, [len(spectrum.variances) for spectrum in spectra])
    return maps_of(spectra, rotations)


def half_whitened(first: Spectrum, second: Spectrum, cross: Tensor) -> Tensor:
    """A cross moment (ds, dt) of half-whitened rows, from that of the rows themselves."""
    return first.times_power(second.times_power(cross.T, _POWER, _RIDGE).T, _POWER, _RIDGE)


def half_whitened_side(spectrum: Spectrum, cross: Tensor) -> Tensor:
    """The same if the second side has been transformed already."""
    return spectrum.times_power(cross, _POWER, _RIDGE)


def maps_of(spectra: Sequence[Spectrum], rotations: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Maps into the common space (ds, d), and back (d, ds), from rotations (ds, d)."""
    sides = list(zip(spectra, rotations, strict=True))
    into = tuple(spectrum.times_power(rotation, _POWER, _RIDGE) for spectrum, rotation in sides)
    return into, tuple(spectrum.times_power(rotation, -_POWER, _RIDGE).T for spectrum, rotation in sides)


def _fit_hard(spaces: Sequence[Loaded], pairs: Mapping[Pair, Tensor]) -> CommonFactors:
    """Fit the factors to pairs (p, 2) of rows between some of the spaces."""
    nothing = torch.empty(0, 2, dtype=torch.int64)
    halves = {
        (s, t): moments_of_halves(problem_of(spaces[s], spaces[t], nothing), *found.T)
        for (s, t), found in pairs.items()
    }
    surest = sorted(pairs, key=lambda pair: -len(pairs[pair]))[:_RIDGES_OF]
    ridge = median_low([choose_ridge(spaces[s].spectrum, spaces[t].spectrum, halves[s, t]) for s, t in surest])
    return fit_factors([space.spectrum for space in spaces], halves, ridge)


def _run_alone(
    spaces: Sequence[Loaded], known: Tensor, random_state: int, log: Log, on_pair: Report | None, *, disjoint: bool
) -> dict[Pair, PairOutcome]:
    """Align pairs of spaces by themselves, until all spaces are connected or no pairs are left to try."""
    outcomes: dict[Pair, PairOutcome] = {}
    counts = {(s, t): len(_seeds(known, s, t)) for s, t in combinations(range(len(spaces)), 2)}
    seeded = sorted((pair for pair in counts if counts[pair]), key=lambda pair: -counts[pair])
    waiting = pairs_to_run(len(spaces), seeded)
    while waiting:
        s, t = waiting.pop(0)
        within = log.within(f"pair-{s}-{t}")
        seeds = _seeds(known, s, t)
        outcomes[s, t] = align_alone(spaces[s], spaces[t], seeds, random_state, within, disjoint=disjoint)
        if on_pair is not None:
            on_pair((s, t), outcomes[s, t])
        if not waiting:
            ok = [pair for pair, found in outcomes.items() if found.ok]
            waiting = pairs_to_try(len(spaces), ok, outcomes, seeded)
    return outcomes


def _read_all(
    spaces: Sequence[Loaded], factors: CommonFactors, chance_rate: float
) -> tuple[dict[Pair, Match], dict[Pair, Recognition]]:
    """The matches of all pairs of members as the factors read them, and how many rows recognise their counterpart."""
    matches, recognised = {}, {}
    nothing = torch.empty(0, 2, dtype=torch.int64)
    for s, t in combinations(range(len(spaces)), 2):
        compared = compare(problem_of(spaces[s], spaces[t], nothing), factors.pair_model(s, t))
        matches[s, t] = compared.match()
        choices = Choices.from_comparison(compared, matches[s, t], torch.Generator().manual_seed(0))
        recognised[s, t] = count_recognised(choices).less(chance_rate)
    return matches, recognised


def _known_groups(spaces: Sequence[Loaded], known: Tensor) -> Groups:
    """Groups of the known tuples (a, k), and of the single remaining rows of all spaces."""
    tuples = known[(known >= 0).sum(dim=1) > 1]
    parts = [tuples]
    for space, loaded in enumerate(spaces):
        alone = torch.ones(len(loaded.rows), dtype=torch.bool)
        alone[tuples[:, space][tuples[:, space] >= 0]] = False
        single = torch.full((int(alone.sum()), len(spaces)), -1, dtype=torch.int64)
        single[:, space] = alone.nonzero(as_tuple=True)[0]
        parts.append(single)
    rows = torch.cat(parts)
    return Groups(rows, torch.ones(len(rows)))


def _seeds(known: Tensor, first: int, second: int) -> Tensor:
    """The known pairs (s, 2) of two spaces."""
    both = known[:, [first, second]]
    return both[(both >= 0).all(dim=1)].contiguous()


def _among(members: Sequence[int], outcomes: Mapping[Pair, PairOutcome]) -> dict[Pair, PairOutcome]:
    """The outcomes between members, renumbered by position among the members."""
    place = {space: number for number, space in enumerate(members)}
    return {(place[s], place[t]): found for (s, t), found in outcomes.items() if s in place and t in place}


def _cross(first: Loaded, second: Loaded, pairs: Tensor) -> Tensor:
    return (first.rows[pairs[:, 0]].float().T @ second.rows[pairs[:, 1]].float()).double()


def member_of(
    space: Loaded,
    name: str,
    checksum: str,
    into: Tensor,
    back: Tensor,
    directions: Tensor,
    loadings: Tensor,
    usual: NDArray[np.float32],
) -> Member:
    """A member with matrices for its original coordinates, from those in its principal axes."""
    assert space.center is not None, "spaces are centered when they are united"
    axes = space.axes.double()
    return Member(
        name,
        len(space.rows),
        to_numpy(space.center),
        space.mean_norm,
        checksum,
        to_numpy((axes @ into).float()),
        to_numpy((back @ axes.T).float()),
        to_numpy((axes @ directions.double()).float()),
        to_numpy(loadings.float()),
        usual,
    )

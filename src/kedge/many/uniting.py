"""From spaces and what is known between them to one common space: pairs, loops, rotations, factors, groups.

Pairs of spaces are run first, each by itself, and judged. Those that pass, and break no loop, hold the common space
together. Spaces that none of them connects with the others are compared with these as a whole (`islands`); a pair that
fails by itself is tried once more from where its neighbours have led. Then everything is fitted to all pairs at once: a
rotation per space, coordinates with likelihoods (`common_fits`), and the groups (`grouping`), to which these are fitted
once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.estimators.devices import Loaded, to_numpy
from kedge.judging.recognition import Choices, Recognition, count_recognised
from kedge.many.common_fits import fit_common, fit_to_groups
from kedge.many.islands import Island, pool, single
from kedge.many.numerics.common_factors import CommonFactors
from kedge.many.numerics.grouping import Groups, merge_groups
from kedge.many.numerics.loops import Loop, breaking_pairs, close_loop
from kedge.many.numerics.pair_graph import (
    Pair,
    components_of,
    main_component,
    pairs_to_run,
    pairs_to_try,
    triangles_of,
)
from kedge.many.pairwise import PairOutcome, align_alone, align_from, problem_of
from kedge.matching import CosineReading, Match, Reading, compare
from kedge.solving.steps import Log

Report = Callable[[Pair, PairOutcome], None]
"""What is called with every pair of spaces that has been aligned."""


@dataclass(frozen=True)
class Union:
    """What many spaces came to, in their principal axes.

    `members` are the numbers of those that hold together. Of these, in that order, `into` (ds, d) takes normalised rows
    into the common space and `back` (d, ds) out of it; `factors` reads them. `outcomes` are the pairs that were run,
    by numbers of all spaces, `matches` those of all pairs of members as the factors read them, with how many rows
    `recognised` their counterpart; `breaking` are pairs that look right by themselves, but break their loops.
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

    Spaces that are declared `disjoint` have no item in common but the known ones: no others are looked for.
    """
    work = _Work(spaces, known, random_state, log, on_pair, min_confidence, disjoint)
    outcomes = _run_alone(work)
    loops = [] if disjoint else loops_of(outcomes)
    breaking = tuple(breaking_pairs(loops))
    trusted = {pair: found for pair, found in outcomes.items() if found.ok and pair not in breaking}
    _bridge(work, outcomes, trusted)
    members = tuple(sorted(main_component(len(spaces), trusted)))
    if not members:
        nobody = Groups(torch.empty(0, 0, dtype=torch.int64), torch.empty(0))
        return Union((), (), (), None, nobody, outcomes, tuple(loops), breaking, {}, {})
    some = [spaces[space] for space in members]
    again = [pair for pair in outcomes if pair not in trusted and set(pair) <= set(members)]
    if again:
        into, _, factors = fit_common(some, _among(members, trusted))
    for s, t in again:
        a, b = members.index(s), members.index(t)
        reading = CosineReading(into[a].float(), into[b].float()) if disjoint else factors.pair_model(a, b)
        _try_from(work, (s, t), reading, outcomes, trusted)
    breaking = tuple(pair for pair in breaking if pair not in trusted)
    held = _hold(work, members, trusted)
    into, back, factors = held.into, held.back, held.factors
    if not disjoint:
        into, back, factors = fit_to_groups(some, held.groups, _among(members, trusted))
    matches, recognised = held.matches, held.recognised
    return Union(members, into, back, factors, held.groups, outcomes, tuple(loops), breaking, matches, recognised)


@dataclass(frozen=True)
class _Work:
    """What is to be united, and how."""

    spaces: Sequence[Loaded]
    known: Tensor
    random_state: int
    log: Log
    on_pair: Report | None
    min_confidence: float
    disjoint: bool

    def seeds(self, first: int, second: int) -> Tensor:
        """The known pairs (s, 2) of two spaces."""
        both = self.known[:, [first, second]]
        return both[(both >= 0).all(dim=1)].contiguous()

    def report(self, pair: Pair, found: PairOutcome) -> None:
        """Tell whoever asked that a pair has been aligned."""
        if self.on_pair is not None:
            self.on_pair(pair, found)


@dataclass(frozen=True)
class _Held:
    """Some of the spaces, as their pairs hold them together: see `Union`, but for a fit to the groups."""

    into: tuple[Tensor, ...]
    back: tuple[Tensor, ...]
    factors: CommonFactors
    groups: Groups
    matches: Mapping[Pair, Match]
    recognised: Mapping[Pair, Recognition]


def _hold(work: _Work, members: Sequence[int], trusted: Mapping[Pair, PairOutcome]) -> _Held:
    """Fit spaces that the trusted pairs connect, and group their rows."""
    some = [work.spaces[space] for space in members]
    inside = _among(members, trusted)
    into, back, factors = fit_common(some, inside)
    # Other spaces make it harder to fit noise: what the pair that is least prone to it came to is enough to ask.
    chance = min(found.judged.chance_rate for found in inside.values())
    matches, recognised = _read_all(some, factors, chance)
    seeds = work.known[:, list(members)].cpu()
    if work.disjoint:
        return _Held(into, back, factors, _known_groups(some, seeds), matches, recognised)
    groups = merge_groups(
        factors.on_cpu(),
        [space.rows.float().cpu() for space in some],
        {pair: found.share for pair, found in recognised.items()},
        seeds,
        min_probability=work.min_confidence,
        chance_rate=chance,
    )
    return _Held(into, back, factors, groups, matches, recognised)


def _bridge(work: _Work, outcomes: dict[Pair, PairOutcome], trusted: dict[Pair, PairOutcome]) -> None:
    """Connect spaces, or whole islands of them, that no pair connects with the others: what islands show as a whole is
    where their pairs are tried from, until one is ok.
    """
    count = len(work.spaces)
    first = main_component(count, trusted)
    others = [component for component in components_of(count, trusted) if component != first]
    main: Island | None = None
    for component in sorted(others, key=lambda one: (-len(one), min(one))) if first else ():
        main = main or _island(work, main_component(count, trusted), trusted)
        other = _island(work, component, trusted)
        found = align_alone(
            main.pooled,
            other.pooled,
            main.seeds_with(other, work.known.cpu()),
            work.random_state,
            work.log.within(f"islands-{min(component)}"),
            disjoint=work.disjoint,
        )
        if not found.ok:
            continue
        (here, there), _, _ = fit_common([main.pooled, other.pooled], {(0, 1): found})
        sides = main.matrices(here) | other.matrices(there)
        for s, t in sorted(tuple(sorted(pair)) for pair in product(main.members, other.members)):
            if _try_from(work, (s, t), CosineReading(sides[s], sides[t]), outcomes, trusted):
                main = None  # has grown
                break


def _island(work: _Work, component: Iterable[int], trusted: Mapping[Pair, PairOutcome]) -> Island:
    """Spaces that the trusted pairs connect, as one."""
    members = sorted(component)
    if len(members) == 1:
        return single(members[0], work.spaces[members[0]], len(work.spaces))
    held = _hold(work, members, trusted)
    some = [work.spaces[space] for space in members]
    return pool(members, some, held.into, held.back, held.groups, len(work.spaces))


def _try_from(
    work: _Work,
    pair: Pair,
    reading: Reading,
    outcomes: dict[Pair, PairOutcome],
    trusted: dict[Pair, PairOutcome],
) -> bool:
    """Align a pair from where its neighbours have led, and say whether it is ok; one that is worse is not kept."""
    s, t = pair
    found = align_from(
        work.spaces[s], work.spaces[t], work.seeds(s, t), reading, work.random_state, work.log, disjoint=work.disjoint
    )
    if found.ok or pair not in outcomes or not outcomes[pair].ok:
        outcomes[pair] = found
    if found.ok:
        trusted[pair] = found
    work.report(pair, found)
    return found.ok


def loops_of(outcomes: Mapping[Pair, PairOutcome]) -> list[Loop]:
    """All triangles of pairs that were aligned by themselves."""
    return [
        close_loop((s, t, u), outcomes[s, t].link, outcomes[t, u].link, outcomes[s, u].link_back)
        for s, t, u in triangles_of(outcomes)
    ]


def _run_alone(work: _Work) -> dict[Pair, PairOutcome]:
    """The pairs that are run: as many as it takes to connect all spaces, if that can be."""
    outcomes: dict[Pair, PairOutcome] = {}
    count = len(work.spaces)
    waiting = pairs_to_run(count)
    while waiting:
        s, t = waiting.pop(0)
        within = work.log.within(f"pair-{s}-{t}")
        first, second = work.spaces[s], work.spaces[t]
        outcomes[s, t] = align_alone(first, second, work.seeds(s, t), work.random_state, within, disjoint=work.disjoint)
        work.report((s, t), outcomes[s, t])
        if not waiting:
            ok = [pair for pair, found in outcomes.items() if found.ok]
            waiting = pairs_to_try(count, ok, outcomes)
    return outcomes


def _read_all(
    spaces: Sequence[Loaded], factors: CommonFactors, chance_rate: float
) -> tuple[dict[Pair, Match], dict[Pair, Recognition]]:
    """All pairs of members as the factors read them."""
    matches, recognised = {}, {}
    nothing = torch.empty(0, 2, dtype=torch.int64)
    for s in range(len(spaces)):
        for t in range(s + 1, len(spaces)):
            compared = compare(problem_of(spaces[s], spaces[t], nothing), factors.pair_model(s, t))
            matches[s, t] = compared.match()
            choices = Choices.from_comparison(compared, matches[s, t], torch.Generator().manual_seed(0))
            recognised[s, t] = count_recognised(choices).less(chance_rate)
    return matches, recognised


def _known_groups(spaces: Sequence[Loaded], known: Tensor) -> Groups:
    """The known tuples (a, k) and the single rows of all spaces."""
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


def _among(members: Sequence[int], outcomes: Mapping[Pair, PairOutcome]) -> dict[Pair, PairOutcome]:
    """The outcomes between members, by their numbers among these."""
    place = {space: number for number, space in enumerate(members)}
    return {(place[s], place[t]): found for (s, t), found in outcomes.items() if s in place and t in place}


def center_of_space(space: Loaded) -> NDArray[np.float32]:
    """What was subtracted from the unit rows (d,)."""
    assert space.center is not None, "spaces are centered when they are united"
    return to_numpy(space.center)

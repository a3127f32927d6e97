"""Let a further space join a common space whose members stay where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from kedge.estimators.devices import Loaded
from kedge.judging.health import Answer, verdict_of
from kedge.judging.judge import RECOGNISED_SCALE
from kedge.many.common_health import BREAKS_LOOPS, LoopHealth, PairHealth, loop_healths
from kedge.many.member import Member
from kedge.many.numerics.common_coordinates import MAX_LOADING
from kedge.many.numerics.common_factors import CommonFactors
from kedge.many.numerics.grouping import Groups, join_groups
from kedge.many.numerics.loops import Link, Loop, breaking_pairs, close_loop, closures
from kedge.many.numerics.synchronisation import rotation_into
from kedge.many.pairwise import PairOutcome, align_alone, problem_of
from kedge.many.uniting import half_whitened_side, maps_of, member_of
from kedge.models.pair_fitting import moments_of_halves
from kedge.models.pair_model import choose_ridge
from kedge.solving.steps import Log

# The new space is aligned with at most this many members.
_MAX_PARTNERS = 3


@dataclass(frozen=True)
class Joined:
    """The new `member`, or None and the `reason` why it does not belong.

    `groups` hold its rows in the last column (they are unchanged if it does not belong), `each` has the answers for its
    pairs, and `loops` those over it and two members.
    """

    member: Member | None
    reason: str
    groups: Groups
    each: tuple[PairHealth, ...]
    loops: tuple[LoopHealth, ...]


def join(
    space: Loaded,
    partners: Mapping[str, Loaded],
    members: Mapping[str, Member],
    known: Tensor,
    groups: Groups,
    random_state: int,
    log: Log,
    *,
    min_confidence: float,
    disjoint: bool,
    name: str,
    checksum: str,
) -> Joined:
    """Let a space join by its pairs with `partners`, the members whose rows are available.

    `known` (a, 1 + p) holds tuples of rows of the space and of the partners, -1 where unknown; `groups` are those of
    the members. With two ok partners or more, loops are closed over the space and two of these, which the groups link.
    """
    outcomes: dict[str, PairOutcome] = {}
    for place, (partner, loaded) in enumerate(list(partners.items())[:_MAX_PARTNERS], start=1):
        both = known[:, [0, place]]
        seeds = both[(both >= 0).all(dim=1)]
        outcomes[partner] = align_alone(space, loaded, seeds, random_state, log.within(partner), disjoint=disjoint)
    place_of = {member: place for place, member in enumerate(members)}
    loops = [] if disjoint else _loops(outcomes, partners, place_of, groups)
    breaking = breaking_pairs(loops, combinations(range(len(members)), 2))
    closed = closures(loops)
    new = {partner: (place_of[partner], len(members)) for partner in outcomes}
    each = tuple(
        _health(name, partner, found, closed.get(new[partner]), breaks=new[partner] in breaking)
        for partner, found in outcomes.items()
    )
    closing = loop_healths(loops, [*members, name])
    ok = {partner: found for partner, found in outcomes.items() if found.ok and new[partner] not in breaking}
    if not ok:
        best = max(found.judged.score for found in outcomes.values())
        reason = f"no map between it and {', '.join(outcomes)} is ok (best score {best:.2f})"
        return Joined(None, reason, groups, each, closing)
    into, back = _rotation(space, ok, partners, members)
    directions, loadings = _factors(space, ok, partners, members, into)
    usual = next(iter(members.values())).usual
    member = member_of(space, name, checksum, into, back, directions, loadings, usual)
    factors = CommonFactors(
        (*(_in_axes(members[partner].directions, loaded) for partner, loaded in partners.items()), directions),
        torch.stack([*(torch.from_numpy(members[partner].loadings).double() for partner in partners), loadings]),
    )
    rows = [*(loaded.rows.float() for loaded in partners.values()), space.rows.float()]
    chance = min(found.judged.chance_rate for found in ok.values())
    merged = join_groups(
        factors,
        rows,
        groups,
        [place_of[partner] for partner in partners],
        known,
        min_probability=1.01 if disjoint else min_confidence,  # 1.01: only known pairs are merged
        chance_rate=chance,
    )
    return Joined(member, "", merged, each, closing)


def _loops(
    outcomes: Mapping[str, PairOutcome], partners: Mapping[str, Loaded], place_of: Mapping[str, int], groups: Groups
) -> list[Loop]:
    """The loops over every two ok partners, linked by the groups, and the new space, whose number is the next one."""
    ok = sorted((partner for partner, found in outcomes.items() if found.ok), key=place_of.__getitem__)
    loops = []
    for first, second in combinations(ok, 2):
        spaces = (place_of[first], place_of[second], len(place_of))
        grouped = groups.partners(*spaces[:2], len(partners[first].rows))
        loops.append(close_loop(spaces, Link(grouped, grouped), outcomes[second].link_back, outcomes[first].link))
    return loops


def _health(name: str, partner: str, found: PairOutcome, closure: float | None, *, breaks: bool) -> PairHealth:
    if breaks:
        return PairHealth(partner, name, "alone", BREAKS_LOOPS, BREAKS_LOOPS, found.judged.recognised, closure)
    share = found.judged.recognised
    score = min(RECOGNISED_SCALE * share, found.judged.score)
    pairs = Answer(
        score,
        verdict_of(score),
        f"About {share:.0%} of the rows recognise their counterpart.",
        "Use groups of high probability first, and look at a few of them.",
    )
    return PairHealth(partner, name, "alone", found.judged.answer, pairs, share, closure)


def _rotation(
    space: Loaded, ok: Mapping[str, PairOutcome], partners: Mapping[str, Loaded], members: Mapping[str, Member]
) -> tuple[Tensor, Tensor]:
    """The maps of the space into the common space and back."""
    crosses = {number: half_whitened_side(space.spectrum, found.cross) for number, found in enumerate(ok.values())}
    stay = [_in_axes(members[partner].into, partners[partner]).double() for partner in ok]
    into, back = maps_of([space.spectrum], [rotation_into(crosses, stay)])
    return into[0], back[0]


def _factors(
    space: Loaded,
    ok: Mapping[str, PairOutcome],
    partners: Mapping[str, Loaded],
    members: Mapping[str, Member],
    into: Tensor,
) -> tuple[Tensor, Tensor]:
    """Directions (d, c) that predict the members' factors from its rows, scaled to variance 1, and its loadings (c,).

    The directions come from ridge regression on the pairs, each partner weighted by how well it knows a factor; the
    loadings are those that best explain the correlations of held-out pairs. If there are too few pairs, the factors are
    read through the map into the common space.
    """
    spectrum = space.spectrum
    total = torch.zeros((), dtype=torch.float64)
    above, below = total, total + 1e-9
    hard = {partner: found for partner, found in ok.items() if not found.soft}
    for partner, found in hard.items():
        there, theirs = _in_axes(members[partner].directions, partners[partner]).double(), members[partner].loadings
        problem = problem_of(space, partners[partner], torch.empty(0, 2, dtype=torch.int64))
        halves = moments_of_halves(problem, *found.pairs.T)
        ridge = choose_ridge(spectrum, partners[partner].spectrum, halves)
        weights = torch.from_numpy(theirs).double()
        total = total + spectrum.times_power((halves[0].cross + halves[1].cross) @ there, -1.0, ridge) * weights
        correlations = torch.zeros(there.shape[1], dtype=torch.float64)
        for fitted, held_out in (halves, halves[::-1]):
            own = spectrum.times_power(fitted.cross @ there, -1.0, ridge)
            covariance = (own * (held_out.cross @ there)).sum(dim=0)
            along = (own * (held_out.source @ own)).sum(dim=0) * (there * (held_out.target @ there)).sum(dim=0)
            correlations += (covariance / along.clamp_min(1e-30).sqrt()) / 2
        above, below = above + correlations * weights, below + weights.square()
    if not hard:
        partner = next(iter(ok))
        loaded, member = partners[partner], members[partner]
        total = into @ _in_axes(member.back.T, loaded).double().T @ _in_axes(member.directions, loaded).double()
        above, below = torch.from_numpy(member.loadings).double(), torch.ones(())
    return spectrum.scaled_to_unit(total).float(), (above / below).clamp(0.01, MAX_LOADING)


def _in_axes(matrix: object, loaded: Loaded) -> Tensor:
    """A matrix (d, c) for vectors, converted to one (k, c) for rows in the space's principal axes."""
    return loaded.axes.T @ torch.as_tensor(matrix)

"""Groups: for every item its rows in all spaces, merged step by step, starting with the surest spaces.

Every space starts as a cluster whose groups are its single rows. Clusters are merged two at a time: their groups are
matched by the likelihood ratio of being one item, and probable mutual matches become one group; the rest stay as they
are. Groups are consistent by construction: no row is in two groups, and a group has at most one row of each space. As
in progressive alignment of sequences, sure matches help to place unsure ones.

For two groups with evidence e and e', and precisions p and p' (sums over their rows, see `common_factors`), the log
likelihood ratio of being one item is, summed over the factors,

    half of  (e + e')^2 / (1 + p + p') - e^2 / (1 + p) - e'^2 / (1 + p') - log((1 + p + p') / (1 + p)(1 + p')) .
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kedge.judging.recognition import Choices, Recognition, count_recognised, pair_probabilities
from kedge.many.numerics.common_factors import CommonFactors
from kedge.matching import DEFAULT_BUDGET, ExactComparison


@dataclass(frozen=True)
class Groups:
    """Rows (g, k) of k spaces, -1 where a group has none, and the probability (g,) that all of them are one item."""

    rows: Tensor
    probability: Tensor

    def pairs(self, first: int, second: int) -> Tensor:
        """The pairs (p, 2) of rows of two spaces that share a group."""
        both = self.rows[:, [first, second]]
        return both[(both >= 0).all(dim=1)]

    def partners(self, first: int, second: int, count: int) -> Tensor:
        """The rows (n,) of the second space in the groups of all n rows of the first, -1 if there is none."""
        found = torch.full((count,), -1, dtype=torch.int64, device=self.rows.device)
        pairs = self.pairs(first, second)
        found[pairs[:, 0]] = pairs[:, 1]
        return found

    @property
    def sizes(self) -> Tensor:
        """The number of rows of each group (g,)."""
        return (self.rows >= 0).sum(dim=1)


@dataclass(frozen=True)
class _Cluster:
    """Groups over some `members`, with the evidence and precision (g, c) of their rows about the factors."""

    members: frozenset[int]
    groups: Groups
    evidence: Tensor
    precision: Tensor


def merge_groups(
    factors: CommonFactors,
    spaces: Sequence[Tensor],
    sureness: Mapping[tuple[int, int], float],
    known: Tensor,
    *,
    min_probability: float = 0.5,
    chance_rate: float = 0.0,
    budget: int = DEFAULT_BUDGET,
) -> Groups:
    """Group the normalised rows (n_s, d_s) of all spaces.

    Spaces are merged in descending order of the sureness of their pairs; those that no pair connects stay apart.
    `known` (a, k) holds tuples of rows, -1 where unknown, that are one item and are kept together. `chance_rate` is the
    share of rows that seem recognised by chance. `min_probability` applies to each step by itself; the probability of a
    group is the product of those of its steps, so it may be lower.
    """
    clusters: dict[int, _Cluster] = {}  # by space; that of a single space is made late, since its evidence takes memory

    def cluster_of(space: int) -> _Cluster:
        found = clusters.get(space)
        return _single(factors, space, spaces[space], len(spaces)) if found is None else found

    for (s, t), _ in sorted(sureness.items(), key=lambda item: -item[1]):
        if s in clusters and t in clusters[s].members:
            continue
        merged = _merged(cluster_of(s), cluster_of(t), known, min_probability, chance_rate, budget)
        clusters.update(dict.fromkeys(merged.members, merged))
    parts = [
        clusters[space].groups if space in clusters else _single_rows(space, len(rows), len(spaces))
        for space, rows in enumerate(spaces)
        if space not in clusters or space == min(clusters[space].members)
    ]
    return Groups(torch.cat([part.rows for part in parts]), torch.cat([part.probability for part in parts]))


def join_groups(
    factors: CommonFactors,
    spaces: Sequence[Tensor],
    groups: Groups,
    at_hand: Sequence[int],
    known: Tensor,
    *,
    min_probability: float,
    chance_rate: float,
    budget: int = DEFAULT_BUDGET,
) -> Groups:
    """Add the rows of one more space to groups, giving (g, k + 1), without changing how the others are grouped.

    `spaces` holds the rows of the members `at_hand` (numbers among the k), followed by those of the new space; `known`
    (a, 1 + p) holds tuples of rows of the new space and of the members at hand.
    """
    own = known[:, [*range(1, known.shape[1]), 0]]
    width = groups.rows.shape[1] + 1
    everything = torch.full((len(known), width), -1, dtype=torch.int64)
    everything[:, [*at_hand, width - 1]] = own
    rows = torch.nn.functional.pad(groups.rows, (0, 1), value=-1)
    evidence = torch.zeros(len(rows), factors.loadings.shape[1])
    precision = torch.zeros_like(evidence)
    for place, member in enumerate(at_hand):
        there = rows[:, member] >= 0
        evidence[there] += factors.evidence(place, spaces[place][rows[there, member]])
        precision[there] += factors.precision(place).float()
    left = _Cluster(frozenset(range(width - 1)), Groups(rows, groups.probability), evidence, precision)
    right = _single(factors, len(spaces) - 1, spaces[-1], width, place=width - 1)
    return _merged(left, right, everything, min_probability, chance_rate, budget).groups


def group_ratios(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
    """Log likelihood ratios (g, h) of groups, given by evidence and precision (g, c) and (h, c), as a full matrix.

    This is the plain reference that tests compare `group_coordinates` with; groups are merged by those.
    """
    (e, p), (f, q) = left, right
    both = 1 + p[:, None] + q[None]
    ratios = (e[:, None] + f[None]).square() / both - (e.square() / (1 + p))[:, None] - (f.square() / (1 + q))[None]
    return (ratios - (both / ((1 + p)[:, None] * (1 + q)[None])).log()).sum(dim=2) / 2


def group_coordinates(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Coordinates (g, c + 2) and (h, c + 2) whose inner products are the log likelihood ratios of `group_ratios`.

    This is exact if all groups of a side have rows of the same spaces; otherwise it is approximate, with the mean
    precision of the other side in place of that of each of its groups.
    """
    (e, p), (f, q) = left, right
    total_left, total_right = 1 + p + q.mean(dim=0), 1 + p.mean(dim=0) + q
    own_left = e.square() * (1 / total_left - 1 / (1 + p)) - (total_left / (1 + p)).log()
    own_right = f.square() * (1 / total_right - 1 / (1 + q)) + (1 + q).log()
    ones_left, ones_right = torch.ones_like(e[:, :1]), torch.ones_like(f[:, :1])
    return (
        torch.cat([e * total_left.rsqrt(), own_left.sum(dim=1, keepdim=True) / 2, ones_left], dim=1),
        torch.cat([f * total_right.rsqrt(), ones_right, own_right.sum(dim=1, keepdim=True) / 2], dim=1),
    )


def _single(factors: CommonFactors, space: int, rows: Tensor, width: int, place: int | None = None) -> _Cluster:
    """A cluster with every row of a space as a group of its own; its column is `space`, or `place` if given."""
    evidence = factors.evidence(space, rows.float().cpu())
    precision = factors.precision(space).to(evidence.dtype).expand_as(evidence)
    groups = _single_rows(space if place is None else place, len(rows), width)
    return _Cluster(frozenset([space]), groups, evidence, precision)


def _single_rows(place: int, count: int, width: int) -> Groups:
    """Groups of one row each: the rows of the space whose column is `place`."""
    rows = torch.full((count, width), -1, dtype=torch.int64)
    rows[:, place] = torch.arange(count)
    return Groups(rows, torch.ones(count))


def _merged(
    left: _Cluster, right: _Cluster, known: Tensor, min_probability: float, chance_rate: float, budget: int
) -> _Cluster:
    """Merge two clusters."""
    compared = ExactComparison(
        *group_coordinates((left.evidence, left.precision), (right.evidence, right.precision)), budget
    )
    match = compared.match()
    choices = Choices.from_comparison(compared, match, torch.Generator().manual_seed(0))
    recognition = count_recognised(choices)
    probability = np.interp(choices.first, *pair_probabilities(choices, recognition)) * _beyond(
        recognition, chance_rate
    )
    rows, partners = match.pairs()
    sure = torch.from_numpy(probability).float()[rows]
    pairs = torch.stack([rows, partners], dim=1)[sure >= min_probability]
    sure = sure[sure >= min_probability]
    given = _known_pairs(left.groups, right.groups, known)
    free = ~(torch.isin(pairs[:, 0], given[:, 0]) | torch.isin(pairs[:, 1], given[:, 1]))
    pairs = torch.cat([given, pairs[free]])
    sure = torch.cat([torch.ones(len(given)), sure[free]])
    return _joined(left, right, pairs, sure)


def _joined(left: _Cluster, right: _Cluster, pairs: Tensor, probability: Tensor) -> _Cluster:
    """The cluster in which each of the pairs (p, 2) of groups is merged into one, with a probability (p,)."""
    of_left, of_right = pairs.T
    rest = []
    for cluster, used in ((left, of_left), (right, of_right)):
        alone = torch.ones(len(cluster.evidence), dtype=torch.bool)
        alone[used] = False
        rest.append(alone)
    rows = torch.maximum(left.groups.rows[of_left], right.groups.rows[of_right])  # at least one of the two is -1
    joint = probability * left.groups.probability[of_left] * right.groups.probability[of_right]
    groups = Groups(
        torch.cat([rows, left.groups.rows[rest[0]], right.groups.rows[rest[1]]]),
        torch.cat([joint, left.groups.probability[rest[0]], right.groups.probability[rest[1]]]),
    )

    def side_by_side(name: str) -> Tensor:
        first, second = getattr(left, name), getattr(right, name)
        return torch.cat([first[of_left] + second[of_right], first[rest[0]], second[rest[1]]])

    return _Cluster(left.members | right.members, groups, side_by_side("evidence"), side_by_side("precision"))


def _known_pairs(left: Groups, right: Groups, known: Tensor) -> Tensor:
    """Pairs (p, 2) of groups that hold rows of the same known tuple; each group is in at most one pair."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for one, other in zip(_groups_with(left, known).tolist(), _groups_with(right, known).tolist(), strict=True):
        if one < len(left.rows) and other < len(right.rows) and one not in found and other not in taken:
            found[one] = other
            taken.add(other)
    return torch.tensor(list(found.items()), dtype=torch.int64).reshape(-1, 2)


def _groups_with(groups: Groups, known: Tensor) -> Tensor:
    """The first group (a,) that holds a row of each known tuple; as many as there are groups if none does."""
    nowhere = len(groups.rows)
    first = torch.full((len(known),), nowhere)
    for rows, wanted in zip(groups.rows.T, known.T, strict=True):
        there, named = rows >= 0, wanted >= 0
        if not (there.any() and named.any()):
            continue
        group_of = torch.full((int(max(rows.max(), wanted.max())) + 1,), nowhere)
        group_of[rows[there]] = there.nonzero(as_tuple=True)[0]
        first[named] = torch.minimum(first[named], group_of[wanted[named]])
    return first


def _beyond(recognition: Recognition, chance_rate: float) -> float:
    """The share of the recognised rows that chance does not explain."""
    return recognition.less(chance_rate).count / max(recognition.count, 1.0)

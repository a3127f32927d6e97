"""Which pairs of spaces to run, and which spaces hold together afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

Pair = tuple[int, int]
"""The numbers s < t of two spaces."""

MAX_ALL = 5
"""For up to this many spaces all pairs are run; for more, those of nearest and next-nearest neighbours in a ring."""

_MAX_TRIES = 3


def pairs_to_run(count: int, seeded: Iterable[Pair] = ()) -> list[Pair]:
    """The pairs of `count` spaces to run: all if few, otherwise two per space, so that each is in triangles.

    Of the `seeded` pairs (those with seeds between them, most seeds first), those are run as well that connect spaces
    which the ring's seeds do not: at most one fewer than there are spaces.
    """
    if count <= MAX_ALL:
        return list(combinations(range(count), 2))
    ring = {_in_order(space, (space + step) % count) for space in range(count) for step in (1, 2)}
    seeded = list(seeded)
    links = [pair for pair in seeded if pair in ring]
    for pair in seeded:
        if len(components_of(count, [*links, pair])) < len(components_of(count, links)):
            links.append(pair)
    return sorted(ring.union(links))


def pairs_to_try(count: int, ok: Iterable[Pair], tried: Iterable[Pair], seeded: Collection[Pair] = ()) -> list[Pair]:
    """Further pairs to try: of each space outside the main component, with some of the component's spaces.

    While no two spaces hold together, it is the next pair that was not tried. Pairs that are `seeded` come first.
    """
    ok = list(ok)
    main, tried = main_component(count, ok), set(tried)
    if not main:
        untried = [pair for pair in combinations(range(count), 2) if pair not in tried]
        return sorted(untried, key=lambda pair: pair not in seeded)[:1]
    degrees = {space: sum(space in pair for pair in ok) for space in main}
    hubs = sorted(main, key=lambda space: (-degrees[space], space))
    found = []
    for space in sorted(set(range(count)) - main):
        pairs = [pair for pair in (_in_order(space, hub) for hub in hubs) if pair not in tried]
        found += sorted(pairs, key=lambda pair: pair not in seeded)[:_MAX_TRIES]
    return found


def main_component(count: int, ok: Iterable[Pair]) -> set[int]:
    """The largest set of spaces connected by pairs, ties going to the first space; empty if there are no pairs."""
    ok = list(ok)
    components = [component for component in components_of(count, ok) if len(component) > 1]
    return max(components, key=lambda component: (len(component), -min(component)), default=set())


def components_of(count: int, ok: Iterable[Pair]) -> list[set[int]]:
    """The connected components of the spaces."""
    components = [{space} for space in range(count)]
    for s, t in ok:
        left, right = (next(one for one in components if space in one) for space in (s, t))
        if left is not right:
            components = [one for one in components if one is not left and one is not right] + [left | right]
    return components


def _in_order(one: int, other: int) -> Pair:
    return min(one, other), max(one, other)


def triangles_of(pairs: Iterable[Pair]) -> list[tuple[int, int, int]]:
    """The triangles (s, t, u), s < t < u, all of whose sides are among the pairs."""
    known = set(pairs)
    spaces = sorted({space for pair in known for space in pair})
    return [(s, t, u) for s, t, u in combinations(spaces, 3) if (s, t) in known and (t, u) in known and (s, u) in known]

"""Which pairs of spaces to run, and which spaces hold together afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

Pair = tuple[int, int]
"""The numbers s < t of two spaces."""

MAX_ALL = 5
"""For up to this many spaces all pairs are run; for more, those of nearest and next-nearest neighbours in a ring."""

_MAX_TRIES = 3


def pairs_to_run(count: int) -> list[Pair]:
    """The pairs of `count` spaces to run: all if few, otherwise two per space, so that each is in triangles."""
    if count <= MAX_ALL:
        return list(combinations(range(count), 2))
    ring = {tuple(sorted((space, (space + step) % count))) for space in range(count) for step in (1, 2)}
    return sorted(ring)  # type: ignore[arg-type]


def pairs_to_try(count: int, ok: Iterable[Pair], tried: Iterable[Pair]) -> list[Pair]:
    """Further pairs to try for each space outside the main component, with some of the component's spaces."""
    ok = list(ok)
    main, tried = main_component(count, ok), set(tried)
    degrees = {space: sum(space in pair for pair in ok) for space in main}
    hubs = sorted(main, key=lambda space: (-degrees[space], space))
    found = []
    for space in sorted(set(range(count)) - main):
        pairs = [(min(space, hub), max(space, hub)) for hub in hubs]
        found += [pair for pair in pairs if pair not in tried][:_MAX_TRIES]
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


def triangles_of(pairs: Iterable[Pair]) -> list[tuple[int, int, int]]:
    """The triangles (s, t, u), s < t < u, all of whose sides are among the pairs."""
    known = set(pairs)
    spaces = sorted({space for pair in known for space in pair})
    return [(s, t, u) for s, t, u in combinations(spaces, 3) if (s, t) in known and (t, u) in known and (s, u) in known]

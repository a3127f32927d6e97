"""Canonical maps: every canonical coordinate goes to its counterpart, shrunk by a power of its correlation.

The first power is the best linear prediction; smaller powers keep more of what distinguishes neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.models.maps.linear import LinearMap

if TYPE_CHECKING:
    from kedge.models.maps.lesson import Lesson

Form = LinearMap

_POWERS = (0.25, 0.5, 1.0)


def candidates(lesson: Lesson) -> Iterator[tuple[str, LinearMap]]:
    """One map for each power."""
    from kedge.geometry import canonical_directions, canonical_loadings

    left, right = canonical_directions(lesson.x, lesson.y, lesson.moments.cross, lesson.ridge)
    left, right = lesson.x.scaled_to_unit(left).double(), lesson.y.scaled_to_unit(right)
    loadings = canonical_loadings(lesson.y, right)
    for power in _POWERS:
        yield f"canonical, power {power:g}", LinearMap.from_tensor((left * lesson.correlations.pow(power)) @ loadings)

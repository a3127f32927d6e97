"""Whiten, rotate, recolor, by half: a rotation between spaces whose axes vary to different degrees.

It has no more to learn than a rotation, so it serves if pairs are few, or only soft.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.models.maps.linear import LinearMap

if TYPE_CHECKING:
    from kedge.models.maps.lesson import Lesson

FAMILY = "whiten-rotate-recolor"
Form = LinearMap


def candidates(lesson: Lesson) -> Iterator[tuple[str, LinearMap]]:
    """One map."""
    from kedge.geometry import recolored_rotation

    yield FAMILY, LinearMap.from_tensor(recolored_rotation(lesson.x, lesson.y, lesson.moments.cross))

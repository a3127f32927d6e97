"""The rotation that pairs imply (orthogonal Procrustes): the best if two spaces have the same shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.models.maps.linear import LinearMap

if TYPE_CHECKING:
    from kedge.models.maps.lesson import Lesson

Form = LinearMap


def candidates(lesson: Lesson) -> Iterator[tuple[str, LinearMap]]:
    """One map."""
    yield "rotation", LinearMap.from_tensor(lesson.rotation)

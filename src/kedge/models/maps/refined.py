"""A rotation, refined by least squares as far as the pairs support it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kedge.models.maps.linear import LinearMap

if TYPE_CHECKING:
    from torch import Tensor

    from kedge.geometry import Moments
    from kedge.models.maps.lesson import Lesson

FAMILY = "refined rotation"
Form = LinearMap

# The rotation counts as this many pairs per dimension.
_PRIOR_PAIRS_PER_DIM = 2.0


def candidates(lesson: Lesson) -> Iterator[tuple[str, LinearMap]]:
    """One map."""
    yield FAMILY, refined_map(lesson.moments, lesson.rotation)


def refined_map(moments: Moments, rotation: Tensor) -> LinearMap:
    """The refined map of pairs with these moments, which imply this rotation (ds, dt)."""
    from kedge.geometry import refine_rotation

    return LinearMap.from_tensor(refine_rotation(moments, rotation, _PRIOR_PAIRS_PER_DIM * len(rotation)))

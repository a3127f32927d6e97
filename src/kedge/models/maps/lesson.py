"""What families of maps learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from kedge.geometry import Moments, Spectrum, nearest_rotation


@dataclass(frozen=True)
class Lesson:
    """What maps are fitted to: pairs, by all that maps depend on.

    `moments` are those of the pairs and `x` and `y` the spectra of all rows: enough for any linear map. `ridge` and
    `correlations` (c,) are those of the pair model. `rows` gives the pairs' own rows (p, ds) and (p, dt), for a map
    that is not linear.
    """

    moments: Moments
    x: Spectrum
    y: Spectrum
    ridge: float
    correlations: Tensor
    rows: Callable[[], tuple[Tensor, Tensor]]

    @cached_property
    def rotation(self) -> Tensor:
        """The rotation (ds, dt) that the pairs imply."""
        return nearest_rotation(self.moments.cross)

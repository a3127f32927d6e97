"""The confidence that a pair's margin stands for, as a run has measured it. NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kedge.storage.schema import Share

# How often the candidate of a row in no pair is right all the same, relative to the least certain pair: if the
# candidate is in no pair either, and if it is in a pair with another row. Observed on words and images: all else
# here is measured on the spaces at hand.
UNCLAIMED, CLAIMED = 0.7, 0.2


@dataclass(frozen=True)
class ConfidenceCurve:
    """Margins, ascending, and the probabilities that they stand for; in between, these are interpolated.

    The curve does not depend on the rows it was measured on, so other rows of the same two spaces get a confidence,
    too.
    """

    margins: tuple[float, ...] = (0.0,)
    probabilities: tuple[Share, ...] = (0.0,)

    @property
    def is_sound(self) -> bool:
        """Whether there is a probability for each margin, and margins ascend."""
        ascending = all(one <= other for one, other in zip(self.margins, self.margins[1:], strict=False))
        return ascending and len(self.margins) == len(self.probabilities) > 0

    def confidence(self, margins: NDArray[np.float32], claimed: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Probabilities (n,) that partners are right, by their margins (n,), which are positive in mutual pairs.

        `claimed` (n,) says whether a partner is in a pair, with this row or with another.
        """
        paired = np.interp(margins, self.margins, self.probabilities)
        unpaired = self.probabilities[0] * np.where(claimed, CLAIMED, UNCLAIMED)
        return np.where(margins > 0, paired, unpaired).astype(np.float32)

    def lowered(self, by: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> ConfidenceCurve:
        """The curve with its probabilities lowered by a function."""
        return replace(self, probabilities=tuple(by(np.array(self.probabilities)).tolist()))


NO_CONFIDENCE = ConfidenceCurve()
"""For when nothing is known about any pair."""

"""Independent components: the directions along which a space is least Gaussian.

Of whitened rows no direction varies more than another, but some are peaked: most rows have next to nothing there, and a
few have much. Which directions these are does not depend on how the space was turned or stretched before. Found by
FastICA (Hyvärinen, 1999), all directions at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh
from kedge.geometry.procrustes import nearest_rotation

_ROUNDS, _SETTLED = 100, 1e-3
# Values count as no larger than this, in deviations, where a few outliers would decide.
_MAX_VALUE = 6.0


@dataclass(frozen=True)
class Components:
    """Components of the rows of a space, the most peaked first.

    Rows (n, d) times `directions` (d, k) are values (n, k) with variance 1, uncorrelated and as independent as may be;
    large values are positive rather than negative. Values times the transpose of `loadings` (d, k) are the rows again,
    within the leading principal axes.
    """

    directions: Tensor
    loadings: Tensor

    @classmethod
    def of(cls, rows: Tensor, count: int) -> Components:
        """At most `count` components of rows (n, d), in as many leading principal axes along which they vary."""
        variances, axes = eigh((rows.T @ rows).double() / len(rows))
        varying = int((variances > torch.finfo(rows.dtype).eps * variances[-1]).sum())
        leading = slice(len(variances) - min(count, varying), None)
        axes, deviations = axes[:, leading], variances[leading].sqrt()
        white, colored = (axes / deviations).to(rows.dtype), (axes * deviations).to(rows.dtype)
        turn = _independent(rows @ white)
        values = rows @ (white @ turn)
        bounded = values.clamp(-_MAX_VALUE, _MAX_VALUE)
        turn = turn * torch.where(bounded.pow(3).mean(dim=0) < 0, -1.0, 1.0)
        peaked = bounded.pow(4).mean(dim=0)
        turn = turn[:, peaked.argsort(descending=True, stable=True)]
        return cls(white @ turn, colored @ turn)


def _independent(white: Tensor) -> Tensor:
    """The rotation (k, k) after which whitened rows (n, k) are as independent as may be, coordinate by coordinate."""
    turn = torch.eye(white.shape[1], dtype=white.dtype, device=white.device)
    for _ in range(_ROUNDS):
        squashed = torch.tanh(white @ turn)
        slope = 1 - squashed.square().mean(dim=0)
        step = white.T @ squashed / len(white) - turn * slope
        before, turn = turn, nearest_rotation(step.double()).to(white.dtype)
        if float((1 - (before * turn).sum(dim=0).abs()).max()) < _SETTLED:
            break
    return turn

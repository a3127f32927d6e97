"""Independent components: the directions along which a space is least Gaussian.

In a whitened space no direction varies more than another, but some are peaked: most rows are close to zero there, and a
few are large. Which directions these are does not depend on how the space was turned or stretched before. They are
found by FastICA (Hyvärinen, 1999), all directions at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kedge.geometry.eigen import eigh
from kedge.geometry.procrustes import nearest_rotation

_ROUNDS, _SETTLED = 100, 1e-3
# Values are clipped to this many standard deviations where a few outliers would decide.
_MAX_VALUE = 6.0


@dataclass(frozen=True)
class Components:
    """The independent components of a space, the most peaked first.

    Rows (n, d) times `directions` (d, k) give values (n, k) that have variance 1, are uncorrelated, and are as
    independent as possible; signs are such that large values are mostly positive. Values times the transpose of
    `loadings` (d, k) give the rows again, projected on the leading principal axes.
    """

    directions: Tensor
    loadings: Tensor

    @classmethod
    def of(cls, rows: Tensor, count: int) -> Components:
        """At most `count` components of rows (n, d), within as many leading principal axes as they vary along."""
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
    """The rotation (k, k) that makes the coordinates of whitened rows (n, k) as independent as possible."""
    turn = torch.eye(white.shape[1], dtype=white.dtype, device=white.device)
    for _ in range(_ROUNDS):
        squashed = torch.tanh(white @ turn)
        slope = 1 - squashed.square().mean(dim=0)
        step = white.T @ squashed / len(white) - turn * slope
        before, turn = turn, nearest_rotation(step.double()).to(white.dtype)
        if float((1 - (before * turn).sum(dim=0).abs()).max()) < _SETTLED:
            break
    return turn

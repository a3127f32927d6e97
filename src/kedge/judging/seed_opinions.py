"""What a run thinks of each seed, read without its own pair: a seed is given, and what is given is not a finding."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.judging.health import SEED_OPINIONS
from kedge.matching import Problem

# A partner is near if it is among so many of the nearest rows, or among this share of all.
_NEAR_ROWS, _NEAR_SHARE = 10, 0.01


def contradicted_seeds(problem: Problem, closer: Tensor) -> Tensor:
    """Mask (s,) of the seeds whose rows are not even near each other: so many rows (s,) are closer to one of them."""
    near = max(_NEAR_ROWS, _NEAR_SHARE * (len(problem.x) + len(problem.y)) / 2)
    return closer >= near


def name_opinions(agrees: Tensor, contradicted: Tensor, *, known: bool) -> NDArray[np.str_]:
    """An opinion (s,) of each seed, from two masks (s,); all are unknown where nothing is `known`."""
    code = torch.where(contradicted, 2, torch.where(agrees, 0, 1))
    return np.array(SEED_OPINIONS)[(code if known else torch.full_like(code, 3)).cpu().numpy()]

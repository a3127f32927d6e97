"""How well labels were predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError

Labels = Sequence[str] | Sequence[int] | NDArray[Any]


@dataclass(frozen=True)
class StitchScores:
    """How well labels were predicted.

    `weighted_f1`: F1 of each class, weighted by how often it is the true one; `accuracy`: the share of right
    predictions; `mae`: mean absolute error if labels are numbers, otherwise None.
    """

    weighted_f1: float
    accuracy: float
    mae: float | None


def stitch_scores(labels: Labels, predicted: Labels) -> StitchScores:
    """Compare predicted labels (n,) with the true ones (n,); labels that were never predicted count as misses."""
    guess = as_labels(predicted, len(predicted))
    truth = as_labels(labels, len(guess))
    numbers = truth.dtype.kind in "iu"
    if numbers != (guess.dtype.kind in "iu"):
        raise InputError(
            f"labels: strings and numbers cannot be compared, got {truth[0].item()!r} where {guess[0].item()!r} "
            "was predicted; give both as strings or both as whole numbers"
        )
    return StitchScores(
        weighted_f1=_weighted_f1(truth, guess),
        accuracy=float(np.mean(truth == guess)),
        mae=float(np.abs(truth.astype(np.float64) - guess.astype(np.float64)).mean()) if numbers else None,
    )


def _weighted_f1(truth: NDArray[Any], guess: NDArray[Any]) -> float:
    """Mean F1 of the classes, weighted by how often each is the true one.

    Not scikit-learn's `f1_score`, which needs the extra `stitch`; the head "mlp" works without it.
    """
    classes, encoded = np.unique(np.concatenate([truth, guess]), return_inverse=True)
    true, guessed = encoded[: len(truth)], encoded[len(truth) :]
    support = np.bincount(true, minlength=len(classes))
    hits = np.bincount(true[true == guessed], minlength=len(classes))
    # F1 is the harmonic mean of hits / guesses and hits / support; every class occurs in one of the two.
    f1 = 2 * hits / (support + np.bincount(guessed, minlength=len(classes)))
    return float(support @ f1 / len(truth))


def as_labels(labels: Any, rows: int) -> NDArray[Any]:
    """Labels (n,) as an array of strings or of whole numbers."""
    if hasattr(labels, "detach"):  # a torch tensor
        labels = labels.detach().cpu().numpy()
    # As objects, since NumPy would convert mixed labels to one type, and a NaN to a string.
    values = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if values.ndim != 1:
        raise InputError(f"labels must be a list with one label for each row, got shape {values.shape}")
    if len(values) != rows:
        raise InputError(f"labels: one for each row is needed, got {len(values)} for {rows} rows")
    if rows == 0:
        raise InputError("labels: none are given; give at least one row and its label")
    listed = values.tolist()
    if all(isinstance(label, str) for label in listed):
        return np.asarray(listed, dtype=np.str_)
    for row, label in enumerate(listed):
        # NaN, which marks a missing label in tables of numbers, gives NaN here, which counts as true.
        if not isinstance(label, Real) or label % 1:
            raise InputError(
                f"labels must be all strings or all whole numbers, row {row} has {type(label).__name__} {label!r}; "
                "leave out rows without a label"
            )
    return np.asarray(listed).astype(np.int64)

"""Zero-shot stitching: a head trained on one space's relative coordinates serves the other space unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError
from kedge.estimators import KnownAnchors
from kedge.estimators.fitted import AnchorKind
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.estimators.parameters import Parameters
from kedge.spaces.conversion import SpaceLike
from kedge.tasks.heads import Head, make_head

Space = Literal["x", "y"]
Labels = Sequence[str] | Sequence[int] | NDArray[Any]


class Coordinates(Protocol):
    """Something fitted that gives both spaces comparable coordinates: `AnchorDiscovery` or `KnownAnchors`."""

    def transform_x(self, vectors: SpaceLike, /) -> NDArray[np.float32]:
        """Coordinates (k, a) of vectors (k, dx) of X."""

    def transform_y(self, vectors: SpaceLike, /) -> NDArray[np.float32]:
        """Coordinates (k, a) of vectors (k, dy) of Y."""


@dataclass(frozen=True)
class StitchScores:
    """How well labels were predicted.

    `weighted_f1`: F1 of each class, weighted by how often it is the true one; `accuracy`: the share that is right;
    `mae`: mean absolute error, where labels are numbers, otherwise None.
    """

    weighted_f1: float
    accuracy: float
    mae: float | None


class Stitcher(Parameters):
    """Train a classifier on one space, use it on the other.

    Parameters
    ----------
    coordinates : AnchorDiscovery or KnownAnchors
        Fitted; gives both spaces comparable coordinates.
    head : {"logistic", "mlp"} or scikit-learn classifier
        "logistic" is standardised logistic regression (needs `kedge[stitch]`), "mlp" the paper's small network
        (see `MLPHead`). A classifier is copied, never changed.
    space : {"x", "y"}
        The space whose labelled vectors train the head.
    anchors : {"free", "snapped", "seeds"}, optional
        Which anchors of an `AnchorDiscovery` to use; by default the free ones.
    random_state : int, generator of NumPy or None
        For "mlp": the same number gives the same answer on the same machine. "logistic" leaves nothing to chance.

    Attributes
    ----------
    head_ : classifier
        As fitted.
    classes_ : array, shape (c,)
        The distinct labels, sorted.

    Examples
    --------
    >>> stitcher = Stitcher(discovery).fit(x, labels)
    >>> stitcher.predict_y(y)
    >>> stitcher.score_y(y, labels_y).weighted_f1
    """

    def __init__(
        self,
        coordinates: Coordinates,
        *,
        head: str | Head = "logistic",
        space: Space = "x",
        anchors: AnchorKind | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.coordinates = coordinates
        self.head = head
        self.space = space
        self.anchors = anchors
        self.random_state = random_state

    def fit(self, vectors: SpaceLike, labels: Labels) -> Stitcher:
        """Train the head.

        Parameters
        ----------
        vectors : space (n, d)
            Of the kind named by `space`: Embeddings, an array, a DataFrame, ...: see `AnchorDiscovery.fit`.
        labels : strings or whole numbers, shape (n,)
            At least two different ones.
        """
        head = make_head(self.head, as_random_state(self.random_state))
        coordinates = self._transform(vectors, self.space)
        known = _as_labels(labels, len(coordinates))
        if len(np.unique(known)) < 2:
            raise InputError(f"labels: at least two classes are needed, all {len(known)} are {known[0].item()!r}")
        head.fit(coordinates, known)
        self.head_ = head
        self.classes_ = head.classes_
        return self

    def predict(self, vectors: SpaceLike, space: Space) -> NDArray[Any]:
        """Labels (k,) for vectors (k, d) of the space "x" or "y"."""
        return self._fitted_head().predict(self._transform(vectors, space))

    def predict_x(self, vectors: SpaceLike) -> NDArray[Any]:
        """Labels (k,) for vectors (k, dx) of X."""
        return self.predict(vectors, "x")

    def predict_y(self, vectors: SpaceLike) -> NDArray[Any]:
        """Labels (k,) for vectors (k, dy) of Y."""
        return self.predict(vectors, "y")

    def predict_proba(self, vectors: SpaceLike, space: Space) -> NDArray[np.floating]:
        """Probabilities (k, c) of the classes, in the order of `classes_`, where the head can tell."""
        head = self._fitted_head()
        if not hasattr(head, "predict_proba"):
            raise InputError(f"head: {head!r} gives no probabilities; use predict, or another head")
        probabilities: NDArray[np.floating] = head.predict_proba(self._transform(vectors, space))
        return probabilities

    def score(self, vectors: SpaceLike, labels: Labels, space: Space) -> StitchScores:
        """Compare predictions for vectors (k, d) of a space with their true labels (k,)."""
        predicted = self.predict(vectors, space)
        return stitch_scores(labels, predicted)

    def score_x(self, vectors: SpaceLike, labels: Labels) -> StitchScores:
        """Compare predictions for vectors (k, dx) of X with their true labels (k,)."""
        return self.score(vectors, labels, "x")

    def score_y(self, vectors: SpaceLike, labels: Labels) -> StitchScores:
        """Compare predictions for vectors (k, dy) of Y with their true labels (k,)."""
        return self.score(vectors, labels, "y")

    def _transform(self, vectors: SpaceLike, space: Space) -> NDArray[np.float32]:
        """Coordinates (k, a) of vectors (k, d) of a space."""
        if space not in ("x", "y"):
            raise InputError(f"space must be 'x' or 'y', got {space!r}")
        # Not every kind of coordinates has anchors to choose from, so the protocol does not know of them.
        transform: Any = self.coordinates.transform_x if space == "x" else self.coordinates.transform_y
        if self.anchors is None:
            coordinates: NDArray[np.float32] = transform(vectors)
        elif isinstance(self.coordinates, KnownAnchors):
            raise InputError(f"anchors: KnownAnchors have one kind only, got {self.anchors!r}; leave it out")
        else:
            coordinates = transform(vectors, anchors=self.anchors)
        if coordinates.ndim == 1:
            raise InputError("vectors must have shape (rows, dimensions), got one vector; give a list of it alone")
        if coordinates.shape[1] == 0:
            raise InputError(f"anchors={self.anchors!r}: there are none to compare with; use 'free' or 'snapped'")
        return coordinates

    def _fitted_head(self) -> Any:
        if not hasattr(self, "head_"):
            raise NotFittedError("this Stitcher is not fitted yet; call fit first")
        return self.head_


def stitch_scores(labels: Labels, predicted: Labels) -> StitchScores:
    """Compare predicted labels (n,) with the true ones (n,); labels that were never predicted count as misses."""
    guess = _as_labels(predicted, len(predicted))
    truth = _as_labels(labels, len(guess))
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
    """Mean F1 of the classes, weighted by how often each is the true one."""
    classes, encoded = np.unique(np.concatenate([truth, guess]), return_inverse=True)
    true, guessed = encoded[: len(truth)], encoded[len(truth) :]
    support = np.bincount(true, minlength=len(classes))
    hits = np.bincount(true[true == guessed], minlength=len(classes))
    # F1 is the harmonic mean of hits / guesses and hits / support; every class occurs in one of the two.
    f1 = 2 * hits / (support + np.bincount(guessed, minlength=len(classes)))
    return float(support @ f1 / len(truth))


def _as_labels(labels: Any, rows: int) -> NDArray[Any]:
    """Labels (n,) as an array of strings or of whole numbers."""
    if hasattr(labels, "detach"):  # a torch tensor
        labels = labels.detach().cpu().numpy()
    # As objects: NumPy would make one kind of several, and a string of a NaN.
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
        # NaN, which stands for a missing label in tables of numbers, leaves NaN, which counts as true.
        if not isinstance(label, Real) or label % 1:
            raise InputError(
                f"labels must be all strings or all whole numbers, row {row} has {type(label).__name__} {label!r}; "
                "leave out rows without a label"
            )
    return np.asarray(listed).astype(np.int64)

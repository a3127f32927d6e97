"""Zero-shot stitching: a head trained on one space's relative coordinates serves the other space unchanged."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, NotFittedError
from kedge.estimators import KnownAnchors
from kedge.estimators.inputs import RandomState, as_random_state
from kedge.estimators.parameters import Parameters
from kedge.models.side import AnchorKind, Side
from kedge.spaces.conversion import SpaceLike
from kedge.tasks.stitching.heads import Head, make_head
from kedge.tasks.stitching.label_scores import Labels, StitchScores, as_labels, stitch_scores

Space = Literal["x", "y"]


class Coordinates(Protocol):
    """A fitted estimator that gives both spaces comparable coordinates: `AnchorDiscovery` or `KnownAnchors`."""

    @property
    def x_(self) -> Side:
        """The side of X."""

    @property
    def y_(self) -> Side:
        """The side of Y."""


class Stitcher(Parameters):
    """Train a classifier on one space and use it on the other.

    Parameters
    ----------
    coordinates : AnchorDiscovery or KnownAnchors
        A fitted estimator that gives both spaces comparable coordinates.
    head : {"logistic", "mlp"} or scikit-learn classifier
        "logistic" is logistic regression on standardised coordinates (needs `kedge[stitch]`), "mlp" the paper's small
        network (see `MLPHead`). A given classifier is copied, never changed.
    space : {"x", "y"}
        The space whose labelled vectors train the head.
    anchors : {"free", "snapped", "seeds"}, optional
        Which anchors of an `AnchorDiscovery` to use; by default the free ones.
    random_state : int, NumPy generator or None
        For "mlp": the same number gives the same result on the same machine. "logistic" does not depend on it.

    Attributes
    ----------
    head_ : classifier
        The fitted head.
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
            Vectors of the space named by `space`, as Embeddings, an array, a DataFrame, ...: see `AnchorDiscovery.fit`.
        labels : strings or whole numbers, shape (n,)
            At least two distinct ones.
        """
        head = make_head(self.head, as_random_state(self.random_state))
        coordinates = self._transform(vectors, self.space)
        known = as_labels(labels, len(coordinates))
        if len(np.unique(known)) < 2:
            raise InputError(f"labels: at least two classes are needed, all {len(known)} are {known[0].item()!r}")
        head.fit(coordinates, known)
        self.head_ = head
        self.classes_ = head.classes_
        return self

    def predict(self, vectors: SpaceLike, space: Space) -> NDArray[Any]:
        """Labels (k,) for vectors (k, d) of space "x" or "y"."""
        return self._fitted_head().predict(self._transform(vectors, space))

    def predict_x(self, vectors: SpaceLike) -> NDArray[Any]:
        """Labels (k,) for vectors (k, dx) of X."""
        return self.predict(vectors, "x")

    def predict_y(self, vectors: SpaceLike) -> NDArray[Any]:
        """Labels (k,) for vectors (k, dy) of Y."""
        return self.predict(vectors, "y")

    def predict_proba(self, vectors: SpaceLike, space: Space) -> NDArray[np.floating]:
        """Probabilities (k, c) of the classes, in the order of `classes_`, if the head provides them."""
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
        if self.anchors is not None and isinstance(self.coordinates, KnownAnchors):
            raise InputError(f"anchors: KnownAnchors have only one kind, got {self.anchors!r}; omit it")
        if not hasattr(self.coordinates, "x_"):
            raise NotFittedError(f"this {type(self.coordinates).__name__} is not fitted yet; call fit first")
        side = self.coordinates.x_ if space == "x" else self.coordinates.y_
        coordinates = side.relative(vectors, anchors=self.anchors or "free")
        if coordinates.ndim == 1:
            raise InputError("vectors must have shape (rows, dimensions), got one vector; put it in a list")
        if coordinates.shape[1] == 0:
            raise InputError(f"anchors={self.anchors!r}: this run has no such anchors; use 'free' or 'snapped'")
        return coordinates

    def _fitted_head(self) -> Any:
        if not hasattr(self, "head_"):
            raise NotFittedError("this Stitcher is not fitted yet; call fit first")
        return self.head_

"""Classifiers on relative coordinates: the paper's small network, or a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from kedge.errors import InputError, NotFittedError
from kedge.estimators.parameters import Parameters
from kedge.extras import needing

_PREDICT_ROWS = 8192
# Coordinates are cosines to anchors that resemble each other: L-BFGS converges, but may need many steps.
_MAX_STEPS = 10_000


class Head(Protocol):
    """What a classifier must provide; `predict_proba` is optional."""

    classes_: NDArray[Any]

    def fit(self, X: NDArray[np.float32], y: NDArray[Any], /) -> Any:
        """Learn from coordinates (n, a) and labels (n,)."""

    def predict(self, X: NDArray[np.float32], /) -> NDArray[Any]:
        """Labels (k,) of coordinates (k, a)."""


class MLPHead(Parameters):
    """The paper's small network: LayerNorm, two hidden layers as wide as the coordinates, SiLU, Adam.

    Parameters
    ----------
    epochs, batch_size, learning_rate : int, int, float
        Training settings.
    random_state : int
        The same number gives the same network on the same machine; torch's global random state is not touched.

    Attributes
    ----------
    classes_ : array, shape (c,)
        The distinct labels, sorted.
    network_ : torch.nn.Module
    """

    def __init__(
        self, *, epochs: int = 5, batch_size: int = 32, learning_rate: float = 1e-3, random_state: int = 0
    ) -> None:
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, coordinates: NDArray[np.floating], labels: NDArray[Any]) -> MLPHead:
        """Learn from coordinates (n, a) and labels (n,)."""
        for name, minimum in (("epochs", 1), ("batch_size", 1), ("random_state", 0)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or not minimum <= value < 2**63:
                raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
        if len(coordinates) != len(labels):
            raise InputError(f"labels: one for each row is needed, got {len(labels)} for {len(coordinates)} rows")
        self.classes_, encoded = np.unique(labels, return_inverse=True)
        rows, targets = _tensor(coordinates), torch.from_numpy(encoded)
        generator = torch.Generator().manual_seed(self.random_state)
        self.network_ = _network(rows.shape[1], len(self.classes_), generator)
        optimiser = torch.optim.Adam(self.network_.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            order = torch.randperm(len(rows), generator=generator)
            for begin in range(0, len(rows), self.batch_size):
                batch = order[begin : begin + self.batch_size]
                optimiser.zero_grad()
                loss = cross_entropy(self.network_(rows[batch]), targets[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        return self

    def predict(self, coordinates: NDArray[np.floating]) -> NDArray[Any]:
        """Labels (k,) of coordinates (k, a)."""
        likeliest = self.predict_proba(coordinates).argmax(axis=1)
        return self.classes_[likeliest]

    def predict_proba(self, coordinates: NDArray[np.floating]) -> NDArray[np.float32]:
        """Probabilities (k, c) of the classes, in the order of `classes_`."""
        if not hasattr(self, "network_"):
            raise NotFittedError("this MLPHead is not fitted yet; call fit first")
        return np.concatenate(list(self._probabilities(coordinates)))

    def _probabilities(self, coordinates: NDArray[np.floating]) -> Iterator[NDArray[np.float32]]:
        for begin in range(0, len(coordinates), _PREDICT_ROWS):
            with torch.inference_mode():
                logits = self.network_(_tensor(coordinates[begin : begin + _PREDICT_ROWS]))
                yield logits.softmax(dim=1).numpy()


def make_head(head: str | Head, random_state: int) -> Head:
    """A new classifier by name, or an unfitted copy of a given one, which is not changed."""
    if head == "mlp":
        return MLPHead(random_state=random_state)
    if isinstance(head, MLPHead):
        return MLPHead(**head.get_params())
    if head == "logistic":
        return _logistic()
    if isinstance(head, str) or not all(hasattr(head, name) for name in ("fit", "predict", "get_params")):
        raise InputError(f"head must be 'logistic', 'mlp' or a scikit-learn classifier, got {head!r}")
    sklearn = _import_sklearn()
    if not sklearn.base.is_classifier(head):
        raise InputError(f"head must be a classifier, got {head!r}")
    copy: Head = sklearn.base.clone(head)
    return copy


def _logistic() -> Head:
    sklearn = _import_sklearn()
    # In float32, rounding can stop L-BFGS before its tolerance is met.
    in_double = sklearn.preprocessing.FunctionTransformer(np.asarray, kw_args={"dtype": np.float64})
    regression = sklearn.linear_model.LogisticRegression(max_iter=_MAX_STEPS)
    pipeline: Head = sklearn.pipeline.make_pipeline(in_double, sklearn.preprocessing.StandardScaler(), regression)
    return pipeline


def _network(width: int, classes: int, generator: torch.Generator) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(width),
        _linear(width, width, generator),
        nn.SiLU(),
        _linear(width, width, generator),
        nn.SiLU(),
        _linear(width, classes, generator),
    )


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A layer initialised like torch's own, but with this generator."""
    # Created on "meta", so that torch does not draw initial weights from its global generator.
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    bound = inputs**-0.5
    for parameter in (layer.weight, layer.bias):
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def _tensor(coordinates: NDArray[np.floating]) -> Tensor:
    # Copied, since torch wants writable memory.
    return torch.from_numpy(np.array(coordinates, dtype=np.float32))


def _import_sklearn() -> ModuleType:
    without = ", or use head='mlp', which does not need it"
    with needing("this head needs", "sklearn", install="kedge[stitch]", otherwise=without):
        import sklearn.base
        import sklearn.linear_model
        import sklearn.pipeline
        import sklearn.preprocessing
    module: ModuleType = sklearn
    return module

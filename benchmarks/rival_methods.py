"""Other ways to align two spaces, each in a few lines of our own: what `methods.py` compares kedge with.

Each takes unit, centered rows: those of the known pairs (`FromPairs`), or all rows of X (n, dx) and Y (m, dy)
(`FromRows`). The result is applied to new rows of X, and of Y, before they are compared by cosine.

- From the known pairs alone: *Procrustes*, *ridge*, and the *low-rank affine* and *residual MLP* adapters of
  Drift-Adapter (Vejendla 2025; trained by gradient, stopped on a tenth of the pairs).
- *VecMap* (Artetxe, Labaka and Agirre 2018): self-learning from the known pairs, or without any from sorted
  similarities, with CSLS and a falling dropout; at the end whitening, re-weighting and de-whitening.
- *clusters*: the start of mini-vec2vec (Dar 2025): centroids of both spaces are matched by quadratic assignment,
  several times. Rows are compared by their similarities to these, and the mean of the nearest few becomes a
  pseudo-partner; then follow rounds of Procrustes on such means.
- *Gromov-Wasserstein*: the entropic plan of POT on a sample, and the rotation it implies.

The last two use no known pairs. They are written from the papers' descriptions, for one core and thousands of rows; the
authors' own code may do better.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import quadratic_assignment
from sklearn.cluster import KMeans
from torch import Tensor

from kedge.geometry import moments_of, nearest_rotation, ridge, unit

Apply = Callable[[Tensor], Tensor]
FromPairs = Callable[[Tensor, Tensor], Apply]
FromRows = Callable[[Tensor, Tensor], tuple[Apply, Apply]]

_PENALTIES = (0.0, 0.001, 0.01, 0.1, 1.0)
_RANKS = (32, 64, 128)
_HELD_OUT = 0.1  # of the known pairs, to choose penalties, ranks and when to stop
_STEPS, _PATIENCE = 2000, 10
_NEIGHBOURS = 10  # of CSLS
_VECMAP_ROUNDS, _VECMAP_STALL, _VECMAP_START_ROWS = 200, 10, 4000
_CENTROIDS, _CLUSTERINGS, _ASSIGNMENTS, _PSEUDO_PARTNERS, _CLUSTER_ROUNDS = 20, 10, 30, 10, 30
_PLAN_ROWS, _PLAN_EPSILON = 1000, 0.05


def same(rows: Tensor) -> Tensor:
    """Nothing is done to the rows."""
    return rows


# -- from the known pairs alone -------------------------------------------------------------------


def by_rotation(source: Tensor, target: Tensor) -> Apply:
    """Procrustes."""
    matrix = nearest_rotation(moments_of(source.double(), target.double()).cross).float()
    return lambda rows: rows @ matrix


def by_ridge(source: Tensor, target: Tensor) -> Apply:
    """Least squares with the penalty that does best on held-out pairs."""

    def fit(penalty: float, fitted: slice) -> Tensor:
        moments = moments_of(source[fitted].double(), target[fitted].double())
        return ridge(moments.source, moments.cross, penalty).float()

    test, rest = _parts(len(source))
    best = max(_PENALTIES, key=lambda penalty: _cosine(source[test] @ fit(penalty, rest), target[test]))
    matrix = fit(best, slice(None))
    return lambda rows: rows @ matrix


def by_low_rank(source: Tensor, target: Tensor) -> Apply:
    """A rotation and an affine correction of low rank, U V' + t, by gradient (the low-rank adapter)."""
    rotation = nearest_rotation(moments_of(source.double(), target.double()).cross).float()

    def start(rank: int) -> tuple[list[Tensor], Apply]:
        generator = torch.Generator().manual_seed(0)
        left = 0.01 * torch.randn(source.shape[1], rank, generator=generator)
        parts = [left.requires_grad_(), torch.zeros(rank, target.shape[1]).requires_grad_()]
        shift = torch.zeros(target.shape[1]).requires_grad_()
        return [*parts, shift], lambda rows: rows @ rotation + rows @ parts[0] @ parts[1] + shift

    return _best_trained(source, target, [start(rank) for rank in _RANKS])


def by_residual_mlp(source: Tensor, target: Tensor) -> Apply:
    """A rotation and a correction by one hidden layer of 256, by gradient (the residual adapter)."""
    rotation = nearest_rotation(moments_of(source.double(), target.double()).cross).float()
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(source.shape[1], 256), torch.nn.GELU(), torch.nn.Linear(256, target.shape[1])
    )
    torch.nn.init.zeros_(network[2].weight)
    torch.nn.init.zeros_(network[2].bias)
    return _best_trained(source, target, [(list(network.parameters()), lambda rows: rows @ rotation + network(rows))])


FROM_PAIRS: dict[str, FromPairs] = {
    "Procrustes": by_rotation,
    "ridge": by_ridge,
    "low-rank affine": by_low_rank,
    "residual MLP": by_residual_mlp,
}


def _best_trained(source: Tensor, target: Tensor, candidates: list[tuple[list[Tensor], Apply]]) -> Apply:
    """Train all until held-out pairs get no closer; the best of them, at its best."""
    test, rest = _parts(len(source))
    best_score, best = -1.0, candidates[0]
    for parameters, apply in candidates:
        optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-4)
        generator = torch.Generator().manual_seed(0)
        reached, kept, waited = -1.0, [part.detach().clone() for part in parameters], 0
        for step in range(_STEPS):
            if step % 25 == 0:
                with torch.no_grad():
                    score = _cosine(apply(source[test]), target[test])
                if score > reached:
                    reached, kept, waited = score, [part.detach().clone() for part in parameters], 0
                elif (waited := waited + 1) > _PATIENCE:
                    break
            rows = torch.randint(len(source[rest]), (min(512, len(source[rest])),), generator=generator)
            loss = -_cosine_of(apply(source[rest][rows]), target[rest][rows]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            for part, value in zip(parameters, kept, strict=True):
                part.copy_(value)
        if reached > best_score:
            best_score, best = reached, (parameters, apply)

    def translate(rows: Tensor) -> Tensor:
        with torch.no_grad():
            return best[1](rows)

    return translate


def _parts(count: int) -> tuple[slice, slice]:
    """Pairs to test on, and the rest; the pairs are in random order."""
    held_out = max(2, int(_HELD_OUT * count))
    return slice(0, held_out), slice(held_out, None)


def _cosine_of(rows: Tensor, targets: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(rows, targets, dim=1)


def _cosine(rows: Tensor, targets: Tensor) -> float:
    return float(_cosine_of(rows, targets).mean())


# -- VecMap ---------------------------------------------------------------------------------------


def by_vecmap(x: Tensor, y: Tensor, known: NDArray[np.int64]) -> tuple[Apply, Apply]:
    """Self-learning to the end, then the symmetric mapping of the last dictionary."""
    rows_x, rows_y = _vecmap_dictionary(x, y, known)
    return symmetric_mapping(x[rows_x], y[rows_y])


def symmetric_mapping(source: Tensor, target: Tensor) -> tuple[Apply, Apply]:
    """Both whitened on the pairs, turned, re-weighted by the root of the singular values, and de-whitened."""
    (white_x, back_x), (white_y, back_y) = (_whitening(rows.double()) for rows in (source, target))
    left, values, right = torch.linalg.svd(
        (source.double() @ white_x).T @ (target.double() @ white_y), full_matrices=False
    )
    weights = values.sqrt()
    matrix_x = (white_x @ left * weights) @ (left.T @ back_x @ left)
    matrix_y = (white_y @ right.T * weights) @ (right @ back_y @ right.T)
    return lambda rows: unit(rows @ matrix_x.float()), lambda rows: unit(rows @ matrix_y.float())


def _whitening(rows: Tensor) -> tuple[Tensor, Tensor]:
    values, axes = torch.linalg.eigh(rows.T @ rows)
    roots = values.clamp_min(1e-9 * float(values[-1])).sqrt()
    return (axes / roots) @ axes.T, (axes * roots) @ axes.T


def _vecmap_dictionary(x: Tensor, y: Tensor, known: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Rotation and CSLS dictionary in turn, both ways; fewer entries are dropped whenever the objective stalls, for ten
    rounds instead of fifty.
    """
    generator = torch.Generator().manual_seed(0)
    if len(known):
        pairs = torch.from_numpy(known[:, 0]), torch.from_numpy(known[:, 1])
    else:
        first, second = (sorted_similarities(space[:_VECMAP_START_ROWS]) for space in (x, y))
        pairs = _both_ways(_csls_of(first @ second.T))
    keep, best, stalled = 0.1, -1.0, 0
    for _ in range(_VECMAP_ROUNDS):
        rotation = nearest_rotation((x[pairs[0]].T @ y[pairs[1]]).double()).float()
        similarity = (x @ rotation) @ y.T
        objective = float((similarity.max(dim=1).values.mean() + similarity.max(dim=0).values.mean()) / 2)
        stalled = 0 if objective > best + 1e-6 else stalled + 1
        best = max(best, objective)
        if stalled >= _VECMAP_STALL:
            if keep >= 1:
                break
            keep, stalled = min(1.0, 2 * keep), 0
        scores = _csls_of(similarity)
        if keep < 1:
            scores = scores.masked_fill_(torch.rand(scores.shape, generator=generator) > keep, -10)
        pairs = _both_ways(scores)
    return pairs


def sorted_similarities(space: Tensor) -> Tensor:
    """How a row's similarities to its own space are distributed, as unit, centered rows: what VecMap begins with where
    no pair is known. It takes them of the root of the similarity matrix.
    """
    left, values, _ = torch.linalg.svd(space, full_matrices=False)
    profile = unit(((left * values) @ left.T).sort(dim=1).values)
    return unit(profile - profile.mean(dim=0))


def _both_ways(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The best column of every row, and the best row of every column."""
    forth, back = scores.argmax(dim=1), scores.argmax(dim=0)
    return torch.cat([torch.arange(len(forth)), back]), torch.cat([forth, torch.arange(len(back))])


def _csls_of(similarity: Tensor) -> Tensor:
    hubs_a = similarity.topk(_NEIGHBOURS, dim=1).values.mean(dim=1)
    hubs_b = similarity.T.contiguous().topk(_NEIGHBOURS, dim=1).values.mean(dim=1)  # quicker than along columns
    return similarity - hubs_a[:, None] / 2 - hubs_b / 2


# -- without any pair -----------------------------------------------------------------------------


def by_clusters(x: Tensor, y: Tensor) -> tuple[Apply, Apply]:
    """Centroids matched by quadratic assignment, pseudo-partners by them, and Procrustes in rounds."""
    coordinates = [_matched_centroids(x, y, state) for state in range(_CLUSTERINGS)]
    by_x, by_y = (torch.cat([pair[side] for pair in coordinates], dim=1) for side in (0, 1))
    rotation = _rotation_to_means(x, y, unit(by_x) @ unit(by_y).T)
    for _ in range(_CLUSTER_ROUNDS):
        rotation = _rotation_to_means(x, y, unit(x @ rotation) @ y.T)
    return lambda rows: rows @ rotation, same


def _matched_centroids(x: Tensor, y: Tensor, state: int) -> tuple[Tensor, Tensor]:
    """Similarities of the rows of both spaces to centroids that correspond, each centered and of deviation 1."""
    centroids = [
        unit(torch.from_numpy(KMeans(_CENTROIDS, n_init=1, random_state=state).fit(space.numpy()).cluster_centers_))
        for space in (x, y)
    ]
    within = [(rows @ rows.T).numpy() for rows in centroids]
    tries = (
        quadratic_assignment(*within, options={"maximize": True, "rng": np.random.default_rng(attempt)})
        for attempt in range(_ASSIGNMENTS)
    )
    order = torch.from_numpy(max(tries, key=lambda found: found.fun).col_ind)
    to_x, to_y = x @ centroids[0].T, y @ centroids[1][order].T
    return tuple((rows - rows.mean(dim=0)) / rows.std(dim=0) for rows in (to_x, to_y))  # type: ignore[return-value]


def _rotation_to_means(x: Tensor, y: Tensor, similarity: Tensor) -> Tensor:
    """The rotation from rows of X to the means of the rows of Y that are most similar to them."""
    nearest = similarity.topk(_PSEUDO_PARTNERS, dim=1).indices
    return nearest_rotation((x.T @ y[nearest].mean(dim=1)).double()).float()


def by_gromov_wasserstein(x: Tensor, y: Tensor) -> tuple[Apply, Apply]:
    """The plan between the distances within samples of both, and the rotation to where it sends the rows of X."""
    import ot

    sample_x, sample_y = x[:_PLAN_ROWS], y[:_PLAN_ROWS]
    within = [(1 - rows @ rows.T).double() for rows in (sample_x, sample_y)]
    within = [(distances / distances.std()).numpy() for distances in within]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inner iterations that end early: the outer ones go on from there
        plan = ot.gromov.entropic_gromov_wasserstein(*within, epsilon=_PLAN_EPSILON, max_iter=100)
    rotation = nearest_rotation(sample_x.double().T @ torch.from_numpy(plan) @ sample_y.double()).float()
    return lambda rows: rows @ rotation, same


WITHOUT_PAIRS: dict[str, FromRows] = {"clusters": by_clusters, "Gromov-Wasserstein": by_gromov_wasserstein}

"""Retrieval metrics against a plain NumPy version with the matrix stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kedge import InputError, retrieval_scores
from kedge.tasks import shared_scores


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def plain_scores(source: np.ndarray, target: np.ndarray, k: int) -> dict[str, float]:
    source, target = unit(source), unit(target)
    return scores_of(source @ source.T, source @ target.T, np.sum(source * target, axis=1), k)


def scores_of(within: np.ndarray, across: np.ndarray, cosine: np.ndarray, k: int) -> dict[str, float]:
    n = len(within)
    jaccard, reciprocal, first, closer = [], [], [], []
    for row in range(n):
        near_source = set(np.argsort(-within[row])[:k].tolist())
        order = np.argsort(-across[row]).tolist()
        near = set(order[:k])
        jaccard.append(len(near & near_source) / len(near | near_source))
        rank = order.index(row) + 1
        reciprocal.append(1 / rank if rank <= k else 0)
        first.append(rank == 1)
        closer.append((across[row] > across[row, row]).sum() / (n - 1))
        closer.append((across[:, row] > across[row, row]).sum() / (n - 1))
    return {
        "jaccard": np.mean(jaccard),
        "mrr": np.mean(reciprocal),
        "cosine": np.mean(cosine),
        "p_at_1": np.mean(first),
        "foscttm": np.mean(closer),
    }


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("k", [1, 10])
def test_against_the_plain_version(noise, k):
    chance = np.random.default_rng(0)
    source = chance.standard_normal((150, 12))
    target = source + noise * chance.standard_normal((150, 12))
    scores = retrieval_scores(torch.from_numpy(source), torch.from_numpy(target), k, budget=20_000)
    for name, value in plain_scores(source, target, k).items():
        assert getattr(scores, name) == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("k", [1, 10])
def test_shared_coordinates_are_compared_by_inner_product(k):
    chance = np.random.default_rng(1)
    source = chance.standard_normal((150, 8)) * np.geomspace(3, 0.3, 8)
    target = source + chance.standard_normal((150, 8))
    source[:, -1], target[:, -2] = 1, 1  # as the pair model has them
    scores = shared_scores(torch.from_numpy(source), torch.from_numpy(target), k, budget=20_000)
    left, right = unit(source[:, :-2]), unit(target[:, :-2])
    plain = scores_of(left @ left.T, source @ target.T, np.sum(left * right, axis=1), k)
    for name, value in plain.items():
        assert getattr(scores, name) == pytest.approx(value, abs=1e-9), name
    assert scores.mrr != pytest.approx(plain_scores(source, target, k)["mrr"], abs=1e-3)


def test_a_space_with_itself_is_perfect_and_with_noise_is_chance():
    source = torch.randn(400, 20, generator=torch.Generator().manual_seed(0))
    same = retrieval_scores(source, source)
    assert (same.jaccard, same.mrr, same.p_at_1, same.foscttm) == (1, 1, 1, 0)
    assert same.cosine == pytest.approx(1)
    other = retrieval_scores(source, torch.randn(400, 20, generator=torch.Generator().manual_seed(1)))
    assert other.mrr < 0.05
    assert other.foscttm == pytest.approx(0.5, abs=0.05)


def test_few_rows_and_bad_shapes():
    one = retrieval_scores(torch.ones(1, 3), torch.ones(1, 3))
    assert (one.mrr, one.foscttm) == (1, 0)
    with pytest.raises(InputError, match="matrices of one shape"):
        retrieval_scores(torch.ones(2, 3), torch.ones(3, 3))
    with pytest.raises(InputError, match="k must be"):
        retrieval_scores(torch.ones(2, 3), torch.ones(2, 3), 0)
    with pytest.raises(InputError, match="at least 3 columns, got 2"):
        shared_scores(torch.ones(2, 2), torch.ones(2, 2))

"""Spaces with a known truth: noise in which there is nothing to find, symmetric ones, and ones with garbage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shared import Matrix, loaded

NOISE = ("binary-64", "binary-16", "sparse-64", "integer-20", "gauss-3", "gauss-100", "uniform-4", "tied-5", "clusters")
SYMMETRIC = ("mirrored", "two-mirrors", "swapped")
GARBAGE = ("garbage-x", "garbage-both")


@dataclass(frozen=True)
class Spaces:
    """X (n, dx) and Y (m, dy), the row of Y (n,) for each of X (-1: none), and unseen pairs (u,), if any."""

    x: Matrix
    y: Matrix
    truth: NDArray[np.int64]
    unseen: tuple[Matrix, Matrix] | None = None


def noise(name: str, rows: int, chance: np.random.Generator) -> Spaces:
    """Two spaces that have nothing to do with each other."""
    kind, _, dim = name.partition("-")
    shape = rows, int(dim or 64)
    make = {
        "binary": lambda: chance.integers(0, 2, shape),
        "sparse": lambda: chance.random(shape) < 0.1,
        "integer": lambda: chance.poisson(2.0, shape),
        "gauss": lambda: chance.standard_normal(shape),
        "uniform": lambda: chance.random(shape),
        "tied": lambda: np.round(chance.standard_normal(shape)),
        "clusters": lambda: (
            2 * chance.standard_normal((50, shape[1]))[chance.integers(50, size=rows)] + chance.standard_normal(shape)
        ),
    }[kind]
    x, y = (_without_empty(make().astype(np.float32)) for _ in range(2))
    return Spaces(x, y, np.full(rows, -1))


def _without_empty(rows: Matrix) -> Matrix:
    """Rows of zeros have no direction, and would be refused."""
    rows[~rows.any(axis=1), 0] = 1
    return rows


def symmetric(data: Path, name: str, rows: int, axes: int | None, chance: np.random.Generator) -> Spaces:
    """Real words made symmetric: every row comes with its images, and only known pairs say which is which."""
    x, y = loaded(data, "easy", axes)
    copies = {"mirrored": 2, "two-mirrors": 4, "swapped": 2}[name]
    real = chance.permutation(len(x))[: rows // copies * (2 if name != "mirrored" else 1)]
    sides = []
    for space in (x, y):
        unit = space[real] / np.linalg.norm(space[real], axis=1, keepdims=True)
        unit = unit - unit.mean(axis=0)
        one, other = np.array_split(unit, 2)  # two independent halves, as coordinates of one row
        if name == "mirrored":
            images = [unit, -unit]
        elif name == "two-mirrors":
            images = [np.hstack([s * one, t * other]) for s in (1, -1) for t in (1, -1)]
        else:
            images = [np.hstack([one, other]), np.hstack([other, one])]
        sides.append(np.concatenate(images).astype(np.float32))
    left, right = sides
    order = chance.permutation(len(right))
    return Spaces(left, right[order], np.argsort(order))


def garbage(data: Path, pair: str, name: str, rows: int, axes: int | None, chance: np.random.Generator) -> Spaces:
    """Real rows, and as many of noise: in X alone, whose other half stands for items of Y, or in both."""
    x, y = (space / np.linalg.norm(space, axis=1, keepdims=True) for space in loaded(data, pair, axes))
    real = chance.permutation(len(x))[: rows if name == "garbage-x" else rows // 2]
    half = rows // 2

    def add_noise(space: Matrix) -> Matrix:
        return np.concatenate([space, space.std() * chance.standard_normal((half, space.shape[1]))]).astype(np.float32)

    left = add_noise(x[real[:half]])
    right = y[real].astype(np.float32) if name == "garbage-x" else add_noise(y[real])
    order = chance.permutation(len(right))
    truth = np.where(np.arange(len(left)) < half, np.argsort(order)[: len(left)], -1)
    return Spaces(left, right[order], truth)

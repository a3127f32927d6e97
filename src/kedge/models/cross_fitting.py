"""Rows read by pair models that had not seen their pairs.

A pair model was fitted to pairs, the wrong ones included, and makes them look good. So every row is read by a model
fitted without its own pair.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from kedge.matching import Candidates, Comparison, Problem, compare, compare_among, held, map_rows
from kedge.models.pair_fitting import fit_model, pair_cross

FOLDS = 10
"""Models that share the work of reading all rows."""


def cross_fitted(
    problem: Problem,
    rows_x: Tensor,
    rows_y: Tensor,
    generator: torch.Generator,
    folds: int = FOLDS,
    candidates: Candidates | None = None,
) -> Comparison:
    """All rows, each of X read by a pair model fitted to the pairs (p,) of rows less those of one fold of X.

    They are compared among candidates where the problem is not exact; those that are given, or found here.
    """
    model = fit_model(problem, rows_x, rows_y)
    if model.ridge == 0:  # too few pairs for a model, let alone for several
        return compare(problem, model, candidates)
    fold = torch.randint(folds, (len(problem.x),), generator=generator).to(problem.device)
    of_folds = [pair_cross(problem, rows_x[fold[rows_x] == i], rows_y[fold[rows_x] == i]) for i in range(folds)]
    of_all = reduce(torch.add, of_folds)
    models = [model.refitted(problem.spectrum_x, problem.spectrum_y, of_all - left_out) for left_out in of_folds]
    biases = 1 + folds
    # Along every axis of Y both factors are of one size, whatever its variance: half precision keeps them as well.
    scale = _deviations(problem.y)

    def read(rows: Tensor) -> Tensor:
        # A row loses something else under each model: a row of X picks what it does under its own by a 1 among zeros.
        losses = [-other.losses_y(rows) for other in models]
        coordinates = torch.cat([rows / scale, torch.ones_like(losses[0]), *losses], dim=1)
        return held(problem, coordinates, biases, left=False)

    y = map_rows(problem.y, read)
    x = y.new_empty(len(problem.x), y.shape[1])
    for index, other in enumerate(models):
        inside = fold == index
        rows = problem.x[inside].float()
        products = (rows @ other.products_x().to(rows.dtype)) * scale
        picked = rows.new_zeros(len(rows), folds)
        picked[:, index] = 1
        coordinates = torch.cat([products, model.information - other.losses_x(rows), picked], dim=1)
        x[inside] = held(problem, coordinates, biases, left=True)
    return compare_among(problem, x, y, candidates, biases)


def _deviations(rows: Tensor) -> Tensor:
    """About the standard deviations (d,) of rows (n, d) around zero, none of them zero."""
    some = rows[:: max(1, len(rows) // 4096)].float()
    deviations = some.square().mean(dim=0).sqrt()
    return deviations.clamp_min(1e-3 * float(deviations.amax()))

"""Cross-fitting: rows read by pair models that have not seen their pairs.

A pair model makes the pairs it was fitted to look good, wrong ones included. So every row is read by a model fitted
without its own pair.
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
    """Compare all rows, each row of X by a pair model fitted to the pairs (p,) of rows outside its fold of X.

    If the problem is not exact, rows are compared among candidates: those given, or else found here.
    """
    model = fit_model(problem, rows_x, rows_y)
    if model.ridge == 0:  # too few pairs for a model, let alone for several
        return compare(problem, model, candidates)
    fold = torch.randint(folds, (len(problem.x),), generator=generator).to(problem.device)
    of_folds = [pair_cross(problem, rows_x[fold[rows_x] == i], rows_y[fold[rows_x] == i]) for i in range(folds)]
    of_all = reduce(torch.add, of_folds)
    models = [model.refitted(problem.spectrum_x, problem.spectrum_y, of_all - left_out) for left_out in of_folds]
    biases = 1 + folds
    # Both factors then have the same size along every axis of Y, whatever its variance, which half precision needs.
    scale = _deviations(problem.y)

    def read(rows: Tensor) -> Tensor:
        # A row of Y loses a different amount under each model; a row of X picks that of its own by a one-hot vector.
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
    """Approximate standard deviations (d,) of rows (n, d) around zero, none of them zero."""
    some = rows[:: max(1, len(rows) // 4096)].float()
    deviations = some.square().mean(dim=0).sqrt()
    return deviations.clamp_min(1e-3 * float(deviations.amax()))

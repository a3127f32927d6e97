"""Nearest neighbours by similarity: top-k, for one side or both, and the best partner with its lead over all rivals."""

from __future__ import annotations

import torch
from torch import Tensor

from kedge.matching.blocks import DEFAULT_BUDGET, row_blocks
from kedge.matching.kernels.backend import MAX_FUSED_NEIGHBOURS, use_fused

# Columns, or rows, in a group of which only the maximum is looked at first.
_COLUMNS, _ROWS = 16, 8
# Only values of a block that exceed those kept before are sorted, unless more groups of rows than this, per value kept,
# have any: then top-k of the whole block is faster.
_MAX_NEWS = 2


def top_k(a: Tensor, b: Tensor, k: int, *, budget: int = DEFAULT_BUDGET) -> tuple[Tensor, Tensor]:
    """The k largest similarities of each row of a (n, d) to rows of b (m, d), best first.

    Returns values (n, k) and rows of b (n, k); k is at most m.
    """
    k = min(k, len(b))
    if use_fused(a, b) and k <= MAX_FUSED_NEIGHBOURS:
        from kedge.matching.kernels import fused

        return fused.top_k(a, b, k)
    values = a.new_empty(len(a), k)
    indices = torch.empty(len(a), k, dtype=torch.int64, device=a.device)
    for rows, block in row_blocks(a, b, budget):
        values[rows], indices[rows] = largest(block, k)
    return values, indices


def largest(block: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values (n, k) of each row of a block (n, m), best first, and their columns (n, k).

    Only the k groups of columns with the largest maxima can contain them, and maxima are much cheaper than top-k.
    """
    n, m = block.shape
    groups = m // _COLUMNS
    if groups < 4 * k:
        values, columns = block.topk(k, dim=1)
        return values, columns
    grouped = groups * _COLUMNS  # column c is in group c % groups: maxima are taken over contiguous memory
    maxima = block[:, :grouped].view(n, _COLUMNS, groups).amax(dim=1)
    chosen = maxima.topk(k, dim=1, sorted=False).indices
    members = groups * torch.arange(_COLUMNS, device=block.device)
    candidates = (chosen[:, :, None] + members).view(n, -1)
    left_over = torch.arange(grouped, m, device=block.device).expand(n, -1)
    candidates = torch.cat([candidates, left_over], dim=1)
    values, positions = block.gather(1, candidates).topk(k, dim=1)
    return values, candidates.gather(1, positions)


def top_k_both(
    a: Tensor, b: Tensor, k: int, *, budget: int = DEFAULT_BUDGET
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """`top_k` of the rows of a (n, d) among b (m, d), and of those of b among a, in one pass instead of two.

    Returns values (n, k) and rows of b (n, k); and values (m, k) and rows of a (m, k).
    """
    k_a, k_b = min(k, len(b)), min(k, len(a))
    values = a.new_empty(len(a), k_a)
    indices = torch.empty(len(a), k_a, dtype=torch.int64, device=a.device)
    best, at = a.new_empty(0, len(b)), torch.empty(0, len(b), dtype=torch.int64, device=a.device)
    for rows, block in row_blocks(a, b, budget):
        values[rows], indices[rows] = largest(block, k_a)
        new, where = _largest_of_columns(block, k_b, best[-1] if len(best) == k_b else None)
        best, order = torch.cat([best, new]).topk(min(k_b, len(best) + len(new)), dim=0)
        at = torch.cat([at, where + rows.start]).gather(0, order)
    return (values, indices), (best.T.contiguous(), at.T.contiguous())


def _largest_of_columns(block: Tensor, k: int, above: Tensor | None) -> tuple[Tensor, Tensor]:
    """The k largest values (k, m) of each column of a block (n, m), and their rows (k, m).

    If only those `above` a limit (m,) are of interest, there may be fewer: then the last are -inf, in an arbitrary row.
    """
    whole = len(block) // _ROWS * _ROWS
    maxima = block[:whole].view(whole // _ROWS, _ROWS, block.shape[1]).amax(dim=1)
    if above is None and len(maxima) >= 2 * k:  # at least k values reach the k-th largest maximum
        above = maxima.topk(k, dim=0).values[-1].nextafter(maxima.new_tensor(-torch.inf))
    if above is None or int(torch.count_nonzero(maxima > above)) > _MAX_NEWS * k * len(above):
        values, rows = block.topk(min(k, len(block)), dim=0)
        return values, rows
    group, column = (maxima > above).nonzero(as_tuple=True)
    row = group[:, None] * _ROWS + torch.arange(_ROWS, device=block.device)
    column = column[:, None].expand_as(row)
    inside = block[row, column] > above[column]
    last_row, last_column = (block[whole:] > above).nonzero(as_tuple=True)
    row, column = torch.cat([row[inside], last_row + whole]), torch.cat([column[inside], last_column])
    values, entries = largest_of_groups(block[row, column], column, len(above), k)
    return values.T, torch.cat([row, row.new_zeros(1)])[entries].T


def largest_of_groups(value: Tensor, group: Tensor, groups: int, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of the values (e,) in each group (g, k), best first, and their indices (g, k).

    If a group has fewer, the last are -inf and -1.
    """
    order, rank = _ranked_in_groups(value, group, groups)
    order, rank = order[rank < k], rank[rank < k]
    values = value.new_full((groups, k), -torch.inf)
    entries = torch.full((groups, k), -1, device=value.device)
    values[group[order], rank], entries[group[order], rank] = value[order], order
    return values, entries


def _ranked_in_groups(value: Tensor, group: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The order (e,) that sorts values by group, largest first within it, and the rank (e,) of each there, from 0.

    Equal values keep their order.
    """
    order = value.argsort(descending=True, stable=True)
    order = order[group[order].argsort(stable=True)]
    size = torch.bincount(group, minlength=groups)
    return order, torch.arange(len(group), device=group.device) - (size.cumsum(0) - size)[group[order]]


def best_partners(
    a: Tensor,
    b: Tensor,
    row_penalty: Tensor,
    column_penalty: Tensor,
    *,
    budget: int = DEFAULT_BUDGET,
) -> tuple[Tensor, Tensor]:
    """Best partners by s_ij = <a_i, b_j> - row_penalty_i - column_penalty_j, and their lead, in one pass.

    Returns for each row of a (n, d) its best row of b (m, d), as `partner` (n,), and by how much that beats the best
    rival, `margin` (n,): another partner for the row, or another row for the partner. Infinite if there is no rival.
    """
    choices = _choices_fused if use_fused(a, b) else _choices
    partner, value, rival, turned_down = choices(a, b, row_penalty, column_penalty, budget)
    rival = torch.maximum(rival, turned_down[partner])
    return partner, value - torch.maximum(rival, _best_of_the_others(partner, value, len(b)))


def _choices(
    a: Tensor, b: Tensor, row_penalty: Tensor, column_penalty: Tensor, budget: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each row its best column and best two values; for each column the best value of a row that prefers another.

    The shapes are (n,) three times, and (m,).
    """
    partner = torch.empty(len(a), dtype=torch.int64, device=a.device)
    value = a.new_empty(len(a))
    rival = a.new_full((len(a),), -torch.inf)
    turned_down = a.new_full((len(b),), -torch.inf)
    for rows, block in row_blocks(a, b, budget, bias=-column_penalty):
        block.sub_(row_penalty[rows, None])
        values, columns = largest(block, min(2, len(b)))
        partner[rows], value[rows] = columns[:, 0], values[:, 0]
        if len(b) > 1:
            rival[rows] = values[:, 1]
        block.scatter_(1, columns[:, :1], -torch.inf)
        torch.maximum(turned_down, block.amax(dim=0), out=turned_down)
    return partner, value, rival, turned_down


def _choices_fused(
    a: Tensor, b: Tensor, row_penalty: Tensor, column_penalty: Tensor, _budget: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same by two kernels, one over the rows and one over the columns."""
    from kedge.matching.kernels import fused

    partner, value, rival = fused.best_two(a, b, column_penalty)
    _, turned_down, _ = fused.best_two(b, a, row_penalty, forbidden=partner)
    return partner, value - row_penalty, rival - row_penalty, turned_down - column_penalty


def _best_of_the_others(group: Tensor, value: Tensor, groups: int) -> Tensor:
    """For each of n values the largest (n,) among the others of its group, -inf if it is alone."""
    order, rank = _ranked_in_groups(value, group, groups)
    sorted_group, sorted_value = group[order], value[order]
    size = torch.bincount(group, minlength=groups)
    first = size.cumsum(0) - size
    # The first of a group is compared with the second, every other with the first.
    following = torch.cat([sorted_value[1:], sorted_value[:1]])
    following = torch.where(size[sorted_group] > 1, following, -torch.inf)
    best = torch.where(rank == 0, following, sorted_value[first[sorted_group]])
    return torch.empty_like(value).scatter_(0, order, best)

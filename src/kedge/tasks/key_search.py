"""Search by key: the rows of Y that most likely stand for the same item as a row of X."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kedge.errors import InputError
from kedge.many.member import Member
from kedge.matching import top_k
from kedge.models.side import Side
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Key
from kedge.tasks.row_transforms import transform_rows

# The last shared coordinates hold what a row loses whatever it is compared with; a cosine uses only the others.
_PER_ROW = 2


class HasSides(Protocol):
    """A fitted `AnchorDiscovery`, or two members of a `CommonSpace`."""

    @property
    def x_(self) -> Side:
        """The side of the queries."""

    @property
    def y_(self) -> Side:
        """The side that is searched."""


class Neighbour(NamedTuple):
    """A key of Y, and how it compares with the query.

    `similarity`, from -1 to 1, is the cosine of the two in weighted canonical coordinates. `log_likelihood_ratio`, in
    nats, says how much likelier the two are if they are one item than if they are two; neighbours are ranked by it.
    """

    key: Key
    similarity: float
    log_likelihood_ratio: float


class RankedKeys(NamedTuple):
    """The nearest rows (q, k) of q queries, their cosines (q, k) and log likelihood ratios (q, k), likeliest first."""

    rows: Tensor
    similarity: Tensor
    log_likelihood_ratio: Tensor


def search(
    discovery: HasSides, x: SpaceLike, y: SpaceLike, keys: Sequence[Key], k: int = 5
) -> dict[Key, list[Neighbour]]:
    """The k rows of Y that most likely stand for the same item as each key of X, likeliest first.

    They are ranked by the inner product of shared coordinates, which is the log likelihood ratio of a pair. Their
    `similarity` is a cosine, which is easier to read and gives nearly the same order. Spaces are accepted in any form
    that `AnchorDiscovery.fit` takes.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    queries = torch.from_numpy(discovery.x_.shared(space_x.take(space_x.rows(keys))))
    found = rank(queries, transform_rows(discovery.y_.shared, space_y.vectors), k)
    return {
        key: [Neighbour(space_y.keys[row], *figures) for row, *figures in zip(*near, strict=True)]
        for key, *near in zip(keys, *(part.tolist() for part in found), strict=True)
    }


def search_common(
    member: Member, x: SpaceLike, y: SpaceLike, keys: Sequence[Key], k: int = 5
) -> dict[Key, list[Neighbour]]:
    """Like `search`, where X belongs to a member and Y holds common coordinates of documents of any spaces.

    Common coordinates are those for inner products (m, c + 2) or for distances (m, c + 1).
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    space_x, space_y = as_space(x, "x"), as_space(y, "y")
    queries = torch.from_numpy(member.project(space_x.take(space_x.rows(keys)), query=True))
    found = rank(queries, torch.from_numpy(member.as_documents(space_y)), k)
    return {
        key: [Neighbour(space_y.keys[row], *figures) for row, *figures in zip(*near, strict=True)]
        for key, *near in zip(keys, *(part.tolist() for part in found), strict=True)
    }


def rank(queries: Tensor, targets: Tensor, k: int) -> RankedKeys:
    """The k targets (m, c) that most likely stand for the same item as each query (q, c), in shared coordinates."""
    ratios, rows = top_k(queries, targets, k)
    left, right = queries[:, :-_PER_ROW], targets[:, :-_PER_ROW]
    tiny = torch.finfo(queries.dtype).tiny
    length = left.norm(dim=1)
    cosines = torch.empty_like(ratios)
    for place in range(rows.shape[1]):  # one neighbour of all queries at a time, to save memory
        near = right[rows[:, place]]
        cosines[:, place] = (left * near).sum(dim=1) / (length * near.norm(dim=1)).clamp_min(tiny)
    return RankedKeys(rows, cosines.clamp_(-1, 1), ratios)

"""First pass: send rows to the clusters that they look into, and compare them there.

Two rows are compared if either looks into the cluster that the other is in. The rows in a cluster (its home rows) are
compared with all rows of the other side that look into it; rows that only look into it (guests) only with home rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.engines.messages import matrix_column, matrix_of, write_rows
from kedge.spaces.formats.parquet import import_pyarrow
from kedge.spaces.row_ranges import Range
from kedge.tasks.all_rows.match_plan import MatchPlan, halves
from kedge.tasks.all_rows.ranked_rows import Ranked, merge

# Number of similarities held in memory at once.
_AT_ONCE = 16 * 2**20


@dataclass(frozen=True)
class SendRows:
    """Sends a range of rows of a side (0: X, 1: Y) to the groups of clusters they look into, except finished groups."""

    plan: MatchPlan
    done: frozenset[int]

    def __call__(self, task: tuple[int, Range]) -> Iterator[tuple[int, Any]]:
        """Yield messages: side, row, the clusters of this group that it looks into (-1: none), and its vector."""
        number, rows = task
        for begin, coordinates in self.plan.side(number).coordinates(rows):
            looks = self.plan.looks(coordinates)
            groups = np.where(looks >= 0, self.plan.group_of[looks], -1)
            vectors = halves(coordinates, number)
            for group, some in _rows_of_groups(groups):
                if group not in self.done:
                    chosen = np.where(groups[some] == group, looks[some], -1).astype(np.int16)
                    yield group, _message(number, begin + some, chosen, vectors[some])


def _rows_of_groups(groups: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each group in a table (n, p) where -1 is none, with its rows (k,): one sort, however many groups there are."""
    rows, columns = np.nonzero(groups >= 0)
    values = groups[rows, columns]
    order = np.argsort(values, kind="stable")
    found, starts = np.unique(values[order], return_index=True)
    for group, some in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=False):
        yield group, np.unique(some)


def _message(number: int, rows: NDArray[np.int64], looks: NDArray[np.int16], vectors: NDArray[np.float16]) -> Any:
    pa, _ = import_pyarrow()
    return pa.table(
        {
            "side": np.full(len(rows), number, dtype=np.int8),
            "row": rows,
            "looks": matrix_column(looks),
            "vector": matrix_column(vectors),
        }
    )


@dataclass(frozen=True)
class CompareRows:
    """Compares the rows sent to a group of clusters, and writes the nearest of each row to a file in `folder`."""

    folder: Path

    def __call__(self, group: int, sent: Any) -> int:
        """Write the group's file and return the group's number."""
        sides = [_Sent.from_table(sent, number) for number in (0, 1)]
        parts = [_ranked_table(number, side, found) for number, (side, found) in enumerate(_compared(*sides))]
        pa, _ = import_pyarrow()
        write_rows(pa.concat_tables(parts), met_file(self.folder, group))
        return group


def met_file(folder: Path, group: int) -> Path:
    """The file with the results of a group of clusters."""
    return folder / f"{group:05d}.arrow"


@dataclass(frozen=True)
class _Sent:
    """Rows (n,) of a side, the clusters (n, p) they look into, and their coordinates (n, c), in row order."""

    rows: Tensor
    looks: Tensor
    vectors: Tensor

    @classmethod
    def from_table(cls, sent: Any, number: int) -> _Sent:
        chosen = np.flatnonzero(sent["side"].to_numpy() == number)
        rows = sent["row"].to_numpy()[chosen]
        order = chosen[np.argsort(rows, kind="stable")]  # messages arrive in any order
        looks, vectors = matrix_of(sent["looks"], np.int16)[order], matrix_of(sent["vector"], np.float16)[order]
        return cls(*(torch.from_numpy(each) for each in (np.sort(rows), looks, vectors)))

    def by_cluster(self) -> dict[int, tuple[Tensor, Tensor]]:
        """For each cluster, the positions of its home rows and of its guests."""
        flat = self.looks.flatten()
        there = (flat >= 0).nonzero(as_tuple=True)[0]
        clusters, order = flat[there].sort(stable=True)
        looks = there[order]
        places, first = looks // self.looks.shape[1], looks % self.looks.shape[1] == 0
        found, counts = torch.unique_consecutive(clusters, return_counts=True)
        ends = counts.cumsum(0).tolist()
        return {
            cluster: (places[begin:end][first[begin:end]], places[begin:end][~first[begin:end]])
            for cluster, begin, end in zip(found.tolist(), [0, *ends], ends, strict=False)
        }


def _compared(x: _Sent, y: _Sent) -> Iterator[tuple[_Sent, Ranked]]:
    """Yield both sides, each with the nearest rows of the other side that its rows met."""
    # A pair can meet twice, in the clusters of both rows, but occurs only once in each of these two tables.
    own = [Ranked.nothing(len(side.rows)) for side in (x, y)]  # met in the row's own cluster
    other = [Ranked.nothing(len(side.rows)) for side in (x, y)]  # met in the other row's cluster
    of_x, of_y = x.by_cluster(), y.by_cluster()
    clusters = sorted(of_x.keys() & of_y.keys())
    # Home against home first: the nearest rows are probably there, so most rows gain nothing later and are skipped.
    for cluster in clusters:
        _meet(x, y, of_x[cluster][0], of_y[cluster][0], (own[0], other[0]), (own[1], other[1]))
    for cluster in clusters:
        (home_x, guests_x), (home_y, guests_y) = of_x[cluster], of_y[cluster]
        _meet(x, y, home_x, guests_y, (own[0], other[0]), (other[1], own[1]))
        _meet(x, y, guests_x, home_y, (other[0], own[0]), (own[1], other[1]))
    for side, one, two in zip((x, y), own, other, strict=True):
        yield side, merge(torch.cat([one.rows, two.rows], dim=1), torch.cat([one.values, two.values], dim=1))


def _meet(
    x: _Sent, y: _Sent, some_x: Tensor, some_y: Tensor, of_x: tuple[Ranked, Ranked], of_y: tuple[Ranked, Ranked]
) -> None:
    """Compare some rows of X with some of Y, and update the first table of each side."""
    if not len(some_x) or not len(some_y):
        return
    right = y.vectors[some_y].float()
    step = max(1, _AT_ONCE // len(some_y))
    for begin in range(0, len(some_x), step):
        part = some_x[begin : begin + step]
        similarity = x.vectors[part].float() @ right.T
        of_x[0].update(part, similarity, y.rows[some_y], of_x[1])
        of_y[0].update(some_y, similarity.T, x.rows[part], of_y[1])


def _ranked_table(number: int, side: _Sent, found: Ranked) -> Any:
    pa, _ = import_pyarrow()
    return pa.table(
        {
            "side": np.full(len(side.rows), number, dtype=np.int8),
            "row": side.rows.numpy(),
            "others": matrix_column(found.rows.numpy()),
            "values": matrix_column(found.values.numpy()),
        }
    )

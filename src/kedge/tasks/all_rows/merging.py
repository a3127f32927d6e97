"""Second pass: merge what each row met in several groups, and compute its hubness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kedge.engines.messages import matrix_column, matrix_of, read_rows, write_rows
from kedge.matching.candidates import KEPT
from kedge.spaces.formats.parquet import import_pyarrow
from kedge.tasks.all_rows.ranked_rows import hubness_of, merge

BUCKET = 65_536
"""Number of rows of one side per file, from this pass on."""


@dataclass(frozen=True)
class Buckets:
    """The numbering of files, `BUCKET` rows each: the buckets of X first, then those of Y."""

    rows_x: int
    rows_y: int

    @property
    def of_x(self) -> int:
        """The number of buckets of X."""
        return -(-self.rows_x // BUCKET)

    @property
    def of_y(self) -> int:
        """The number of buckets of Y."""
        return -(-self.rows_y // BUCKET)

    @property
    def count(self) -> int:
        """The number of buckets of both sides."""
        return self.of_x + self.of_y

    def range_of(self, bucket: int) -> tuple[int, int]:
        """The range of rows (begin, end) in a bucket."""
        in_x = bucket < self.of_x
        begin = (bucket if in_x else bucket - self.of_x) * BUCKET
        return begin, min(begin + BUCKET, self.rows_x if in_x else self.rows_y)

    def holding(self, side: NDArray[np.int8], row: NDArray[np.int64]) -> NDArray[np.int64]:
        """The buckets (k,) that hold the given rows (k,) of the given sides (k,)."""
        return row // BUCKET + np.where(side == 0, 0, self.of_x)


@dataclass(frozen=True)
class SendMet:
    """Sends the rows of a file of the first pass to their buckets, except finished ones."""

    buckets: Buckets
    done: frozenset[int]

    def __call__(self, path: Path) -> Iterator[tuple[int, Any]]:
        """Yield messages with the columns of the file."""
        pa, _ = import_pyarrow()
        met = read_rows(path)
        bucket = self.buckets.holding(met["side"].to_numpy(), met["row"].to_numpy())
        order = np.argsort(bucket, kind="stable")
        found, starts = np.unique(bucket[order], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        for number, begin, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
            if number not in self.done:
                yield number, met.take(pa.array(order[begin:end])).combine_chunks()


@dataclass(frozen=True)
class MergeMet:
    """Writes the nearest of each row of a bucket, and its hubness, to a file in `folder`."""

    buckets: Buckets
    folder: Path

    def __call__(self, bucket: int, met: Any) -> int:
        """Write the bucket's file and return the bucket's number."""
        pa, _ = import_pyarrow()
        begin, end = self.buckets.range_of(bucket)
        rows = met["row"].to_numpy() - begin
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        starts = np.searchsorted(rows, np.arange(end - begin))
        place = np.arange(len(rows)) - starts[rows]
        lists = int(place.max()) + 1
        others = np.full((end - begin, lists, KEPT), -1, dtype=np.int64)
        values = np.full((end - begin, lists, KEPT), -np.inf, dtype=np.float32)
        others[rows, place] = matrix_of(met["others"], np.int64)[order]
        values[rows, place] = matrix_of(met["values"], np.float32)[order]
        ranked = merge(*(torch.from_numpy(each.reshape(end - begin, -1)) for each in (others, values)))
        table = pa.table(
            {
                "others": matrix_column(ranked.rows.numpy()),
                "values": matrix_column(ranked.values.numpy()),
                "hubness": hubness_of(ranked.values).numpy(),
            }
        )
        write_rows(table, ranked_file(self.folder, bucket))
        return bucket


def ranked_file(folder: Path, bucket: int) -> Path:
    """The file with the nearest rows of a bucket's rows."""
    return folder / f"{bucket:05d}.arrow"

"""Third pass: every row of X chooses a partner by CSLS; the partner's own candidates then determine the margin."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.engines.messages import matrix_of, read_rows
from kedge.models.confidence_curve import ConfidenceCurve
from kedge.spaces.formats.parquet import import_pyarrow
from kedge.spaces.row_ranges import RowRanges
from kedge.spaces.writing.atomic import atomic_path
from kedge.tasks.all_rows.merging import BUCKET, Buckets, ranked_file

Floats = NDArray[np.float32]
_COUNTS = b"kedge.counts"


@dataclass(frozen=True)
class MatchFiles:
    """The files with the results of earlier passes: nearest rows, and the hubness of all rows of either side."""

    ranked: Path
    hubness_x: Path
    hubness_y: Path

    def closeness(self, bucket: int, *, of_y: bool) -> tuple[NDArray[np.int64], Floats]:
        """The nearest rows (n, k) of a bucket's rows, and their CSLS (n, k): similarity minus hubness at both ends."""
        table = read_rows(ranked_file(self.ranked, bucket))
        others = matrix_of(table["others"], np.int64)
        hubness = np.load(self.hubness_x if of_y else self.hubness_y, mmap_mode="r")
        values = matrix_of(table["values"], np.float32) - table["hubness"].to_numpy()[:, None]
        return others, values - hubness[np.maximum(others, 0)]


@dataclass(frozen=True)
class SendChoices:
    """Sends the choices of a bucket of X, with its keys, to the buckets of the partners, except finished ones."""

    files: MatchFiles
    buckets: Buckets
    x: RowRanges
    done: frozenset[int]

    def __call__(self, bucket: int) -> Iterator[tuple[int, Any]]:
        """Yield messages: row, key, partner (-1: none), CSLS of the best and of the second best candidate."""
        pa, _ = import_pyarrow()
        begin, end = self.buckets.range_of(bucket)
        others, values = self.files.closeness(bucket, of_y=False)
        order = np.argsort(-values, axis=1, kind="stable")[:, :2]
        best, second = np.take_along_axis(values, order, axis=1).T
        partner = np.take_along_axis(others, order[:, :1], axis=1)[:, 0]
        choices = pa.table(
            {
                "row": np.arange(begin, end),
                "x": self.x.keys((begin, end)),
                "partner": partner,
                "best": np.ascontiguousarray(best),
                "second": np.ascontiguousarray(second),
            }
        )
        target = np.maximum(partner, 0) // BUCKET
        for number in np.unique(target).tolist():
            if number not in self.done:
                yield number, choices.take(pa.array(np.flatnonzero(target == number))).combine_chunks()


@dataclass(frozen=True)
class PairCounts:
    """Counts of rows of X: all, those in mutual pairs, and those listed.

    `seeds` of those listed have the partner that the run was given; `expected` of the others are probably right.
    """

    rows: int
    mutual: int
    listed: int
    seeds: int
    expected: float

    def __add__(self, other: PairCounts) -> PairCounts:
        return PairCounts(
            self.rows + other.rows,
            self.mutual + other.mutual,
            self.listed + other.listed,
            self.seeds + other.seeds,
            self.expected + other.expected,
        )


@dataclass(frozen=True)
class WritePairs:
    """Writes the pairs of all rows of X that chose a row in a bucket of Y to a Parquet file in `folder`.

    With `min_confidence`, only mutual pairs with at least this confidence are listed. `seeds` has the key of Y that
    the run was given for some keys of X.
    """

    files: MatchFiles
    buckets: Buckets
    y: RowRanges
    curve: ConfidenceCurve
    seeds: Mapping[str, str]
    min_confidence: float | None
    folder: Path

    def __call__(self, bucket: int, choices: Any) -> int:
        """Write the bucket's file and return the bucket's number."""
        pa, pq = import_pyarrow()
        choices = choices.sort_by("row")
        begin, end = self.buckets.range_of(self.buckets.of_x + bucket)
        others, values = self.files.closeness(self.buckets.of_x + bucket, of_y=True)
        row, partner = choices["row"].to_numpy(), choices["partner"].to_numpy()
        place = np.maximum(partner, begin) - begin
        rival = np.where(others[place] == row[:, None], -np.inf, values[place]).max(axis=1)
        best = choices["best"].to_numpy()
        margin = (best - np.maximum(choices["second"].to_numpy(), rival)).astype(np.float32)
        margin[partner < 0] = -np.inf
        mutual = margin > 0
        claimed = np.zeros(end - begin, dtype=bool)
        claimed[place[mutual]] = True
        confidence = self.curve.confidence(margin, claimed[place])
        confidence[partner < 0] = 0
        keys = self.y.keys((begin, end)).take(pa.array(place, mask=partner < 0))
        seed = self._are_seeds(choices["x"], keys)
        pairs = pa.table(
            {
                "x": choices["x"],
                "y": keys,
                "similarity": best,
                "margin": margin,
                "mutual": mutual,
                "confidence": confidence,
                "seed": seed,
            }
        )
        listed = np.ones(len(row), dtype=bool)
        if self.min_confidence is not None:
            listed = mutual & (confidence >= np.float32(self.min_confidence))
            pairs = pairs.filter(pa.array(listed))
        found = confidence[listed & ~seed]
        counts = PairCounts(
            len(row), int(mutual.sum()), int(listed.sum()), int((listed & seed).sum()), float(found.sum())
        )
        with atomic_path(pairs_file(self.folder, bucket)) as temporary:
            pq.write_table(pairs.replace_schema_metadata({_COUNTS: json.dumps(asdict(counts))}), temporary)
        return bucket

    def _are_seeds(self, keys_x: Any, keys_y: Any) -> NDArray[np.bool_]:
        """Which pairs of keys (n,) the run was given."""
        pa, _ = import_pyarrow()
        import pyarrow.compute as pc

        of_x, of_y = (pa.array(keys, pa.string()) for keys in (self.seeds.keys(), self.seeds.values()))
        given = of_y.take(pc.index_in(keys_x, value_set=of_x).combine_chunks())
        same: NDArray[np.bool_] = pc.equal(given, keys_y).fill_null(False).to_numpy(zero_copy_only=False)
        return same


def counts_in(path: Path) -> PairCounts:
    """The counts stored in the metadata of a file of pairs."""
    _, pq = import_pyarrow()
    return PairCounts(**json.loads(pq.read_schema(path).metadata[_COUNTS]))


def pairs_file(folder: Path, bucket: int) -> Path:
    """The file with the pairs of a bucket of Y."""
    return folder / f"part-{bucket:08d}.parquet"

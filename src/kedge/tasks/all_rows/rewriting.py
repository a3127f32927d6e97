"""Rewrite the vectors of all rows, for example by translation, part by part into a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kedge.engines import Engine
from kedge.engines.job_folder import require_same_call, run_pass
from kedge.errors import InputError
from kedge.spaces.formats.parquet import import_pyarrow
from kedge.spaces.row_ranges import Range, RowBlock, RowRanges, open_parquets
from kedge.spaces.stores import open_store
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.identity import row_ids
from kedge.spaces.stores.payloads import same_value
from kedge.spaces.stores.store import Description, Id, Store
from kedge.spaces.writing.atomic import atomic_path
from kedge.tasks.all_rows.match_plan import BATCH

PARTS = "parts"
"""The subfolder that holds the result, a store of the kind `parquet`."""

Transform = Callable[[NDArray[np.float32]], NDArray[np.float32]]
Places = NDArray[np.int64]

# Number of rows drawn at random from every block and compared with what they should be.
_COMPARED = 20
# Tolerance, as a share of a row's largest number: the same product over fewer rows is rounded differently.
_TOLERANCE = 1e-4
# Number of ids that become Python objects at once.
_IDS_AT_ONCE = 10_000


@dataclass(frozen=True)
class _Keys:
    """The keys of a space, as `row_ids` reads the ids of a store."""

    rows: RowRanges

    @property
    def address(self) -> Address:
        """Where they come from, for messages."""
        return Address("", self.rows.source, "")

    def ids(self, _: int) -> Iterator[Sequence[Id | None]]:
        """Yield all keys in order; None if one is null."""
        for some in self.rows.ranges(BATCH):
            keys = self.rows.keys(some)
            for begin in range(0, len(keys), _IDS_AT_ONCE):
                yield keys.slice(begin, _IDS_AT_ONCE).to_pylist()


def _require_own_keys(rows: RowRanges, target: Store) -> None:
    """Raise `InputError` if keys repeat or are null, as a migration in one go does."""
    keys: Any = _Keys(rows)
    try:
        with row_ids(keys, target, "refuse", skip_missing=False):
            pass
    except InputError as error:
        raise InputError(f"{error} (these options are of `kedge migrate`, without --engine)") from error


@dataclass(frozen=True)
class RewriteRows:
    """Writes a range of rows with transformed vectors to a file in `folder`; keys and other columns are kept."""

    rows: RowRanges
    transform: Transform
    folder: Path

    def __call__(self, task: tuple[int, Range]) -> int:
        """Write the file and return the number of rows written."""
        pa, pq = import_pyarrow()
        number, some = task
        written, writer = 0, None
        with atomic_path(part_file(self.folder, number)) as temporary:
            try:
                for block in self.rows.whole(some, BATCH):
                    vectors = np.ascontiguousarray(self.transform(block.vectors), dtype=np.float32)
                    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
                    columns = {"id": block.keys, "vector": lists}
                    for name in [] if block.others is None else block.others.schema.names:
                        if name in columns:
                            raise InputError(
                                f"{self.rows.source}: has a column {name!r} that holds neither its keys nor its "
                                "vectors, which the output calls `id` and `vector`; rename it"
                            )
                        columns[name] = block.others.column(name)
                    table = pa.table(columns)
                    writer = writer or pq.ParquetWriter(temporary, table.schema)
                    writer.write_table(table)
                    written += len(vectors)
            finally:
                if writer is not None:
                    writer.close()
        return written


def rewrite_all(
    rows: RowRanges,
    transform: Transform,
    dim: int,
    folder: Path,
    engine: Engine,
    *,
    metadata: Mapping[str, str] | None = None,
    call: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write all vectors, transformed to `dim` dimensions, to `folder`/parts, and return how many there are.

    An unfinished job there is resumed if all of `call` is the same; `metadata` is that of the store. Raises
    `InputError` before anything is written if keys repeat or are null.
    """
    parts = folder / PARTS
    with open_store(Address("parquet", str(parts), "")) as store:
        _require_own_keys(rows, store)
        require_same_call(folder, {"source": rows.identity()} | dict(call or {}))
        if not parts.exists():
            kind: Literal["int", "str"] = "int" if rows.numbered else "str"
            store.create(Description(rows.rows, dim, metadata=dict(metadata or {}), id_type=kind))
    tasks = list(enumerate(rows.ranges(4 * BATCH)))
    work = RewriteRows(rows, transform, parts)
    run_pass(
        parts,
        partial(part_file, parts),
        len(tasks),
        lambda done: engine.each([task for task in tasks if task[0] not in done], work),
        on_progress or (lambda *_: None),
    )
    _, pq = import_pyarrow()
    written = sum(pq.read_metadata(path).num_rows for path in parts.glob("*.parquet"))
    if written != rows.rows:
        raise InputError(f"{folder}: holds {written} of {rows.rows} rows; delete it and start over")
    return written


@dataclass(frozen=True)
class Arrival:
    """Check of a rewriting: rows of the source, rows that arrived, rows compared, and how many of these are wrong."""

    rows: int = 0
    arrived: int = 0
    compared: int = 0
    different: int = 0

    def __add__(self, other: Arrival) -> Arrival:
        return Arrival(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class CompareParts:
    """Rereads a range of rows and the file it was written to; counts the rows of both, and compares some."""

    rows: RowRanges
    transform: Transform
    folder: Path

    def __call__(self, task: tuple[int, Range]) -> Arrival:
        """Compare the range with its file."""
        number, some = task
        path = part_file(self.folder, number)
        part = open_parquets([path], str(path), "id,vector")
        found = Arrival(some[1] - some[0], part.rows)
        chance = np.random.default_rng(number)
        for block in self.rows.whole(some, BATCH):
            first = block.begin - some[0]
            drawn = chance.permutation(len(block.vectors))[:_COMPARED]
            for there in part.whole((first, first + len(block.vectors)), BATCH):
                places = drawn + first - there.begin
                here = (places >= 0) & (places < len(there.vectors))
                if not here.any():
                    continue
                different = self._differing(block, drawn[here], there, places[here])
                found += Arrival(compared=int(here.sum()), different=different)
        return found

    def _differing(self, block: RowBlock, rows: Places, there: RowBlock, places: Places) -> int:
        """How many rows (k,) of a block differ from what they should be at the places (k,) where they arrived."""
        expected = self.transform(block.vectors[rows])
        error = np.abs(expected - there.vectors[places]).max(axis=1)
        alike = error <= _TOLERANCE * np.abs(expected).max(axis=1)
        besides = zip(_besides(block, rows), _besides(there, places), strict=True)
        return sum(not (same and same_value(*each)) for same, each in zip(alike, besides, strict=True))


def _besides(block: RowBlock, rows: Places) -> list[dict[str, Any]]:
    """The keys and other columns of rows (k,), without their vectors."""
    keys = [{"id": block.keys[row].as_py()} for row in rows.tolist()]
    if block.others is None:
        return keys
    return [key | block.others.slice(row, 1).to_pylist()[0] for key, row in zip(keys, rows.tolist(), strict=True)]


def compare_all(rows: RowRanges, transform: Transform, folder: Path, engine: Engine) -> Arrival:
    """Check that all rows arrived in `folder`/parts, where `rewrite_all` wrote them, and that a sample is correct."""
    work = CompareParts(rows, transform, folder / PARTS)
    return sum(engine.each(list(enumerate(rows.ranges(4 * BATCH))), work), Arrival())


def part_file(folder: Path, number: int) -> Path:
    """The file of a range of rows, named as a store of the kind `parquet` names it."""
    return folder / f"part-{number:08d}.parquet"

"""Other vectors for all rows, such as translated ones, part by part into a folder of Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kedge.engines import Engine
from kedge.engines.job_folder import require_same_call, run_pass
from kedge.errors import InputError
from kedge.spaces.formats.parquet import import_pyarrow
from kedge.spaces.row_ranges import Range, RowRanges
from kedge.spaces.stores import open_store
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.store import Description
from kedge.spaces.writing.atomic import atomic_path
from kedge.tasks.all_rows.match_plan import BATCH

PARTS = "parts"
"""The subfolder that holds the result, a store of the kind `parquet`."""

Transform = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class RewriteRows:
    """Writes a range of rows with other vectors to a file of `folder`; keys and other columns stay."""

    rows: RowRanges
    transform: Transform
    folder: Path

    def __call__(self, task: tuple[int, Range]) -> int:
        """How many rows were written."""
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
                                f"{self.rows.source}: has a column {name!r} besides that of its keys or vectors, and "
                                "the output calls these `id` and `vector`; rename it"
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
    """Write what `transform` makes of all vectors, of `dim` numbers then, to `folder`/parts, and count them.

    What is there of it is gone on with, if all of `call` is the same; `metadata` are those of the store.
    """
    require_same_call(folder, {"source": rows.identity()} | dict(call or {}))
    parts = folder / PARTS
    if not parts.exists():
        with open_store(Address("parquet", str(parts), "")) as store:
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
        raise InputError(f"{folder}: {written} rows are there of {rows.rows}; delete it and begin again")
    return written


def part_file(folder: Path, number: int) -> Path:
    """Where a range of rows is; a name that a store of the kind `parquet` gives."""
    return folder / f"part-{number:08d}.parquet"

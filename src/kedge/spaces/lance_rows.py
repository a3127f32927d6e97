"""A LanceDB table that is read one range of rows at a time, always in the version that was opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, KedgeError
from kedge.spaces.formats.columns import Columns, columns_of
from kedge.spaces.formats.parquet import import_pyarrow
from kedge.spaces.row_ranges import Range, RowBlock, cut, keys_of, vectors_of
from kedge.spaces.stores.address import Address

_KEYS_AT_ONCE = 2**16


@dataclass(frozen=True)
class LanceRows:
    """One version of a table in a folder: the rows that it had then, in a fixed order."""

    source: str
    folder: Path
    table: str
    version: int
    rows: int
    dim: int
    columns: Columns
    numbered: bool

    def ranges(self, size: int) -> list[Range]:
        """See `RowRanges`."""
        return cut(0, self.rows, size)

    def blocks(self, rows: Range, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """See `RowRanges`."""
        for begin, batch in self._read(rows, size, [self.columns.vector]):
            yield begin, vectors_of(self, batch.column(self.columns.vector), begin)

    def keys(self, rows: Range) -> Any:
        """See `RowRanges`."""
        pa, _ = import_pyarrow()
        found = self._read(rows, _KEYS_AT_ONCE, self.columns.names[:1])
        parts = [keys_of(batch, begin, self.columns) for begin, batch in found]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())

    def whole(self, rows: Range, size: int) -> Iterator[RowBlock]:
        """See `RowRanges`."""
        from kedge.spaces.stores.backends.arrow import entry_of

        for begin, batch in self._read(rows, size, None):
            others = batch.select([name for name in batch.schema.names if name not in self.columns.names])
            others = others.rename_columns([entry_of(field) for field in others.schema])
            keys = keys_of(batch, begin, self.columns)
            vectors = vectors_of(self, batch.column(self.columns.vector), begin)
            yield RowBlock(begin, keys.cast("int64") if self.numbered else keys, vectors, others)

    def identity(self) -> list[Any]:
        """See `RowRanges`."""
        return [[str(self.folder), self.table, self.version, self.rows]]

    def _read(self, rows: Range, size: int, names: list[str] | None) -> Iterator[tuple[int, Any]]:
        """Yield columns (None: all) of a range, at most `size` rows at a time, with the first row's number."""
        begin, end = rows
        try:
            query = open_table(self.folder, self.table, self.version).search().offset(begin).limit(end - begin)
            for batch in (query if names is None else query.select(names)).to_batches(batch_size=size):
                yield begin, batch
                begin += len(batch)
        except KedgeError:
            raise
        except Exception as error:  # anything that the client may raise
            raise InputError(f"{self.source}: {' '.join(str(error).split()) or type(error).__name__}") from error
        if begin != end:
            raise InputError(f"{self.source}: ends at row {begin}, but {self.rows} rows were counted")


def open_table(folder: Path, name: str, version: int | None = None) -> Any:
    """Open a table with LanceDB's client, in the current or the given version."""
    import lancedb

    table = lancedb.connect(folder).open_table(name)
    if version is not None:
        table.checkout(version)
    return table


def open_lance(address: Address) -> LanceRows:
    """Open the current version of the table at an address such as `lancedb:DIR#TABLE`."""
    from kedge.spaces.stores import open_store

    with open_store(address) as store:  # reports what is wrong with the address or the table
        about = store.describe()
    if not about.rows:
        raise InputError(f"{address}: holds no rows")
    folder = Path(address.place).absolute()  # workers may run in another folder
    table = open_table(folder, address.name)
    columns = columns_of(table.schema, str(address))
    numbered = columns.id is not None and about.id_type == "int"
    return LanceRows(
        str(address), folder, address.name, table.version, table.count_rows(), about.dim, columns, numbered
    )

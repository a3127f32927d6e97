"""Spaces that are read one range of rows at a time and never held in memory as a whole.

`.npy` files are memory-mapped, Parquet is read by row groups, a LanceDB table by row numbers (`lance_rows.py`). Other
stores are first copied in batches into one Parquet file; so are files of other formats, which are loaded whole for it.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, KedgeError
from kedge.spaces.embeddings import unusable_rows
from kedge.spaces.files import files_read, split_name
from kedge.spaces.formats import npy
from kedge.spaces.formats.columns import Columns, columns_of
from kedge.spaces.formats.parquet import import_pyarrow, open_parquet
from kedge.spaces.mapped_files import remember_size
from kedge.spaces.selection import Selection
from kedge.spaces.stores.address import Address
from kedge.spaces.streams import numbered_lines, require_regular_file
from kedge.spaces.writing.atomic import atomic_path

Range: TypeAlias = tuple[int, int]
"""Half-open: the first row, and the one after the last."""

_LINES = 16_384  # between two known positions in a key file
_COPIED = 4096  # rows of a store copied at once
_ORIGIN = b"kedge.origin"  # in the metadata of a copy


class RowBlock(NamedTuple):
    """Consecutive rows: the number of the first, keys (k,), vectors (k, d), and the other columns as a table, if any.

    Keys are integers if those of the space are, else text.
    """

    begin: int
    keys: Any
    vectors: NDArray[np.float32]
    others: Any


class RowRanges(Protocol):
    """A space that is read by ranges: `rows` vectors of `dim` numbers. Picklable."""

    @property
    def source(self) -> str:
        """Where the rows come from, for messages."""

    @property
    def rows(self) -> int:
        """Number of rows n."""

    @property
    def dim(self) -> int:
        """Number of dimensions d."""

    @property
    def numbered(self) -> bool:
        """Whether the keys are integers of at most 64 bits."""

    def ranges(self, size: int) -> list[Range]:
        """Split all rows into ranges of about `size` rows, each of which can be read efficiently."""

    def blocks(self, rows: Range, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the vectors of a range in blocks (k, d) of at most `size` rows, each with its first row's number."""

    def keys(self, rows: Range) -> Any:
        """The keys of a range, as an Arrow array of text."""

    def whole(self, rows: Range, size: int) -> Iterator[RowBlock]:
        """Yield keys, vectors and other columns of a range, at most `size` rows at a time."""

    def identity(self) -> list[Any]:
        """What changes when the data does: paths, sizes and times of files, or the version of a table."""


def open_ranges(place: Path | Address, scratch: Path, name: str) -> RowRanges:
    """Open a file or store; one that can only be read from end to end is first copied to `scratch`, as NAME.parquet.

    A copy that is there already is used if it is of the same store, or of the same file, which has not changed since.
    """
    place = place.absolute() if isinstance(place, Path) else place  # workers may run in another folder
    if isinstance(place, Path) and place.suffix.lower() == ".npy":
        return open_npy(place)
    if isinstance(place, Path) and split_name(place)[0].suffix.lower() == ".parquet":
        path, named = split_name(place)
        require_regular_file(path)
        return open_parquets([path], str(place), named)
    if isinstance(place, Address) and place.kind == "parquet":
        files = sorted(
            path for path in Path(place.place).absolute().glob("*.parquet") if not path.name.startswith((".", "_"))
        )
        if not files:
            raise InputError(f"{place}: no such folder, or no Parquet files in it")
        return open_parquets(files, str(place), place.name)
    if isinstance(place, Address) and place.kind == "lancedb":
        from kedge.spaces.lance_rows import open_lance

        return open_lance(place)
    copy, origin = scratch / f"{name}.parquet", _origin(place)
    if not copy.exists():
        _copy(place, copy, origin)
    with _readable(copy), open_parquet(copy) as file:
        copied = json.loads((file.schema_arrow.metadata or {}).get(_ORIGIN, "[null]"))
    if copied[0] != origin[0]:
        what = f"with {copied[0]} in its place" if copied[0] else "by an earlier version of kedge"
        raise InputError(f"{place}: the job in {scratch} was begun {what}; continue with that, or delete that folder")
    if copied != origin:
        raise InputError(
            f"{place}: has changed since the job in {scratch} was begun; delete that folder and start over"
        )
    return open_parquets([copy], str(place), "id,vector")


@dataclass(frozen=True)
class NpyRows:
    """A memory-mapped matrix; `lines` are the offsets of every `_LINES`-th line of its key file (None: row numbers).

    `windows` says whether all line breaks of that file are those of Windows.
    """

    path: Path
    rows: int
    dim: int
    lines: tuple[int, ...] | None
    windows: bool = False
    numbered: bool = False

    @property
    def source(self) -> str:
        """See `RowRanges`."""
        return str(self.path)

    def ranges(self, size: int) -> list[Range]:
        """See `RowRanges`."""
        return cut(0, self.rows, size)

    def blocks(self, rows: Range, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """See `RowRanges`."""
        vectors = np.lib.format.open_memmap(self.path, mode="r")
        for begin, end in cut(*rows, size):
            yield begin, _checked(self, begin, _float32(vectors[begin:end]))

    def keys(self, rows: Range) -> Any:
        """See `RowRanges`."""
        pa, _ = import_pyarrow()
        begin, end = rows
        if self.lines is None:
            return pa.array([str(row) for row in range(begin, end)], pa.string())
        first = begin // _LINES
        with npy.key_file(self.path).open("rb") as stream:
            stream.seek(self.lines[first])
            for _ in range(begin - first * _LINES):
                stream.readline()
            found = [stream.readline().removesuffix(b"\n") for _ in range(end - begin)]
        if self.windows:
            found = [line.removesuffix(b"\r") for line in found]
        return pa.array(found, pa.binary()).cast(pa.string())

    def whole(self, rows: Range, size: int) -> Iterator[RowBlock]:
        """See `RowRanges`."""
        for begin, vectors in self.blocks(rows, size):
            yield RowBlock(begin, self.keys((begin, begin + len(vectors))), vectors, None)

    def identity(self) -> list[Any]:
        """See `RowRanges`."""
        return [_stamp(path) for path in (self.path, npy.key_file(self.path)) if path.exists()]


def open_npy(path: Path) -> NpyRows:
    """Open a matrix `NAME.npy`, with keys from `NAME.keys.txt` if that file exists."""
    require_regular_file(path)
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    with _readable(path):
        remember_size(path)
        vectors = np.lib.format.open_memmap(path, mode="r")
    if vectors.ndim != 2:
        raise InputError(f"{path}: a matrix (rows, dimensions) is needed, got shape {vectors.shape}")
    if not (np.issubdtype(vectors.dtype, np.floating) or np.issubdtype(vectors.dtype, np.integer)):
        raise InputError(f"{path}: vectors must be real numbers, got dtype {vectors.dtype}")
    npy.read_chosen_keys(path, vectors.shape, Selection(keys=()))  # keeps no key, but checks them all
    rows, dim = vectors.shape
    names = npy.key_file(path)
    return NpyRows(path, rows, dim, *(_lines_of(names) if names.exists() else (None,)))


def _lines_of(path: Path) -> tuple[tuple[int, ...], bool]:
    """The offsets of every `_LINES`-th line of a key file, and whether all line breaks are those of Windows."""
    offsets, place, windows = [], 0, set()
    with path.open("rb") as stream:
        for number, line in numbered_lines(path, stream):
            if number % _LINES == 1:
                offsets.append(place)
            place += len(line)
            if line.endswith(b"\n"):
                windows.add(line.endswith(b"\r\n"))
    return tuple(offsets), windows == {True}


@dataclass(frozen=True)
class _RowGroup:
    """A row group of a file: its number there, and its rows in the space."""

    path: Path
    number: int
    begin: int
    end: int
    columns: Columns


@dataclass(frozen=True)
class ParquetRows:
    """The row groups of one or more Parquet files, in order."""

    source: str
    dim: int
    groups: tuple[_RowGroup, ...]
    numbered: bool

    @property
    def rows(self) -> int:
        """See `RowRanges`."""
        return self.groups[-1].end

    def ranges(self, size: int) -> list[Range]:
        """Ranges of whole row groups: as many as fit into `size` rows, or a single larger one."""
        found: list[Range] = []
        for group in self.groups:
            if found and group.end - found[-1][0] <= size:
                found[-1] = (found[-1][0], group.end)
            else:
                found.append((group.begin, group.end))
        return found

    def blocks(self, rows: Range, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """See `RowRanges`."""
        for begin, group, batch in self._read(rows, size, lambda columns: [columns.vector]):
            yield begin, vectors_of(self, batch.column(group.columns.vector), begin)

    def keys(self, rows: Range) -> Any:
        """See `RowRanges`."""
        pa, _ = import_pyarrow()
        found = self._read(rows, 2**16, lambda columns: columns.names[:1])
        parts = [keys_of(batch, begin, group.columns) for begin, group, batch in found]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())

    def whole(self, rows: Range, size: int) -> Iterator[RowBlock]:
        """See `RowRanges`."""
        for begin, group, batch in self._read(rows, size, lambda _: None):
            used = group.columns.names
            others = batch.select([name for name in batch.schema.names if name not in used])
            vectors = vectors_of(self, batch.column(group.columns.vector), begin)
            keys = keys_of(batch, begin, group.columns)
            yield RowBlock(begin, keys.cast("int64") if self.numbered else keys, vectors, others)

    def _read(
        self, rows: Range, size: int, names: Callable[[Columns], list[str] | None]
    ) -> Iterator[tuple[int, _RowGroup, Any]]:
        """Yield batches of at most `size` rows, with their first row and group; `names` selects columns (None: all)."""
        begun = bisect_right(self.groups, rows[0], key=lambda group: group.end)
        ended = bisect_left(self.groups, rows[1], key=lambda group: group.begin)
        for path, groups in groupby(self.groups[begun:ended], key=lambda group: group.path):
            with _readable(path), open_parquet(path) as file:
                for group in groups:
                    begin = group.begin
                    for batch in file.iter_batches(size, row_groups=[group.number], columns=names(group.columns)):
                        first, last = max(begin, rows[0]), min(begin + len(batch), rows[1])
                        if first < last:
                            yield first, group, batch.slice(first - begin, last - first)
                        begin += len(batch)
                        if begin >= rows[1]:  # the rest of the group would be read for nothing
                            return

    def identity(self) -> list[Any]:
        """See `RowRanges`."""
        return [_stamp(path) for path in dict.fromkeys(group.path for group in self.groups)]


def open_parquets(files: list[Path], source: str, named: str) -> ParquetRows:
    """Open Parquet files; `named` (`VECTORS` or `KEYS,VECTORS`) selects the columns, else they are inferred."""
    from pyarrow import types

    groups: list[_RowGroup] = []
    begin, numbered = 0, True
    for path in files:
        with _readable(path), open_parquet(path) as file:
            columns = columns_of(file.schema_arrow, str(path), named)
            kind = None if columns.id is None else file.schema_arrow.field(columns.id).type
            numbered = numbered and kind is not None and types.is_integer(kind) and kind != "uint64"
            for number in range(file.metadata.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                if count:
                    groups.append(_RowGroup(path, number, begin, begin + count, columns))
                begin += count
    if not groups:
        raise InputError(f"{source}: holds no rows")
    with _readable(groups[0].path), open_parquet(groups[0].path) as file:
        batch = next(file.iter_batches(1, row_groups=[groups[0].number], columns=[groups[0].columns.vector]))
    first = batch.column(0)[0].as_py()
    if not first:
        raise InputError(f"{source}: row 0 has no vector; repair it or leave it out")
    return ParquetRows(source, len(first), tuple(groups), numbered)


def _origin(place: Path | Address) -> list[Any]:
    """What shows whether a copy is of this place: its name, and of files their sizes and times."""
    if isinstance(place, Address):
        return [str(place if place.is_url else replace(place, place=str(Path(place.place).absolute())))]
    return [str(place), *(_stamp(path) for path in files_read(place) if path.exists())]


def _copy(place: Path | Address, target: Path, origin: list[Any]) -> None:
    """Copy the ids and vectors of a file or store into a Parquet file, in small row groups."""
    from kedge.spaces.stores import open_store

    pa, pq = import_pyarrow()
    with open_store(place) as store, atomic_path(target) as temporary:
        dim = store.describe().dim
        about = {_ORIGIN: json.dumps(origin)}
        schema = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32(), dim))], about)
        with pq.ParquetWriter(temporary, schema, compression="none") as writer:
            for batch in store.read(_COPIED, payload=False):
                if batch.bad:
                    raise InputError(f"{place}: row {batch.bad[0][0]!r} {batch.bad[0][1]}; repair it or leave it out")
                flat = pa.array(np.ascontiguousarray(batch.vectors, dtype=np.float32).reshape(-1))
                vectors = pa.FixedSizeListArray.from_arrays(flat, dim)
                ids = pa.array([str(name) for name in batch.ids], pa.string())
                writer.write_table(pa.table({"id": ids, "vector": vectors}, schema=schema))


def vectors_of(space: RowRanges, lists: Any, begin: int) -> NDArray[np.float32]:
    """Check and return the vectors (k, d) in a column of lists; the first is row `begin` of the space."""
    from pyarrow import compute

    lengths = compute.fill_null(compute.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != space.dim)
    if len(wrong):
        row, length = int(wrong[0]), int(lengths[wrong[0]])
        what = "no vector" if length < 0 else f"{length} numbers instead of {space.dim}"
        raise InputError(f"{space.source}: row {begin + row} has {what}; repair it or leave it out")
    vectors = _float32(lists.flatten().to_numpy(zero_copy_only=False)).reshape(-1, space.dim)
    return _checked(space, begin, vectors)


def keys_of(batch: Any, begin: int, columns: Columns) -> Any:
    """The keys of a batch as text; row numbers if there is no key column."""
    pa, _ = import_pyarrow()
    if columns.id is None:
        return pa.array([str(row) for row in range(begin, begin + len(batch))], pa.string())
    return batch.column(columns.id).cast(pa.string())


def _float32(numbers: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # numbers too large become infinite, and are reported as such
        return np.array(numbers, dtype=np.float32)


def _checked(space: RowRanges, begin: int, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    for row, what in unusable_rows(vectors).items():
        key = space.keys((begin + row, begin + row + 1))[0].as_py()
        raise InputError(
            f"{space.source}: the vector of key {key!r} (row {begin + row}) {what}; remove that row or repair it"
        )
    return vectors


def cut(begin: int, end: int, size: int) -> list[Range]:
    """Split a range into ranges of `size` rows; the last may be shorter."""
    return [(first, min(first + size, end)) for first in range(begin, end, size)]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn whatever a parser raises into one line, in the words of `read_embeddings`."""
    try:
        yield
    except (KedgeError, MemoryError):
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: not a readable {path.suffix} file ({why}); truncated or of another format"
        ) from error


def _stamp(path: Path) -> list[Any]:
    about = path.stat()
    return [str(path), about.st_size, about.st_mtime_ns]

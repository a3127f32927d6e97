"""Parquet with a column of text or integers (the keys) and one of lists of numbers (the vectors)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.extras import needing
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.formats.columns import Columns, columns_of
from kedge.spaces.formats.parquet_footer import Claims, read_claims
from kedge.spaces.formats.record_batches import collect
from kedge.spaces.mapped_files import remember_size
from kedge.spaces.memory import require_in_proportion, require_room
from kedge.spaces.selection import Selection
from kedge.spaces.streams import require_regular_file

_BATCH_BYTES = 4 * 2**20
_KEY_BYTES = 100  # of a short string and its places in a list and a dict
_TAKES_EXTENSIONS = "arrow_extensions_enabled"  # an option of pyarrow since version 21


def read(path: Path, selection: Selection, named: str = "") -> tuple[list[str], NDArray[np.float32]]:
    """Read keys and vectors (n, d) from the named or inferred columns."""
    _, pq = import_pyarrow()
    columns = columns_of(pq.read_schema(path), str(path), named)
    return collect(parquet_batches(path, columns, selection), columns, selection, str(path))


def parquet_batches(path: Path, columns: Columns, selection: Selection) -> Iterator[Any]:
    """Yield the key and vector columns in batches."""
    _, pq = import_pyarrow()
    names = columns.names
    # Dictionary-encoded, a column takes space only for its distinct values, however often the file repeats them. With a
    # memory map, no column is loaded whole, and nothing is allocated for a page that only claims to be large.
    remember_size(path)
    with pq.ParquetFile(path, read_dictionary=names[:-1], memory_map=True, pre_buffer=False) as file:
        claims = read_claims(path, names)
        require_room(_row_bytes(claims) * selection.max_rows(claims.rows), path)
        yield from file.iter_batches(rows_at_once(path, names), columns=names)


def open_parquet(path: Path, *, packed: bool = False) -> Any:
    """Open a Parquet file with a memory map; `packed` keeps text columns dictionary-encoded."""
    _, pq = import_pyarrow()
    require_regular_file(path)
    remember_size(path)
    options: dict[str, Any] = {}
    if packed:
        leaves = [leaf for leaf in _leaves(path) if leaf.physical_type == "BYTE_ARRAY"]
        options["read_dictionary"] = [leaf.path for leaf in leaves]
        if any(leaf.logical_type.type == "JSON" for leaf in leaves) and _TAKES_EXTENSIONS in _options_of(pq):
            options[_TAKES_EXTENSIONS] = False  # as an extension type, JSON would not stay dictionary-encoded
    return pq.ParquetFile(path, memory_map=True, pre_buffer=False, **options)


def _leaves(path: Path) -> list[Any]:
    """The columns as stored; a nested one has several."""
    _, pq = import_pyarrow()
    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        return [file.schema.column(place) for place in range(len(file.schema))]


def _options_of(pq: ModuleType) -> Collection[str]:
    return signature(pq.ParquetFile).parameters


def write(path: Path, space: Embeddings) -> None:
    """Write the columns `key` and `vector` (float32 lists of fixed length)."""
    pa, pq = import_pyarrow()
    flat = pa.array(np.asarray(space.vectors).reshape(-1), type=pa.float32())
    vectors = pa.FixedSizeListArray.from_arrays(flat, space.dim)
    pq.write_table(pa.table({"key": pa.array(space.keys, type=pa.string()), "vector": vectors}), path)


def rows_at_once(path: Path, columns: Collection[str]) -> int:
    """How many rows of these columns to read at once; raises `InputError` if the file claims implausibly much.

    A few bytes can encode any number of equal values or a page of zeros. Unwanted rows are never kept, but a reader has
    to unpack whole pages, and cannot know how long the next list is.
    """
    claims = read_claims(path, columns)
    require_in_proportion(claims.largest, path)
    texts = max(claims.unpacked, 0) // max(claims.rows, 1)
    return max(_BATCH_BYTES // max(_row_bytes(claims), texts, _fixed_bytes(path, columns)), 1)


def _fixed_bytes(path: Path, columns: Collection[str]) -> int:
    """Bytes per row in values of fixed length, which Arrow always unpacks; only lengths that matter are counted."""
    total = 0
    for leaf in _leaves(path):
        if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" and leaf.length > _KEY_BYTES:
            claims = read_claims(path, [name for name in columns if f"{leaf.path}.".startswith(f"{name}.")])
            total += leaf.length * max(claims.values, 0) // max(claims.rows, 1)
    return total


def _row_bytes(claims: Claims) -> int:
    """Approximate bytes per row."""
    return 4 * max(claims.values, 0) // max(claims.rows, 1) + _KEY_BYTES


def import_pyarrow() -> tuple[ModuleType, ModuleType]:
    """Import `pyarrow` and `pyarrow.parquet`."""
    with needing("Parquet files and datasets need", "pyarrow", install="kedge[parquet]"):
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet

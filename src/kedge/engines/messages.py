"""Tables passed between functions: as bytes, with matrices as columns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.spaces.formats.parquet import import_pyarrow
from kedge.spaces.writing.atomic import atomic_path


def packed(table: Any) -> bytes:
    """A table as bytes."""
    pa, _ = import_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def unpacked(messages: Iterable[Any]) -> Any:
    """Unpack tables of the same schema and concatenate their rows."""
    pa, _ = import_pyarrow()
    return pa.concat_tables([pa.ipc.open_stream(message).read_all() for message in messages])


def matrix_column(matrix: NDArray[Any]) -> Any:
    """A matrix (n, k) as a column of n values, each the bytes of a row."""
    pa, _ = import_pyarrow()
    matrix = np.ascontiguousarray(matrix)
    kind = pa.binary(matrix.itemsize * matrix.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(matrix), [None, pa.py_buffer(matrix)])


def matrix_of(column: Any, dtype: Any) -> NDArray[Any]:
    """The matrix (n, k) in a column made by `matrix_column`."""
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if hasattr(array, "num_chunks"):  # still chunked, with a single chunk
        array = array.chunk(0)
    width, buffer = array.type.byte_width, array.buffers()[1]
    begin = array.offset * width
    flat = np.frombuffer(buffer, dtype=np.uint8)[begin : begin + len(array) * width]
    return flat.view(dtype).reshape(len(array), -1)


def write_rows(table: Any, path: Path) -> None:
    """Write an intermediate table atomically."""
    pa, _ = import_pyarrow()
    with atomic_path(path) as temporary, pa.ipc.new_file(str(temporary), table.schema) as file:
        file.write_table(table)


def read_rows(path: Path) -> Any:
    """Read a table written by `write_rows`, through a memory map."""
    pa, _ = import_pyarrow()
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()

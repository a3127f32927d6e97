"""A folder of Parquet files, such as data pipelines write: an id, a vector, and any other columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from kedge.errors import InputError
from kedge.spaces.atomic import atomic_path, delete_folder, require_parent
from kedge.spaces.formats.columns import Columns, columns_of
from kedge.spaces.formats.parquet import rows_at_once
from kedge.spaces.mapped_files import remember_size
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.backends.arrow import id_array, payload_fields, rows_of, table_of
from kedge.spaces.stores.store import Batch, Description, Id, Store
from kedge.spaces.streams import require_regular_file

_ABOUT = "_kedge.json"  # Arrow's readers pass over names that begin like this


class ParquetStore(Store):
    """The files in order of their names; every batch that is written becomes one."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._folder = Path(address.place)
        self._known: dict[Id, Path] | None = None
        self._fields: Any = None

    def exists(self) -> bool:
        """Whether the folder has such files, or was made for them."""
        return (self._folder / _ABOUT).is_file() or bool(self._parts())

    def describe(self) -> Description:
        """What all files hold together; the first speaks for all."""
        parts = self._parts()
        about = self._about()
        if not parts:
            return Description(0, about["dim"], about["metric"], about["metadata"])
        schema = _opened(parts[0]).schema_arrow
        columns = self._columns(schema)
        first = next(self.read(1), None)
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items() if _is_text(value)}
        return Description(
            rows=sum(_opened(part).metadata.num_rows for part in parts),
            dim=first.vectors.shape[1] if first else 0,
            metric=about.get("metric"),
            metadata=metadata | about.get("metadata", {}),
            fields=payload_fields(schema, columns),
        )

    def read(self, size: int) -> Iterator[Batch]:
        """File after file."""
        begin = 0
        for part in self._parts():
            for rows in _batches(part, size):
                yield rows_of(rows, self._columns(rows.schema), begin)
                begin += len(rows)

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids, from the files that have them."""
        wanted = {name: self._places()[name] for name in ids if name in self._places()}
        found = []
        for part in sorted(set(wanted.values())):
            for rows in _batches(part):
                columns = self._columns(rows.schema)
                if columns.id is None:
                    raise InputError(f"{part}: has no column of ids to look rows up by")
                chosen = rows.filter(pa.compute.is_in(rows[columns.id], id_array(rows.schema, columns, wanted)))
                if len(chosen):
                    found.append(rows_of(chosen, columns, 0))
        return _joined(found)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """Those of the ids that are there."""
        return {name for name in ids if name in self._places()}

    def create(self, like: Description) -> None:
        """Make the folder."""
        if self.address.name:
            raise InputError(f"{self.address}: new columns are called `id` and `vector`; leave the name after # away")
        require_parent(self._folder)
        self._folder.mkdir(exist_ok=True)
        self._fields = like.fields
        about = {"dim": like.dim, "metric": like.metric, "metadata": dict(like.metadata)}
        with atomic_path(self._folder / _ABOUT) as temporary:
            temporary.write_text(json.dumps(about, indent=2) + "\n")

    def write(self, batch: Batch) -> None:
        """One more file."""
        places = self._places()
        part = self._folder / f"part-{len(self._parts()):08d}.parquet"
        table = table_of(batch, self._fields, self._about()["metadata"])
        with atomic_path(part) as temporary:
            pq.write_table(table, temporary)
        places.update(dict.fromkeys(batch.ids, part))

    def abandon(self) -> None:
        """Delete the folder, if it was made for the rows and holds nothing else."""
        names = {path.name for path in self._folder.glob("*")}
        if _ABOUT in names and names <= {_ABOUT, *(path.name for path in self._parts())}:
            delete_folder(self._folder)

    def _parts(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.parquet") if not path.name.startswith((".", "_")))

    def _columns(self, schema: Any) -> Columns:
        place = f"{self.address.kind}:{self.address.place}"
        return columns_of(schema, place, self.address.name)

    def _about(self) -> dict[str, Any]:
        path = self._folder / _ABOUT
        return json.loads(path.read_text()) if path.is_file() else {}

    def _places(self) -> dict[Id, Path]:
        """The file of each id."""
        if self._known is None:
            self._known = {}
            for part in self._parts():
                columns = self._columns(_opened(part).schema_arrow)
                if columns.id is not None:
                    for rows in _batches(part, columns=[columns.id]):
                        self._known.update(dict.fromkeys(rows[columns.id].to_pylist(), part))
        return self._known


def _opened(part: Path) -> pq.ParquetFile:
    require_regular_file(part)
    remember_size(part)
    return pq.ParquetFile(part, memory_map=True, pre_buffer=False)


def _batches(part: Path, size: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, at most `size` at a time, and never more than are read at once."""
    with _opened(part) as file:
        columns = columns or file.schema_arrow.names
        most = rows_at_once(part, columns)
        yield from file.iter_batches(min(most, size or most), columns=columns)


def _joined(batches: Sequence[Batch]) -> Batch:
    if not batches:
        return Batch([], np.zeros((0, 0), dtype=np.float32), [])
    return Batch(
        [name for batch in batches for name in batch.ids],
        np.concatenate([batch.vectors for batch in batches]),
        [payload for batch in batches for payload in batch.payloads],
    )


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True

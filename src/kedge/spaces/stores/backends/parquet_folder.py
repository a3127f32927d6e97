"""A folder of Parquet files, as data pipelines write them: an id, a vector, and any other columns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pyarrow.parquet as pq

from kedge.errors import InputError
from kedge.spaces.formats.columns import Columns, columns_of
from kedge.spaces.formats.parquet import open_parquet, rows_at_once
from kedge.spaces.stores.address import Address
from kedge.spaces.stores.backends.arrow import bounded, dim_of, id_array, ids_of, payload_fields, rows_of, table_of
from kedge.spaces.stores.payloads import unfit_for_json
from kedge.spaces.stores.store import Batch, Description, Id, Store
from kedge.spaces.writing.atomic import atomic_path, delete_folder, require_parent
from kedge.spaces.writing.lock import LOCK_NAME

_ABOUT = "_kedge.json"  # Arrow's readers skip names that begin with _
_PART = re.compile(r"part-(\d{8,18})\.parquet")


class ParquetStore(Store):
    """All files in the order of their names; each batch written becomes a new file."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._folder = Path(address.place)
        self._known: dict[Id, Path] | None = None

    def exists(self) -> bool:
        """Whether the folder has Parquet files, or was created for them."""
        return (self._folder / _ABOUT).is_file() or bool(self._parts())

    def describe(self) -> Description:
        """Describe all files together; the schema is that of the first."""
        parts, about = self._parts(), self._about
        fields = _unpacked_fields(about.get("fields"))
        if not parts:
            return Description(0, about["dim"], about["metric"], about["metadata"], fields, self._id_type)
        with open_parquet(parts[0]) as file:
            schema = file.schema_arrow
        metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items() if _is_text(value)}
        return Description(
            rows=sum(_rows_in(part) for part in parts),
            dim=self._dim,
            metric=about.get("metric"),
            metadata=metadata | about.get("metadata", {}),
            fields=fields or payload_fields(schema, self._columns(schema)),
            id_type=self._id_type,
        )

    def read(self, size: int, *, payload: bool = True) -> Iterator[Batch]:
        """Iterate over the rows, file by file."""
        begin = 0
        for part in self._parts():
            columns = self._columns_in(part)
            for rows in _batches(part, size, None if payload else columns.names):
                yield rows_of(rows, columns, begin, self._dim)
                begin += len(rows)

    def ids(self, size: int) -> Iterator[Sequence[Id | None]]:
        """Iterate over the column of ids alone, or over row numbers if there is none."""
        begin = 0
        for part in self._parts():
            column = self._columns_in(part).id
            count = _rows_in(part)
            if column is None:
                for first in range(begin, begin + count, size):
                    yield list(range(first, min(first + size, begin + count)))
            else:
                for rows in _batches(part, size, [column]):
                    yield ids_of(rows[column])
            begin += count

    def fetch(self, ids: Collection[Id]) -> Batch:
        """The rows with these ids, from the files that have them."""
        wanted = {name: self._places()[name] for name in ids if name in self._places()}
        found = []
        for part in sorted(set(wanted.values())):
            columns = self._columns_in(part)
            for rows in _batches(part):
                chosen = rows.filter(pa.compute.is_in(rows[columns.id], id_array(rows.schema, columns, wanted)))
                if len(chosen):
                    found.append(rows_of(chosen, columns, 0, self._dim))
        return _joined(found)

    def present(self, ids: Collection[Id]) -> set[Id]:
        """The ids that exist."""
        return {name for name in ids if name in self._places()}

    def create(self, like: Description) -> None:
        """Create the folder."""
        if self.address.name:
            raise InputError(f"{self.address}: new columns are called `id` and `vector`; omit the name after #")
        require_parent(self._folder)
        self._folder.mkdir(exist_ok=True)
        about = {
            "dim": like.dim,
            "metric": like.metric,
            "metadata": dict(like.metadata),
            "id_type": like.id_type,
            # So that an interrupted migration resumes with the same types.
            "fields": None if like.fields is None else base64.b64encode(like.fields.serialize()).decode(),
        }
        with atomic_path(self._folder / _ABOUT) as temporary:
            temporary.write_text(json.dumps(about, indent=2) + "\n")
        for name in ("_about", "_typed", "_dim"):
            vars(self).pop(name, None)

    def write(self, batch: Batch) -> None:
        """Write the rows that do not exist yet to a new file."""
        places = self._places()
        names = [self.id_of(name) for name in batch.ids]
        rows = batch.take([row for row, name in enumerate(names) if name not in places])
        if not len(rows):
            return
        # Number it after all existing files, even if some in between were deleted, so that none is ever overwritten.
        numbers = [int(found[1]) for path in self._parts() if (found := _PART.fullmatch(path.name))]
        part = self._folder / f"part-{max(numbers, default=-1) + 1:08d}.parquet"
        fields = _unpacked_fields(self._about.get("fields"))
        numbered = self._id_type == "int"
        table = table_of(rows, fields, self._about.get("metadata", {}), numbered=numbered)
        with atomic_path(part) as temporary:
            pq.write_table(table, temporary)
        places.update({self.id_of(name): part for name in rows.ids})

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:
        """A column can hold bytes or lists of bytes; otherwise nested ones would be JSON, which cannot."""
        typed = self._typed
        try:
            str(key).encode("utf-8")
        except UnicodeEncodeError:
            return "has an id that is not valid Unicode"
        return unfit_for_json(
            {name: value for name, value in payload.items() if name not in typed and not _is_bytes(value)}
        )

    def abandon(self) -> None:
        """Delete the folder if it was created for the rows and holds nothing else."""
        names = {path.name for path in self._folder.glob("*")}
        if _ABOUT in names and names <= {_ABOUT, LOCK_NAME, *(path.name for path in self._parts())}:
            delete_folder(self._folder)

    def id_of(self, key: Id) -> Id:
        """The id as its column holds it: an integer, or text."""
        try:
            return int(key) if self._id_type == "int" else str(key)
        except ValueError:
            raise InputError(
                f"{self.address}: ids are whole numbers there, but {key!r} is not; choose another folder"
            ) from None

    def _parts(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.parquet") if not path.name.startswith((".", "_")))

    def _columns(self, schema: Any) -> Columns:
        if self._about:
            return Columns("id", "vector")
        return columns_of(schema, f"{self.address.kind}:{self.address.place}", self.address.name)

    def _columns_in(self, part: Path) -> Columns:
        with open_parquet(part) as file:
            return self._columns(file.schema_arrow)

    @cached_property
    def _about(self) -> dict[str, Any]:
        """What `create` wrote about the folder; empty if kedge did not create it."""
        path = self._folder / _ABOUT
        if not path.is_file():
            return {}
        try:
            about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            dim, metadata = about["dim"], about["metadata"]
            sound = type(dim) is int and dim > 0 and isinstance(metadata, dict) and {"metric", "id_type"} <= set(about)
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise InputError(f"{path}: is not as kedge wrote it; delete the folder, or migrate into another")
        return about

    @cached_property
    def _typed(self) -> set[str]:
        fields = _unpacked_fields(self._about.get("fields"))
        return set() if fields is None else set(fields.names)

    @property
    def _id_type(self) -> Any:
        """The type of the ids: "int" or "str"."""
        return self._about.get("id_type") or (self._id_type_found if self._parts() else "str")

    @cached_property
    def _id_type_found(self) -> str:
        kinds = []
        for part in self._parts():
            with open_parquet(part) as file:
                column = self._columns(file.schema_arrow).id
                kinds.append(pa.int64() if column is None else file.schema_arrow.field(column).type)
        whole = all(pa.types.is_integer(kind) and not pa.types.is_uint64(kind) for kind in kinds)
        return "int" if whole else "str"

    @cached_property
    def _dim(self) -> int:
        stated = self._about.get("dim")
        for part in self._parts():
            columns = self._columns_in(part)
            for rows in _batches(part, 1000, columns.names):
                found = dim_of(rows[columns.vector])
                if stated not in (None, found):
                    raise InputError(
                        f"{self._folder / _ABOUT}: says that vectors have {stated} dimensions, but {part.name} holds "
                        f"vectors of {found}; delete the folder, or migrate into another"
                    )
                return found
        return stated or 0

    def _places(self) -> dict[Id, Path]:
        """The file of each id."""
        if self._known is None:
            self._known = {}
            for part in self._parts():
                column = self._columns_in(part).id
                if column is None:
                    raise InputError(f"{part}: has no column of ids to look rows up by")
                for rows in _batches(part, columns=[column]):
                    named = [self.id_of(name) for name in ids_of(rows[column]) if name is not None]
                    self._known.update(dict.fromkeys(named, part))
        return self._known


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, list) and bool(value) and all(map(_is_bytes, value)))


def _rows_in(part: Path) -> int:
    with open_parquet(part) as file:
        return int(file.metadata.num_rows)


def _batches(part: Path, size: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Iterate over the rows of a file, at most `size` at a time, and fewer if they would take too much memory."""
    with open_parquet(part, packed=True) as file:
        columns = columns or file.schema_arrow.names
        rows = rows_at_once(part, columns)
        for batch in file.iter_batches(min(rows, size or rows), columns=columns):
            yield from bounded(batch.select(list(dict.fromkeys(columns))))


def _unpacked_fields(text: str | None) -> Any:
    return None if text is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


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

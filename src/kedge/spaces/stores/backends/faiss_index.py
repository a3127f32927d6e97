"""FAISS: an index in a file, with the keys of its rows in NAME.keys.txt if they are not integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.formats.npy import key_fault, key_file, read_keys, write_keys
from kedge.spaces.packed_bits import unpack_bits
from kedge.spaces.stores.backends.single_file import Contents, WholeFile
from kedge.spaces.stores.store import Description, Id, Metric
from kedge.spaces.writing.atomic import atomic_paths

_METRICS: dict[int, Metric] = {faiss.METRIC_INNER_PRODUCT: "ip", faiss.METRIC_L2: "l2"}
_ROWS = 16_384
_BINARY = b"IB"  # the first bytes of a file with a binary index


class FaissStore(WholeFile):
    """An index. New ones are flat: search is exact, and the vectors can be read back."""

    _numbered: bool | None = None  # whether ids are integers, kept in the index itself; None: unknown yet

    def create(self, like: Description) -> None:
        """Create the buffer of rows beside the future file."""
        super().create(like)
        self._numbered = None

    def unfit(self, key: Id, payload: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """Text keys are kept in a file, one per line; payloads are not written anyway."""
        return None if self._is_numbered() else key_fault(str(key))

    def id_of(self, key: Id) -> Id:
        """An integer if the index has integer ids, else text."""
        if self._numbered is None and not self.exists():
            return key
        try:
            return int(key) if self._is_numbered() else str(key)
        except ValueError:
            return key

    def _is_numbered(self) -> bool:
        if self._numbered is None:
            waiting = self._buffer.exists()
            self._numbered = self._buffer.describe().id_type == "int" if waiting else not key_file(self._path).is_file()
        return self._numbered

    def _load(self) -> Contents:
        with self._path.open("rb") as stream:
            if stream.read(len(_BINARY)) == _BINARY:
                return self._load_binary()
        index = whole = faiss.read_index(str(self._path), faiss.IO_FLAG_MMAP)
        metric = _METRICS.get(index.metric_type)
        numbers: list[Id] = list(range(index.ntotal))
        if isinstance(index, faiss.IndexIDMap):  # or IndexIDMap2, its subclass
            numbers = faiss.vector_to_array(index.id_map).tolist()
            index = faiss.downcast_index(index.index)
        elif isinstance(index, faiss.IndexIVF):
            index.make_direct_map()
        ids: list[Id] = list(read_keys(self._path, len(numbers))) if key_file(self._path).is_file() else numbers
        return Contents(ids, _Reconstructed(index, whole, self.address), metric)  # type: ignore[arg-type]

    def _load_binary(self) -> Contents:
        """Load a binary index; bits become 1 and -1."""
        index: Any = faiss.read_index_binary(str(self._path))
        whole = index  # keep a reference: its parts are freed with it
        numbers: list[Id] = list(range(index.ntotal))
        if isinstance(index, faiss.IndexBinaryIDMap):
            numbers = faiss.vector_to_array(index.id_map).tolist()
            index = faiss.downcast_IndexBinary(index.index)
        if not isinstance(index, faiss.IndexBinaryFlat):
            raise InputError(
                f"{self.address}: of binary indexes only flat ones can be read, this is a {type(index).__name__}; give "
                "the vectors it was made from"
            )
        codes = faiss.vector_to_array(getattr(index, "xb")).reshape(whole.ntotal, index.code_size)  # noqa: B009 - not in its stubs
        ids: list[Id] = list(read_keys(self._path, len(numbers))) if key_file(self._path).is_file() else numbers
        return Contents(ids, unpack_bits(codes, index.d), None)

    def _files(self) -> list[Path]:
        return [self._path, key_file(self._path)]

    def _save(self, contents: Contents) -> None:
        ids, vectors, metric = contents
        index: Any = (faiss.IndexFlatL2 if metric == "l2" else faiss.IndexFlatIP)(vectors.shape[1])
        numbered = all(isinstance(name, int) for name in ids)
        if numbered:
            index = faiss.IndexIDMap2(index)
        for begin in range(0, len(ids), _ROWS):
            block = np.array(vectors[begin : begin + _ROWS])
            if numbered:
                index.add_with_ids(block, np.asarray(ids[begin : begin + _ROWS], dtype=np.int64))
            else:
                index.add(block)
        with atomic_paths(*([self._path] if numbered else self._files())) as (temporary, *keys):
            for path in keys:
                write_keys(path, [str(name) for name in ids])
            faiss.write_index(index, str(temporary))


class _Reconstructed:
    """The vectors (n, d) of an index as its codec reconstructs them, indexed by slices or lists of rows."""

    def __init__(self, index: Any, whole: Any, address: object) -> None:
        self._index, self._address = index, address
        self._whole = whole  # keep a reference: the index is a part of it and freed with it
        self.shape = (int(index.ntotal), int(index.d))

    def __getitem__(self, rows: slice | Sequence[int]) -> NDArray[np.float32]:
        try:
            if isinstance(rows, slice):
                begin, end, _ = rows.indices(self.shape[0])
                return self._index.reconstruct_n(begin, end - begin)
            return self._index.reconstruct_batch(np.asarray(rows, dtype=np.int64))
        except RuntimeError as error:
            raise InputError(
                f"{self._address}: a {type(self._index).__name__} does not give its vectors back ({error}); "
                "give the vectors it was made from"
            ) from error

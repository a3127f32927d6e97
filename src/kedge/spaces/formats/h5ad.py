"""AnnData files: observation names are the keys, an entry of `.obsm` or a dense `.X` holds the vectors.

Nothing else is read: the count matrix in the same file may be many times larger.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, did_you_mean
from kedge.extras import needing
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.memory import require_room
from kedge.spaces.selection import Selection

_WRITTEN = "vectors"  # the entry of .obsm that `write` makes
_SPARSE = ("csr_matrix", "csc_matrix")
_KEY_BYTES = 100  # of a short string and its slots in a list and a dict


def read(path: Path, selection: Selection, name: str = "") -> tuple[list[str], NDArray[Any]]:
    """Read keys and vectors (n, d): entry `name`, else the only entry of `.obsm`, else `.X`."""
    _require_anndata()
    import h5py

    with h5py.File(path) as file:
        if not all(isinstance(file.get(group), h5py.Group) for group in ("obs", "obsm")):
            raise InputError(
                f"{path}: not an AnnData file of version 0.7 or later; read it with anndata and write it again"
            )
        matrix = _matrix(path, file, name)
        names = file["obs"][file["obs"].attrs["_index"]]
        keys = _texts(_head(path, names, None if selection.keys is not None else selection.limit, _KEY_BYTES))
        rows = selection.rows(keys)
        vectors = np.asarray(_head(path, matrix, None if selection.everything else max(rows, default=0) + 1))
    if selection.everything or vectors.ndim != 2:
        return keys, vectors
    return [keys[row] for row in rows], vectors[rows]


def write(path: Path, space: Embeddings) -> None:
    """Write an AnnData file without variables, with the float32 vectors in `.obsm`."""
    _require_anndata()
    import anndata
    import pandas

    if any("\0" in key for key in space.keys):
        raise InputError(f"{path.name}: a key holds a NUL character, which .h5ad cannot store; write .safetensors")
    observations = pandas.DataFrame(index=pandas.Index(space.keys, dtype=object))
    vectors = np.asarray(space.vectors, dtype=np.float32)
    anndata.AnnData(obs=observations, obsm={_WRITTEN: vectors}).write_h5ad(path)


def _matrix(path: Path, file: Any, name: str) -> Any:
    """The element that holds the vectors: an entry of `.obsm`, or `X`."""
    dense = [entry for entry, element in file["obsm"].items() if not _is_sparse(element)]
    names = ", ".join(dense)
    if not name and len(dense) > 1:
        raise InputError(f"{path}: .obsm has several entries ({names}); name one: {path}#{dense[0]}")
    name = name or next(iter(dense), "X")
    element = file["obsm"].get(name, file.get("X") if name == "X" else None)
    if element is None:
        known = f"its dense entries are {names}" if names else "it has no dense entry"
        raise InputError(f"{path}: .obsm has no entry {name!r}; {known}{did_you_mean(name, dense)}")
    if _is_sparse(element):
        instead = f"name an entry of .obsm: {names}" if names else "put vectors into .obsm first, such as its PCA"
        raise InputError(f"{path}: {name} is a sparse matrix, but a dense one is needed; {instead}")
    return element


def _is_sparse(element: Any) -> bool:
    return element.attrs.get("encoding-type") in _SPARSE


def _head(path: Path, element: Any, rows: int | None, value_bytes: int | None = None) -> Any:
    """The first `rows` (None: all) of an array, a table or anything else that AnnData can store."""
    if not hasattr(element, "shape"):
        from anndata.io import read_elem

        return read_elem(element)[:rows]
    count = element.size if rows is None else element.size // max(len(element), 1) * rows
    require_room(count * (value_bytes or element.dtype.itemsize), path)
    return element[:rows]


def _texts(names: Any) -> list[str]:
    return [name.decode("utf-8") if isinstance(name, bytes) else str(name) for name in names]


def _require_anndata() -> None:
    with needing("AnnData files need", "anndata", "h5py", install="kedge[anndata]"):
        import anndata.io  # noqa: F401
        import h5py  # noqa: F401

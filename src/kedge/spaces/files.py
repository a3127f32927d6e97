"""Read and write spaces: the suffix selects the format, one module per format; an address selects a store.

If a file can hold several spaces, `FILE#NAME` selects one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kedge.errors import InputError, KedgeError
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.formats import dataset_folder, h5ad, npy, npz, parquet, safetensors, word2vec_binary, word2vec_text
from kedge.spaces.packed_bits import unpack_numbers
from kedge.spaces.selection import Selection
from kedge.spaces.stores.address import Address, as_address, is_address
from kedge.spaces.streams import require_regular_file
from kedge.spaces.writing.atomic import atomic_path, atomic_paths, require_target


@dataclass(frozen=True)
class _Format:
    read: Callable[..., tuple[list[str], NDArray[Any]]]  # takes (path, selection[, name])
    write: Callable[[Path, Embeddings], None] | None  # None: two files, see write_file
    has_names: bool = False  # whether a name after # selects a part of the file


_TEXT = _Format(word2vec_text.read, word2vec_text.write)
_BINARY = _Format(word2vec_binary.read, word2vec_binary.write)
_FORMATS = {
    ".vec": _TEXT,
    ".vec.gz": _TEXT,
    ".txt": _TEXT,
    ".txt.gz": _TEXT,
    ".bin": _BINARY,
    ".bin.gz": _BINARY,
    ".npz": _Format(npz.read, npz.write),
    ".npy": _Format(npy.read, None),
    ".safetensors": _Format(safetensors.read, safetensors.write),
    ".parquet": _Format(parquet.read, parquet.write, has_names=True),
    ".h5ad": _Format(h5ad.read, h5ad.write, has_names=True),
}


def read_embeddings(
    path: str | Path | Address,
    *,
    limit: int | None = None,
    keys: Collection[str] | None = None,
    packed: bool = False,
    dims: int | None = None,
) -> Embeddings:
    """Read a space from a file whose suffix names its format, or from a store.

    Parameters
    ----------
    path : str, Path or Address
        `.vec`, `.txt` (word2vec or GloVe text, also `.gz`), `.bin` (word2vec binary, also `.gz`), `.npz`,
        `.npy` with `NAME.keys.txt`, `.safetensors`, `.parquet`, `.h5ad` (AnnData), or the folder of a Hugging Face
        dataset. `.npy` and `.safetensors` are memory-mapped. `cells.h5ad#X_pca` selects an entry of `.obsm`;
        `FILE.parquet#VECTORS` or `#KEYS,VECTORS` selects columns, also of a dataset.
        Or the address of a store, such as `chroma:DIR#collection`, whose ids become the keys.
    limit : int, optional
        Keep at most the first `limit` rows (files are commonly sorted by frequency).
    keys : collection of str, optional
        Keep only the rows with these keys.
    packed : bool
        Whether the numbers are packed binary vectors, eight dimensions per byte, as `np.packbits` and
        sentence-transformers (`ubinary`, `binary`) produce them. They are unpacked to vectors of 1 and -1.
    dims : int, optional
        Keep only the first `dims` dimensions, as Matryoshka models allow.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    selection = Selection(limit, None if keys is None else frozenset(keys))
    if is_address(path):
        from kedge.spaces.stores.spaces import read_space

        return read_space(as_address(path), selection, packed=packed, dims=dims)
    return read_file(Path(path), selection, packed=packed, dims=dims)  # type: ignore[arg-type]


def read_file(
    path: Path,
    selection: Selection = Selection(),  # noqa: B008
    *,
    packed: bool = False,
    dims: int | None = None,
) -> Embeddings:
    """Read a file for `read_embeddings`."""
    place, name = split_name(path)
    is_dataset = dataset_folder.is_dataset(place)
    read = dataset_folder.read if is_dataset else _reader_of(place)
    try:
        names, vectors = read(place, selection, name) if name else read(place, selection)
    except KedgeError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for the memory of this machine; use limit or a smaller file") from error
    except Exception as error:
        # Anything that the parser of a format (zip, gzip, NumPy, safetensors, Arrow, JSON) may raise.
        why = " ".join(str(error).split()) or type(error).__name__
        what = "dataset" if is_dataset else f"{place.suffix} file"
        raise InputError(f"{path}: not a readable {what} ({why}); truncated or of another format") from error
    if not names and selection.keys is not None:
        raise InputError(f"{path}: none of the {len(selection.keys)} wanted keys is in the file")
    if packed:
        vectors = unpack_numbers(vectors, str(path))
    space = Embeddings(names, vectors, str(path))
    return space if dims is None else space.first_dims(dims)


def write_embeddings(space: SpaceLike, path: str | Path | Address) -> None:
    """Write a space to a file whose suffix names its format, or to a store; a file appears complete or not at all.

    A store must not exist yet, and its rows get no payload. Keys are written as text. `space` can be anything that
    `AnchorDiscovery.fit` takes.
    """
    space = as_space(space, "space").with_text_keys()
    if is_address(path):
        from kedge.spaces.stores.spaces import write_space

        return write_space(space, as_address(path))
    return write_file(space, Path(path))  # type: ignore[arg-type]


def write_file(space: Embeddings, path: Path) -> None:
    """Write a file for `write_embeddings`."""
    form = _format_of(path)
    if form.write is not None:
        with atomic_path(path) as temporary:
            form.write(temporary, space)
    else:
        with atomic_paths(*files_written(path)) as (temporary, keys_temporary):
            npy.write(temporary, keys_temporary, space)


def files_written(path: Path) -> list[Path]:
    """The file of a space and, if the format keeps keys in a separate file, that key file."""
    return [path, npy.key_file(path)] if path.suffix.lower() == ".npy" else [path]


def files_read(path: Path) -> list[Path]:
    """The file of a space and, if the format can use one and it exists, the key file.

    For a dataset, all of its files.
    """
    path, _ = split_name(path)
    if dataset_folder.is_dataset(path):
        return dataset_folder.files_of(path)
    keys = npy.key_file(path)
    return [path, keys] if path.suffix.lower() in (".npy", ".safetensors") and keys.exists() else [path]


def split_name(path: Path) -> tuple[Path, str]:
    """Split `PLACE#NAME` into the file or folder and the name of the part that is meant, if any."""
    place, mark, name = str(path).rpartition("#")
    form = _FORMATS.get(_suffix_of(Path(place)).lower())
    has_names = form.has_names if form else bool(place) and dataset_folder.is_dataset(Path(place))
    if mark and has_names and not is_known_format(path):
        return Path(place), name
    return path, ""


def is_known_format(path: str | Path) -> bool:
    """Whether the suffix names a format of spaces; the file need not exist."""
    return _suffix_of(Path(path)).lower() in _FORMATS


def key_fault(path: Path, key: str) -> str | None:
    """Why the format of a file cannot store a key; None if it can."""
    suffix = _suffix_of(path).lower().removesuffix(".gz")
    if suffix in (".vec", ".txt", ".bin") and key.split() != [key]:
        return "has an id that is empty or holds white space, which word2vec files cannot store"
    if suffix == ".npy":
        return npy.key_fault(key)
    if (suffix == ".npz" and key.endswith("\0")) or (suffix == ".h5ad" and "\0" in key):
        return f"has an id with a NUL character, which {suffix} cannot store"
    return None


def require_writable(path: str | Path) -> None:
    """Refuse at the start of a long job what `write_embeddings` would refuse at its end."""
    _format_of(Path(path))
    require_target(Path(path))


def _reader_of(path: Path) -> Callable[..., tuple[list[str], NDArray[Any]]]:
    require_regular_file(path)
    form = _format_of(path)
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    return form.read


def _format_of(path: Path) -> _Format:
    place, name = split_name(path)
    if name:
        raise InputError(f"{path}: a name after # selects what to read, and cannot be written to; write to {place}")
    form = _FORMATS.get(_suffix_of(path).lower())
    if form is None:
        raise InputError(
            f"{path}: the suffix {_suffix_of(path)!r} is not that of a known format; known are {', '.join(_FORMATS)}, "
            "and stores (see `kedge stores`)"
        )
    return form


def _suffix_of(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix

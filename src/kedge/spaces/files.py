"""Read and write spaces: the suffix chooses the format, one module a format; an address chooses a store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kedge.errors import InputError, KedgeError
from kedge.spaces import npy, npz, parquet, safetensors, word2vec_binary, word2vec_text
from kedge.spaces.atomic import atomic_path, require_target
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.selection import Selection, share_of
from kedge.spaces.stores.address import Address, as_address, is_address


@dataclass(frozen=True)
class _Format:
    read: Callable[[Path, Selection], tuple[list[str], NDArray[Any]]]
    write: Callable[[Path, Embeddings], None] | None  # None: two files, see write_embeddings


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
    ".parquet": _Format(parquet.read, parquet.write),
}


def read_embeddings(
    path: str | Path | Address,
    *,
    limit: int | None = None,
    keys: Collection[str] | None = None,
    share: tuple[int, int] = (0, 1),
) -> Embeddings:
    """Read a space from a file whose suffix names its format, or from a store.

    Parameters
    ----------
    path : str, Path or Address
        `.vec`, `.txt` (word2vec or GloVe text, also `.gz`), `.bin` (word2vec binary, also `.gz`), `.npz`,
        `.npy` with `NAME.keys.txt`, `.safetensors` or `.parquet`. `.npy` and `.safetensors` are memory-mapped.
        Or the address of a store, such as `chroma:DIR#collection`, whose ids become the keys.
    limit : int, optional
        Keep at most so many rows, from the top (files are commonly sorted by frequency).
    keys : collection of str, optional
        Keep only the rows with these keys.
    share : (int, int)
        Which of how many processes this is. All keys are read, but of a memory-mapped file only the vectors in this
        process's share of the rows are touched; the others are for the others to check.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    selection = Selection(limit, None if keys is None else frozenset(keys))
    if is_address(path):
        from kedge.spaces.stores.spaces import read_space

        return read_space(as_address(path), selection, share)
    return read_file(Path(path), selection, share)  # type: ignore[arg-type]


def read_file(path: Path, selection: Selection = Selection(), share: tuple[int, int] = (0, 1)) -> Embeddings:  # noqa: B008
    """What `read_embeddings` does with a file."""
    form = _format_of(path)
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")
    try:
        names, vectors = form.read(path, selection)
    except KedgeError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for the memory of this machine; use limit or a smaller file") from error
    except Exception as error:
        # Whatever the parser of a format (zip, gzip, NumPy, safetensors, Arrow, JSON) stumbles over.
        told = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path}: not a readable {path.suffix} file ({told}); truncated or of another format"
        ) from error
    if not names and selection.keys is not None:
        raise InputError(f"{path}: none of the {len(selection.keys)} wanted keys is in the file")
    return Embeddings(names, vectors, str(path), share_of(len(names), *share))


def write_embeddings(space: Embeddings, path: str | Path | Address) -> None:
    """Write a space to a file whose suffix names its format, and which appears complete or not at all; or to a store.

    A store must not be there yet. Its rows have no payload.
    """
    if is_address(path):
        from kedge.spaces.stores.spaces import write_space

        return write_space(space, as_address(path))
    return write_file(space, Path(path))  # type: ignore[arg-type]


def write_file(space: Embeddings, path: Path) -> None:
    """What `write_embeddings` does with a file."""
    form = _format_of(path)
    with atomic_path(path) as temporary:
        if form.write is not None:
            form.write(temporary, space)
        else:
            with atomic_path(npy.key_file(path)) as keys_temporary:
                npy.write(temporary, keys_temporary, space)


def is_known_format(path: str | Path) -> bool:
    """Whether the suffix names a format of spaces; says nothing of whether there is such a file."""
    return _suffix_of(Path(path)).lower() in _FORMATS


def require_writable(path: str | Path) -> None:
    """Refuse at the start of long work what `write_embeddings` would refuse at its end."""
    _format_of(Path(path))
    require_target(Path(path))


def _format_of(path: Path) -> _Format:
    form = _FORMATS.get(_suffix_of(path).lower())
    if form is None:
        raise InputError(
            f"{path}: the suffix {_suffix_of(path)!r} names no known format; known are {', '.join(_FORMATS)}, "
            "and stores (see `kedge stores`)"
        )
    return form


def _suffix_of(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix

"""Encode many items in shards: finished shards are kept on disk, and a rerun continues from there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.writing.atomic import atomic_path, delete_folder, require_parent
from kedge.spaces.writing.lock import FolderLock

Item = TypeVar("Item")
Setting = str | int | float | None

_DESCRIPTION = "encoding.json"
_ACTIVITY = "encoding"


def partial_folder(out: str | Path) -> Path:
    """Where the shards of the output `out` live until it is complete."""
    out = Path(out)
    return out.with_name(out.name + ".partial")


def encode_in_shards(
    encode: Callable[[Sequence[Item]], tuple[NDArray[np.bool_], NDArray[np.float32]]],
    items: Sequence[Item],
    folder: Path,
    *,
    settings: Mapping[str, Setting],
    inputs: str,
    shard_rows: int = 1024,
    step: int = 32,
    restart: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Encode n items in shards, and continue after the finished shards in `folder`.

    A shard is written whole or not at all, so a process killed at any time loses at most one shard. The folder stays:
    write the result, then call `remove_shards`.

    Parameters
    ----------
    encode : callable
        Takes k items; returns a mask (k,) of those that have a vector, and their vectors (found, d).
    items : sequence, length n
        What to encode.
    folder : Path
        Where shards are kept; see `partial_folder`.
    settings : mapping
        Everything that the vectors depend on besides the items.
    inputs : str
        A digest of the items; see `digest`.
    shard_rows : int
        Items per shard.
    step : int
        Items per call of `encode`.
    restart : bool
        Discard the shards of an earlier run.
    on_progress : callable, optional
        Called with the number of finished items and the total; first with those that earlier runs finished.

    Returns
    -------
    found : array of bool, shape (n,)
        Which items have a vector.
    vectors : array, shape (found, d)
        Their vectors.

    Raises
    ------
    InputError
        If the folder holds shards of other settings or inputs, or other files; or if another process encodes there.
    """
    described: dict[str, Setting] = {**settings, "inputs": inputs, "items": len(items), "shard_rows": shard_rows}
    with FolderLock(folder, _ACTIVITY):
        _open_folder(folder, described, restart=restart)
        return _encode_missing(encode, items, folder, shard_rows, step, on_progress or (lambda *_: None))


def _encode_missing(
    encode: Callable[[Sequence[Item]], tuple[NDArray[np.bool_], NDArray[np.float32]]],
    items: Sequence[Item],
    folder: Path,
    shard_rows: int,
    step: int,
    report: Callable[[int, int], None],
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Encode and write the shards that are missing; join all."""
    shards: list[tuple[NDArray[np.bool_], NDArray[np.float32]] | None] = []
    for begin in range(0, len(items), shard_rows):
        shards.append(_read_shard(_shard_path(folder, begin), min(shard_rows, len(items) - begin)))
    done = sum(len(shard[0]) for shard in shards if shard is not None)
    report(done, len(items))
    for number, finished in enumerate(shards):
        if finished is not None:
            continue
        begin = number * shard_rows
        end = min(begin + shard_rows, len(items))
        blocks = []
        for first in range(begin, end, step):
            block = encode(items[first : min(first + step, end)])
            blocks.append(block)
            done += len(block[0])
            report(done, len(items))
        shard = _join(blocks)
        _write_shard(_shard_path(folder, begin), *shard)
        shards[number] = shard
    return _join([shard for shard in shards if shard is not None])


def remove_shards(folder: Path) -> None:
    """Delete the folder of a finished encoding, unless another process has begun to encode there."""
    with suppress(InputError), FolderLock(folder, _ACTIVITY):
        if folder.is_dir():  # another that finished at the same time may have deleted it
            delete_folder(folder)


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of a list of strings."""
    summed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8")
        summed.update(len(data).to_bytes(8, "little"))
        summed.update(data)
    return summed.hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """SHA-256 of the paths, sizes and modification times of files: quick even for very many."""
    parts = []
    for path in paths:
        status = path.stat()
        parts += [str(path.resolve()), str(status.st_size), str(status.st_mtime_ns)]
    return digest(parts)


def digest_of_model(model: str) -> str | None:
    """Digest of the files of a local model (a folder or one file); None for a name on a hub."""
    path = Path(model).expanduser()
    if not path.exists():
        return None
    return digest_of_files([path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file()))


def _open_folder(folder: Path, described: Mapping[str, Setting], *, restart: bool) -> None:
    """Create the folder, or check that what it holds belongs to the same encoding."""
    description = folder / _DESCRIPTION
    if folder.exists():
        if not folder.is_dir():
            raise InputError(f"{folder}: is a file, but unfinished work has to be kept there; move it elsewhere")
        # A run killed at its very start leaves temporary files only.
        if not description.exists() and any(not path.name.startswith(".kedge-") for path in folder.iterdir()):
            raise InputError(
                f"{folder}: unfinished work has to be kept there, but it holds other files; move them elsewhere"
            )
        if restart:
            delete_folder(folder)
    require_parent(folder)
    folder.mkdir(exist_ok=True)
    if not description.exists():
        with atomic_path(description) as temporary:
            temporary.write_text(json.dumps(described, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        return
    try:
        before = json.loads(description.read_text(encoding="utf-8"))
    except ValueError:
        before = None
    advice = "delete the folder or pass --restart to start over"
    if not isinstance(before, dict):
        raise InputError(f"{description}: cannot be read; {advice}")
    changed = [name for name in {**before, **described} if before.get(name) != described.get(name)]
    if changed:
        changes = ", ".join(f"{name} {before.get(name)!r}, now {described.get(name)!r}" for name in changed)
        raise InputError(f"{folder}: holds unfinished work on other inputs or settings ({changes}); {advice}")


def _shard_path(folder: Path, begin: int) -> Path:
    return folder / f"{begin:012d}.npz"


def _write_shard(path: Path, found: NDArray[np.bool_], vectors: NDArray[np.float32]) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, found=found, vectors=vectors)


def _read_shard(path: Path, rows: int) -> tuple[NDArray[np.bool_], NDArray[np.float32]] | None:
    """Read a finished shard; None if it is missing or damaged."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            found, vectors = arrays["found"], arrays["vectors"]
    except Exception:  # as many kinds as there are ways to damage a zip file
        return None
    good = found.shape == (rows,) and found.dtype == np.bool_ and vectors.ndim == 2 and vectors.dtype == np.float32
    return (found, vectors) if good and len(vectors) == found.sum() else None


def _join(
    blocks: Sequence[tuple[NDArray[np.bool_], NDArray[np.float32]]],
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    found = np.concatenate([block[0] for block in blocks]) if blocks else np.zeros(0, dtype=np.bool_)
    full = [vectors for _, vectors in blocks if len(vectors)]  # without any vector the dimensions are not known
    return found, np.concatenate(full) if full else np.zeros((0, 0), dtype=np.float32)

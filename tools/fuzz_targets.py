"""What `fuzz.py` feeds with damaged files: each reader of kedge, with a few valid files for it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from damage import damaged

from kedge import AnchorDiscovery, Embeddings, Step, load, load_translator, read_embeddings, write_embeddings
from kedge.runs.folder import SUMS, seal
from kedge.spaces import read_dictionary, read_key_list, read_labels, read_pairs
from kedge.spaces.files import read_file
from kedge.spaces.pairs import write_table
from kedge.spaces.selection import Selection
from kedge.spaces.stores.address import as_address, is_address

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from mutations import mutate

Files = Mapping[str, bytes]
"""The files of a folder: their names and bytes."""

_KEYS = ["the", "ünïcode", "日本", "a_b", "x", "y", "key"]
_SPACE = Embeddings(_KEYS, np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32))


@dataclass(frozen=True)
class Target:
    """A reader: what makes files that it reads, what reads them and checks the result, and what damages one."""

    make: Callable[[Path], None]
    read: Callable[[Path, Random], None]
    damage: Callable[[str, bytes, Random], bytes | None] = damaged  # None: the file is deleted

    @cache  # noqa: B019
    def sample(self) -> Files:
        """Files that nothing is wrong with."""
        with tempfile.TemporaryDirectory() as folder:
            self.make(Path(folder))
            return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def damaged_files(target: Target, chance: Random) -> Files:
    """The sample of a target with one of its files damaged."""
    files = dict(target.sample())
    name = chance.choice(sorted(files))
    content = target.damage(name, files.pop(name), chance)
    return files if content is None else files | {name: content}


def _edited(name: str, data: bytes, chance: Random) -> bytes | None:
    """A file after an edit that keeps its format, or one of its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        mutate(path, np.random.default_rng(chance.getrandbits(64)))
        return path.read_bytes() if path.exists() else None


def _write_space(suffix: str) -> Callable[[Path], None]:
    return lambda folder: write_embeddings(_SPACE, folder / f"x{suffix}")


def _read_space(folder: Path, chance: Random) -> None:
    """Read the space in a folder, or a part of it, and see that nothing about it is odd."""
    (path,) = (path for path in folder.iterdir() if not path.name.endswith(".keys.txt"))
    limit = chance.choice((None, None, 1, 3))
    keys = chance.choice((None, None, frozenset((_KEYS[0], "1"))))
    _check(read_file(path, Selection(limit, keys)), limit)


def _check(space: Embeddings, limit: int | None = None) -> None:
    assert len(space) == len(set(space.keys)) == len(space.vectors) <= (limit or len(space))
    assert all(isinstance(key, str) for key in space.keys)
    assert space.vectors.dtype == np.float32 or isinstance(space.vectors, np.memmap)
    assert np.isfinite(space.vectors).all()


def _write_rows(folder: Path) -> None:
    np.save(folder / "x.npy", _SPACE.vectors.astype(np.float16))


def _write_long_key(folder: Path) -> None:
    ends = np.cumsum([len(key.encode()) for key in _KEYS])
    stored = np.frombuffer("".join(_KEYS).encode(), dtype=np.uint8)
    np.savez(folder / "x.npz", vectors=_SPACE.vectors, key_bytes=stored, key_ends=ends)


def _write_lists(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": _KEYS, "n": list(range(7)), "embedding": _SPACE.vectors.tolist()}
    pq.write_table(pa.table(columns), folder / "x.parquet", compression="zstd", row_group_size=4)


def _write_parts(folder: Path) -> None:
    write_embeddings(_SPACE, f"parquet:{folder}")


def _read_parts(folder: Path, chance: Random) -> None:
    _check(read_embeddings(f"parquet:{folder}", limit=chance.choice((None, 2))))


def _write_text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: _ignore((folder / name).write_text(text, encoding="utf-8"))


def _ignore(_: object) -> None:
    return None


def _read_pairs(folder: Path, chance: Random) -> None:
    (path,) = folder.iterdir()
    read = chance.choice((read_pairs, lambda *a, **k: read_dictionary(*a, **k).pairs))
    pairs = read(path, _SPACE, _SPACE, by="row" if path.stem == "rows" else "key")
    assert pairs.shape[1] == 2
    assert len(pairs)
    assert pairs.min() >= 0
    assert pairs.max() < len(_SPACE)


def _read_labels(folder: Path, chance: Random) -> None:
    (path,) = folder.iterdir()
    labels = read_labels(path, _SPACE, complete=chance.random() < 0.5)
    assert set(labels) <= set(_KEYS)
    assert all(labels.values())


def _read_key_list(folder: Path, _: Random) -> None:
    (path,) = folder.iterdir()
    assert all(read_key_list(path))


def _read_address(folder: Path, _: Random) -> None:
    text = (folder / "address").read_text(encoding="utf-8", errors="surrogateescape")
    for line in text.split("\n"):
        if is_address(line):
            assert str(as_address(line))


class _EnoughError(Exception):
    """A discovery has come to the step at which it is to stop."""


def _discovery(**options: Any) -> AnchorDiscovery:
    """One that is fitted to two small spaces in a moment, from five seeds."""
    chance = np.random.default_rng(0)
    x = (chance.standard_normal((60, 8)) * np.geomspace(1, 0.2, 8)).astype(np.float32)
    y = x @ np.linalg.qr(chance.standard_normal((8, 8)))[0].astype(np.float32)
    found = AnchorDiscovery(n_anchors=10, device="cpu", random_state=0, **options)
    return found.fit(x, y, [(row, row) for row in range(5)])


def _write_run(folder: Path) -> None:
    _discovery().save(folder)


def _read_run(folder: Path, chance: Random) -> None:
    if chance.random() < 2 / 3 and (folder / SUMS).exists():
        seal(folder)  # or the checksums would refuse every edit, and nothing behind them were tried
    run = load(folder)
    assert ((run.match_ >= 0) & (run.match_ < 60)).all()
    for shares in (run.confidence_, run.pair_confidence_, run.anchor_confidence_):
        assert ((shares > -2e-6) & (shares < 1 + 2e-6)).all()
    rows = np.eye(8, dtype=np.float32)
    for back in (False, True):
        translated = load_translator(folder, back=back)(rows)
        assert np.array_equal(run.translate(rows, back=back), translated)
        assert np.isfinite(translated).all()


def _write_checkpoint(folder: Path) -> None:
    _until_confidence(folder)


def _read_checkpoint(folder: Path, _: Random) -> None:
    """Go on from a copy, as far as it goes."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        shutil.copytree(folder, Path(place, "state"))
        _until_confidence(Path(place, "state"))
        assert [path.name for path in Path(place).iterdir()] == ["state"]


def _until_confidence(folder: Path) -> None:
    """A discovery that is stopped once all stages are kept."""

    def stop(step: Step) -> None:
        if step.stage == "confidence":
            raise _EnoughError

    with suppress(_EnoughError):
        _discovery(checkpoint=folder, on_step=stop)


TARGETS: dict[str, Target] = {
    **{
        suffix.lstrip("."): Target(_write_space(suffix), _read_space)
        for suffix in (".vec", ".txt", ".vec.gz", ".bin", ".bin.gz", ".npz", ".npy", ".safetensors", ".parquet")
    },
    "npy-without-keys": Target(_write_rows, _read_space),
    "npz-long-key": Target(_write_long_key, _read_space),
    "parquet-lists": Target(_write_lists, _read_space),
    "parquet-folder": Target(_write_parts, _read_parts),
    "pairs.tsv": Target(lambda folder: write_table(folder / "p.tsv", ("x", "y"), [(k, k) for k in _KEYS]), _read_pairs),
    "pairs.csv": Target(_write_text("p.csv", 'x,"y"\nthe,the\n"日本",a_b\n'), _read_pairs),
    "pairs.txt": Target(_write_text("p.txt", "the the\n日本 a_b\na_b\tx\n"), _read_pairs),
    "rows.tsv": Target(_write_text("p.tsv", "x_row\ty_row\n0\t1\n3\t2\n"), _read_pairs),
    "rows.txt": Target(_write_text("rows.txt", "0 1\n3\t2\n"), _read_pairs),
    "labels": Target(_write_text("l.tsv", "key\tlabel\n" + "".join(f"{key}\tone\n" for key in _KEYS)), _read_labels),
    "key-list": Target(_write_text("keys.txt", "\n".join(_KEYS)), _read_key_list),
    "run": Target(_write_run, _read_run, _edited),
    "checkpoint": Target(_write_checkpoint, _read_checkpoint, _edited),
    "addresses": Target(
        _write_text("address", "chroma:dir#words\npgvector:postgresql://me:secret@host/db#t.v\nfaiss:x.index\n"),
        _read_address,
    ),
}

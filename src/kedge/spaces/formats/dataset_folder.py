"""Hugging Face datasets: a folder written by `save_to_disk`, or Parquet shards as on the hub.

texts/                          Dataset.save_to_disk: state.json names the shards
    dataset_info.json  state.json  data-00000-of-00002.arrow  data-00001-of-00002.arrow
texts/                          a DatasetDict: one such folder for each split
    dataset_dict.json  train/  test/
texts/data/                     from the hub; `texts/data/train` is a split
    train-00000-of-00002.parquet  train-00001-of-00002.parquet  test-00000-of-00001.parquet
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.formats.columns import Columns, columns_of
from kedge.spaces.formats.parquet import import_pyarrow, parquet_batches
from kedge.spaces.formats.record_batches import collect
from kedge.spaces.selection import Selection

_STATE, _SPLITS = "state.json", "dataset_dict.json"
_SHARD = re.compile(r"(?P<split>.+)-\d{5}-of-(?P<count>\d{5})\.parquet")


def is_dataset(place: Path) -> bool:
    """Whether `place`, a folder or the common prefix of Parquet shards, is a dataset or a split of one."""
    # os.path says no where pathlib would raise: text that is not meant as a path may be too long for one.
    if os.path.isfile(place):  # noqa: PTH113
        return False
    return any(os.path.isfile(place / name) for name in (_STATE, _SPLITS)) or bool(_parquet_files(place))  # noqa: PTH113


def files_of(place: Path) -> list[Path]:
    """All files of a dataset, in all splits."""
    return [*place.rglob("*.arrow"), *_parquet_files(place)]


def shards(place: Path) -> list[Path]:
    """The files of a dataset in order; if it has several splits, an `InputError` names them."""
    if (place / _SPLITS).is_file():
        return shards(_only(place, [place / name for name in json.loads((place / _SPLITS).read_text())["splits"]]))
    if (place / _STATE).is_file():
        named = json.loads((place / _STATE).read_text())["_data_files"]
        paths = [place / shard["filename"] for shard in named]
    else:
        paths = _of_one_split(place)
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file, but it is one of the {len(paths)} shards of {place}")
    return paths


def read(place: Path, selection: Selection, named: str = "") -> tuple[list[str], NDArray[np.float32]]:
    """Read keys and vectors (n, d) from the named or inferred columns, shard by shard."""
    paths = shards(place)
    columns = columns_of(_schema(paths[0]), str(place), named)
    batches = (batch for path in paths for batch in _batches(path, columns, selection))
    return collect(batches, columns, selection, str(place))


def _parquet_files(place: Path) -> list[Path]:
    """The Parquet files of a folder, or of its folder `data`; if there is no folder, the shards with that prefix."""
    if os.path.isdir(place):  # noqa: PTH112
        return sorted(place.glob("*.parquet")) or sorted((place / "data").glob("*.parquet"))
    if os.path.isdir(place.parent):  # noqa: PTH112
        return sorted(path for path in place.parent.glob("*.parquet") if _split_of(path) == place)
    return []


def _of_one_split(place: Path) -> list[Path]:
    """All shards of the only split, including missing ones."""
    paths = _parquet_files(place)
    split = _only(place, sorted({_split_of(path) for path in paths}))
    found = _SHARD.fullmatch(paths[0].name)
    if found is None:
        return paths
    count = int(found["count"])
    return [split.with_name(f"{split.name}-{number:05d}-of-{count:05d}.parquet") for number in range(count)]


def _split_of(path: Path) -> Path:
    """The common prefix of a split's shards; for a file that is not a shard, its folder."""
    found = _SHARD.fullmatch(path.name)
    return path.parent if found is None else path.with_name(found["split"])


def _only(place: Path, splits: list[Path]) -> Path:
    if len(splits) != 1:
        names = ", ".join(map(str, splits)) or "(none found)"
        raise InputError(f"{place}: one split is needed, not {len(splits)}; give one of them: {names}")
    return splits[0]


def _schema(path: Path) -> Any:
    pa, pq = import_pyarrow()
    if path.suffix == ".parquet":
        return pq.read_schema(path)
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        return stream.schema


def _batches(path: Path, columns: Columns, selection: Selection) -> Iterator[Any]:
    """Yield the rows of a shard in batches."""
    if path.suffix == ".parquet":
        yield from parquet_batches(path, columns, selection)
        return
    pa, _ = import_pyarrow()
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            rows = batch.select(columns.names)
            rows.validate(full=True)  # Arrow itself would follow offsets out of bounds
            yield rows

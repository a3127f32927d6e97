"""The tables of a run folder, and that they say what its arrays say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.runs.description import NAME, Counts
from kedge.spaces.pairs import read_fields

if TYPE_CHECKING:
    from kedge.estimators.anchor_discovery import AnchorDiscovery

HEADERS = {
    "anchors.tsv": ("x", "y", "confidence", "seed"),
    "pairs.tsv": ("x", "y", "confidence"),
    "seeds.tsv": ("x", "y", "suspect", "closer", "found"),
    "unmatched.tsv": ("space", "key"),
}
"""Which tables there are, and their columns."""

_Table = list[tuple[str, ...]]


def rows_of_table(discovery: AnchorDiscovery, table: str) -> Iterator[tuple[str, ...]]:
    """The rows of a table, as a discovery has them."""
    if table == "anchors.tsv":
        confidences, seeds = discovery.anchor_confidence_, discovery.anchor_is_seed_
        for (x, y), confidence, seed in zip(discovery.anchor_keys_, confidences, seeds, strict=True):
            yield x, y, f"{confidence:.4f}", str(int(seed))
    elif table == "pairs.tsv":
        for (x, y), confidence in zip(discovery.pair_keys_, discovery.pair_confidence_, strict=True):
            yield x, y, f"{confidence:.4f}"
    elif table == "seeds.tsv":
        doubts = zip(discovery.seed_is_suspect_, discovery.seed_closer_, strict=True)
        for (x, y), (suspect, closer), found in zip(
            discovery.seed_keys_, doubts, discovery.seed_found_keys_, strict=True
        ):
            yield x, y, str(int(suspect)), f"{closer:g}", found
    else:
        yield from (("X", key) for key in discovery.unmatched_keys_x_)
        yield from (("Y", key) for key in discovery.unmatched_keys_y_)


def read_tables(folder: Path, discovery: AnchorDiscovery, counts: Counts) -> None:
    """Give a discovery, whose arrays are read, the keys in the tables.

    Raises `InputError` where the tables and the arrays do not say the same.
    """
    tables = {name: _read_table(folder / name, header) for name, header in HEADERS.items()}
    for name, number in (("anchors.tsv", counts.anchors), ("pairs.tsv", counts.pairs), ("seeds.tsv", counts.seeds)):
        if len(tables[name]) != number:
            raise InputError(f"{folder / name}: must have {number} rows, as {NAME} says, got {len(tables[name])}")
    discovery.anchor_keys_, discovery.pair_keys_, discovery.seed_keys_ = (
        [(x, y) for x, y, *_ in tables[name]] for name in ("anchors.tsv", "pairs.tsv", "seeds.tsv")
    )
    discovery.seed_found_keys_ = [row[-1] for row in tables["seeds.tsv"]]
    discovery.unmatched_keys_x_, discovery.unmatched_keys_y_ = (
        [key for space, key in tables["unmatched.tsv"] if space == side] for side in "XY"
    )
    strangers = {space for space, _ in tables["unmatched.tsv"]} - {"X", "Y"}
    if strangers:
        raise InputError(f"{folder / 'unmatched.tsv'}: space must be X or Y, got {min(strangers)!r}")
    _require_same_rows(folder, discovery)
    _require_same_keys(folder, discovery, counts)
    for name, table in tables.items():
        for line, expected in zip(table, rows_of_table(discovery, name), strict=True):
            if line != expected:
                raise InputError(f"{folder / name}: has {line} where the arrays say {expected}")


def _read_table(path: Path, header: Sequence[str]) -> _Table:
    """The rows of a table that has these columns."""
    lines = read_fields(path)
    if not lines or tuple(lines[0][1]) != tuple(header):
        raise InputError(f"{path}: must begin with the columns {', '.join(header)}")
    for number, fields in lines:
        if len(fields) != len(header):
            raise InputError(f"{path}, line {number}: {len(header)} columns are needed, got {len(fields)}")
    return [tuple(fields) for _, fields in lines[1:]]


def _require_same_rows(folder: Path, discovery: AnchorDiscovery) -> None:
    """Refuse arrays of which one names a row twice that it can only name once, or has another match than the others."""
    once = {
        "anchors_x": discovery.anchors_x_,
        "anchors_y": discovery.anchors_y_,
        **{f"{name} of {side}": rows for name in ("pairs", "seeds") for side, rows in _sides(discovery, name)},
    }
    for name, rows in once.items():
        if len(np.unique(rows)) < len(rows):
            raise InputError(f"{folder}: {name} must be distinct rows, and one of them is there twice")
    rows, partners = discovery.pairs_.T
    if (discovery.match_[rows] != partners).any() or (discovery.confidence_[rows] != discovery.pair_confidence_).any():
        path = folder / "match.safetensors"
        raise InputError(f"{path}: pairs and pair_confidence must be what match and confidence say of their rows")


def _sides(discovery: AnchorDiscovery, name: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    return zip("XY", getattr(discovery, f"{name}_").T, strict=True)


def _require_same_keys(folder: Path, discovery: AnchorDiscovery, counts: Counts) -> None:
    """Refuse tables that do not name every row by one key, and the same key wherever it occurs."""
    (rows_x, rows_y), paired = discovery.pairs_.T, discovery.pair_keys_
    keys_x = _keys(folder, "X", counts.rows_x, rows_x, [x for x, _ in paired], discovery.unmatched_keys_x_)
    keys_y = _keys(folder, "Y", counts.rows_y, rows_y, [y for _, y in paired], discovery.unmatched_keys_y_)
    anchors = np.stack([discovery.anchors_x_, discovery.anchors_y_], axis=1)
    for name, pairs, rows in (
        ("anchors.tsv", discovery.anchor_keys_, anchors),
        ("seeds.tsv", discovery.seed_keys_, discovery.seeds_),
    ):
        for pair, (x, y) in zip(pairs, rows.tolist(), strict=True):
            if pair != (keys_x[x], keys_y[y]):
                raise InputError(f"{folder / name}: has {pair} where the rows are {(keys_x[x], keys_y[y])}")
    unknown = sorted(set(discovery.seed_found_keys_) - set(keys_y))
    if unknown:
        raise InputError(f"{folder / 'seeds.tsv'}: found must be keys of Y, got {unknown[0]!r}")


def _keys(
    folder: Path, space: str, total: int, rows: NDArray[np.int64], keys: list[str], unmatched: list[str]
) -> list[str]:
    """The keys of all rows of a space: of those in pairs, and of the others, which are listed in their order."""
    if len(keys) + len(unmatched) != total or len({*keys, *unmatched}) != total:
        raise InputError(
            f"{folder / 'unmatched.tsv'}: must name the {total - len(keys)} rows of {space} that are in no pair, each "
            f"by a key of its own, got {len(unmatched)}"
        )
    others = np.setdiff1d(np.arange(total), rows, assume_unique=True)
    order = np.argsort(np.concatenate([rows, others]))
    listed = keys + unmatched
    return [listed[place] for place in order.tolist()]

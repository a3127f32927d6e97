"""The tables of a run folder, and the check that they agree with its arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.judging.health import SEED_OPINIONS
from kedge.runs.description import NAME, Counts
from kedge.spaces.pairs import read_fields, write_table

ANCHORS, PAIRS, SEEDS, UNMATCHED = "anchors.tsv", "pairs.tsv", "seeds.tsv", "unmatched.tsv"
HEADERS = {
    ANCHORS: ("x", "y", "confidence", "seed"),
    PAIRS: ("x", "y", "confidence"),
    SEEDS: ("x", "y", "opinion", "suspect", "rank", "found"),
    UNMATCHED: ("space", "key"),
}
"""All tables, and their columns."""

KeyPairs = list[tuple[str, str]]
_Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Tables:
    """The keys in the tables, in the order of the corresponding arrays."""

    anchors: KeyPairs
    pairs: KeyPairs
    seeds: KeyPairs
    seeds_found: list[str]
    unmatched_x: list[str]
    unmatched_y: list[str]


def write_tables(folder: Path, tables: Tables, arrays: _Arrays) -> None:
    """Write all tables into a folder."""
    for name, header in HEADERS.items():
        write_table(folder / name, header, _rows_of(name, tables, arrays))


def read_tables(folder: Path, counts: Counts, arrays: _Arrays) -> Tables:
    """Read all tables; raises `InputError` if they do not agree with the arrays."""
    read = {name: _read_table(folder / name, header) for name, header in HEADERS.items()}
    for name, number in ((ANCHORS, counts.anchors), (PAIRS, counts.pairs), (SEEDS, counts.seeds)):
        if len(read[name]) != number:
            raise InputError(f"{folder / name}: must have {number} rows, as {NAME} says, got {len(read[name])}")
    others = {space for space, _ in read[UNMATCHED]} - {"X", "Y"}
    if others:
        raise InputError(f"{folder / UNMATCHED}: space must be X or Y, got {min(others)!r}")
    anchors, pairs, seeds = ([(x, y) for x, y, *_ in read[name]] for name in (ANCHORS, PAIRS, SEEDS))
    unmatched_x, unmatched_y = ([key for space, key in read[UNMATCHED] if space == side] for side in "XY")
    tables = Tables(anchors, pairs, seeds, [row[-1] for row in read[SEEDS]], unmatched_x, unmatched_y)
    _require_same_rows(folder, arrays)
    _require_same_keys(folder, tables, counts, arrays)
    for name, lines in read.items():
        for line, expected in zip(lines, _rows_of(name, tables, arrays), strict=True):
            if line != expected:
                raise InputError(f"{folder / name}: has {line} where the arrays say {expected}")
    return tables


def _rows_of(table: str, tables: Tables, arrays: _Arrays) -> Iterator[tuple[str, ...]]:
    """The rows of a table."""
    if table == ANCHORS:
        confidences, is_seed = arrays["anchor_confidence"], arrays["anchor_is_seed"]
        for (x, y), confidence, seed in zip(tables.anchors, confidences, is_seed, strict=True):
            yield x, y, f"{confidence:.4f}", str(int(seed))
    elif table == PAIRS:
        for (x, y), confidence in zip(tables.pairs, arrays["pair_confidence"], strict=True):
            yield x, y, f"{confidence:.4f}"
    elif table == SEEDS:
        doubts = zip(arrays["seed_opinion"], arrays["seed_is_suspect"], arrays["seed_rank"], strict=True)
        for (x, y), (opinion, suspect, rank), found in zip(tables.seeds, doubts, tables.seeds_found, strict=True):
            yield x, y, SEED_OPINIONS[opinion], str(int(suspect)), f"{rank:g}", found
    else:
        yield from (("X", key) for key in tables.unmatched_x)
        yield from (("Y", key) for key in tables.unmatched_y)


def _read_table(path: Path, header: Sequence[str]) -> list[tuple[str, ...]]:
    """The rows of a table, which must have these columns."""
    lines = read_fields(path)
    if not lines or tuple(lines[0][1]) != tuple(header):
        raise InputError(f"{path}: must begin with the columns {', '.join(header)}")
    for number, fields in lines:
        if len(fields) != len(header):
            raise InputError(f"{path}, line {number}: {len(header)} columns are needed, got {len(fields)}")
    return [tuple(fields) for _, fields in lines[1:]]


def _require_same_rows(folder: Path, arrays: _Arrays) -> None:
    """Refuse arrays that repeat rows that must be distinct, or that disagree about the match."""
    once = {"anchors_x": arrays["anchors_x"], "anchors_y": arrays["anchors_y"]}
    for name in ("pairs", "seeds"):
        once |= {f"{name} of {side}": rows for side, rows in zip("XY", arrays[name].T, strict=True)}
    for name, rows in once.items():
        if len(np.unique(rows)) < len(rows):
            raise InputError(f"{folder}: {name} must be distinct rows, but one of them occurs twice")
    for side, rows in zip("XY", _linked(arrays).T, strict=True):
        if len(np.unique(rows)) < len(rows):
            raise InputError(f"{folder}: a row of {side} is both in a pair and in a seed that is not contradicted")
    rows, partners = arrays["pairs"].T
    same_match = (arrays["match"][rows] == partners).all()
    if not same_match or (arrays["confidence"][rows] != arrays["pair_confidence"]).any():
        path = folder / "match.safetensors"
        raise InputError(f"{path}: pairs and pair_confidence must agree with match and confidence for their rows")
    if not arrays["mutual"][rows].all() or len(np.unique(arrays["match"][arrays["mutual"]])) < arrays["mutual"].sum():
        raise InputError(f"{folder / 'match.safetensors'}: mutual must name the rows of all pairs, and no match twice")


def _upheld(arrays: _Arrays) -> NDArray[np.bool_]:
    """Mask (s,) of the seeds that nothing contradicts."""
    upheld: NDArray[np.bool_] = arrays["seed_opinion"] != SEED_OPINIONS.index("contradicted")
    return upheld


def _linked(arrays: _Arrays) -> NDArray[np.int64]:
    """The rows (q, 2) of the pairs and of the seeds that nothing contradicts."""
    return np.concatenate([arrays["pairs"], arrays["seeds"][_upheld(arrays)]])


def _require_same_keys(folder: Path, tables: Tables, counts: Counts, arrays: _Arrays) -> None:
    """Refuse tables that do not give every row one key, the same wherever it occurs."""
    rows_x, rows_y = _linked(arrays).T
    linked = tables.pairs + list(compress(tables.seeds, _upheld(arrays)))
    keys_x = _keys(folder, "X", counts.rows_x, rows_x, [x for x, _ in linked], tables.unmatched_x)
    keys_y = _keys(folder, "Y", counts.rows_y, rows_y, [y for _, y in linked], tables.unmatched_y)
    anchors = np.stack([arrays["anchors_x"], arrays["anchors_y"]], axis=1)
    for name, pairs, rows in ((ANCHORS, tables.anchors, anchors), (SEEDS, tables.seeds, arrays["seeds"])):
        for pair, (x, y) in zip(pairs, rows.tolist(), strict=True):
            if pair != (keys_x[x], keys_y[y]):
                raise InputError(f"{folder / name}: has {pair} where the rows are {(keys_x[x], keys_y[y])}")
    unknown = sorted(set(tables.seeds_found) - set(keys_y))
    if unknown:
        raise InputError(f"{folder / SEEDS}: found must be keys of Y, got {unknown[0]!r}")


def _keys(
    folder: Path, space: str, total: int, rows: NDArray[np.int64], keys: list[str], unmatched: list[str]
) -> list[str]:
    """The keys of all rows of a space: those of `rows`, and those of all others, which are listed in their order."""
    if len(keys) + len(unmatched) != total or len({*keys, *unmatched}) != total:
        raise InputError(
            f"{folder / UNMATCHED}: must name the {total - len(keys)} rows of {space} that are in no pair and no seed, "
            f"each by a key of its own, got {len(unmatched)}"
        )
    others = np.setdiff1d(np.arange(total), rows, assume_unique=True)
    order = np.argsort(np.concatenate([rows, others]))
    listed = keys + unmatched
    return [listed[place] for place in order.tolist()]

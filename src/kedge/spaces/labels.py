"""Labels of the rows of a space, from a file.

A label file has two columns, key and label, and is parsed like a pair file (see `kedge.spaces.pairs`). A first line
that names columns `key` and `label` is a header and selects those columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kedge.errors import InputError, UnknownKeyError, did_you_mean
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.pairs import read_fields


def read_labels(path: str | Path, space: Embeddings, *, complete: bool = True) -> dict[str, str]:
    """Read labels by key, in the order of the rows of `space`.

    Parameters
    ----------
    path : str or Path
        A label file, see the module docstring.
    space : Embeddings
        The space whose keys the file names.
    complete : bool
        Whether every key needs a label.

    Raises
    ------
    InputError
        For an unknown key, or a key with two labels or an empty one (the message names the line); if `complete`, also
        for a key that the file does not label.
    """
    labels: dict[str, str] = {}
    for where, key, label in _lines(path):
        if key not in space.row_of:
            near = did_you_mean(key, space.row_of)
            message = f"{where}: {space.source} has no key {key!r}{near or '; remove that line'}"
            raise UnknownKeyError(message, key, space.source)
        _add(labels, where, key, label)
    if not labels:
        raise InputError(f"{path}: holds no label")
    missing = [key for key in space.keys if key not in labels]
    if complete and missing:
        raise InputError(
            f"{path}: {len(missing)} of {len(space)} keys of {space.source} have no label, the first is "
            f"{missing[0]!r}; add a line for each or remove those rows"
        )
    return {key: labels[key] for key in space.keys if key in labels}


def read_labels_of_both(path: str | Path, x: Embeddings, y: Embeddings) -> dict[str, str]:
    """Read labels by key for rows of either space, for display; keys that neither has are skipped.

    Raises
    ------
    InputError
        For a key with two labels or an empty one (the message names the line); if no key belongs to either space.
    """
    labels: dict[str, str] = {}
    for where, key, label in _lines(path):
        if key in x.row_of or key in y.row_of:
            _add(labels, where, key, label)
    if not labels:
        raise InputError(f"{path}: no line labels a key of {x.source} or {y.source}; give lines of a key and its label")
    return labels


def _lines(path: str | Path) -> Iterator[tuple[str, str, str]]:
    """Yield for each line its place (for messages), key and label."""
    table = read_fields(Path(path))
    header = [name.strip().lower() for name in table[0][1]] if table else []
    key_column, label_column = 0, 1
    if {"key", "label"} <= set(header):
        key_column, label_column = header.index("key"), header.index("label")
        table = table[1:]
    for line_number, fields in table:
        where = f"{path}, line {line_number}"
        if len(fields) <= max(key_column, label_column):
            raise InputError(f"{where}: a key and a label are needed, got {len(fields)} columns: {fields!r}")
        yield where, fields[key_column], fields[label_column].strip()


def _add(labels: dict[str, str], where: str, key: str, label: str) -> None:
    if not label:
        raise InputError(f"{where}: the label of {key!r} is empty; give one or remove that row")
    if labels.setdefault(key, label) != label:
        raise InputError(f"{where}: {key!r} is labelled {labels[key]!r} already, got {label!r}; keep one of them")

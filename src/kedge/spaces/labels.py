"""Labels of the rows of a space, from a file.

A label file holds two columns, key and label, and is parsed as pair files are (see `kedge.spaces.pairs`). A first line
that reads `key`, `label` is a header and chooses the columns of those names.
"""

from __future__ import annotations

from pathlib import Path

from kedge.errors import InputError
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.pairs import read_fields


def read_labels(path: str | Path, space: Embeddings, *, complete: bool = True) -> dict[str, str]:
    """Read labels by key, in the order of the rows of `space`.

    Parameters
    ----------
    path : str or Path
        A label file, see the module's text.
    space : Embeddings
        The space whose keys the file names.
    complete : bool
        Whether every key needs a label.

    Raises
    ------
    InputError
        An unknown key, a key with two labels or no label, with the line it stands in; a key without a line.
    """
    table = read_fields(Path(path))
    header = [name.strip().lower() for name in table[0][1]] if table else []
    key_column, label_column = 0, 1
    if {"key", "label"} <= set(header):
        key_column, label_column = header.index("key"), header.index("label")
        table = table[1:]
    labels: dict[str, str] = {}
    for line_number, fields in table:
        where = f"{path}, line {line_number}"
        if len(fields) <= max(key_column, label_column):
            raise InputError(f"{where}: a key and a label are needed, got {len(fields)} columns: {fields!r}")
        key, label = fields[key_column], fields[label_column].strip()
        if key not in space.row_of:
            raise InputError(f"{where}: {space.source} has no key {key!r}; remove that line")
        if not label:
            raise InputError(f"{where}: the label of {key!r} is empty; give one or remove that row")
        if labels.setdefault(key, label) != label:
            raise InputError(f"{where}: {key!r} is labelled {labels[key]!r} already, got {label!r}; keep one of them")
    if not labels:
        raise InputError(f"{path}: holds no label")
    missing = [key for key in space.keys if key not in labels]
    if complete and missing:
        raise InputError(
            f"{path}: {len(missing)} of {len(space)} keys of {space.source} have no label, the first is "
            f"{missing[0]!r}; add a line for each or remove those rows"
        )
    return {key: labels[key] for key in space.keys if key in labels}

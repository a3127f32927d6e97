r"""Pairs between two spaces, and tables of them.

A pair file has two columns, separated by tabs (`.tsv`), commas (`.csv`) or, in any other file, white space, as in
bilingual dictionaries. A first line that names columns `x` and `y` (or `source` and `target`, as in a lexicon) is a
header and selects those columns; `x_row` and `y_row` mean that the file holds row numbers instead of keys.
In `.tsv` files a tab, line break or backslash inside a key is written `\t`, `\n`, `\r` or `\\`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, UnknownKeyError, did_you_mean
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.embeddings import Embeddings
from kedge.spaces.memory import require_memory
from kedge.spaces.streams import require_regular_file

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
# What a spreadsheet takes for a formula, including full-width signs and a leading quote, but not a plain number.
_FORMULA = re.compile(r'(?![+-]?\d+(\.\d+)?$)[=+\-@"\uff1d\uff0b\uff0d\uff20]')


class NoKnownPairError(InputError):
    """A pair file of which no line names a row of X and one of Y, as far as those were read."""


class Dictionary(NamedTuple):
    """Pairs of rows (p, 2), how many `lines` were read, and how many `skipped` because X or Y lacks what they name."""

    pairs: NDArray[np.int64]
    skipped: int
    lines: int


def read_pairs(path: str | Path, x: SpaceLike, y: SpaceLike, *, by: str = "key") -> NDArray[np.int64]:
    """Read pairs as rows (p, 2) of `x` and `y`; repeated pairs are kept once.

    Parameters
    ----------
    path : str or Path
        A pair file, see the module docstring.
    x, y : spaces
        The spaces whose keys (as text) or rows the file names; anything that `AnchorDiscovery.fit` takes.
    by : {"key", "row"}
        What the columns hold if no header says so.

    Raises
    ------
    InputError
        For an unknown key or row; the message names the line.
    """
    return _read(Path(path), x, y, by, skip_unknown=False).pairs


def read_dictionary(path: str | Path, x: SpaceLike, y: SpaceLike, *, by: str = "key") -> Dictionary:
    """Read pairs like `read_pairs`, but skip and count the lines that name a key or row that X or Y lacks.

    Dictionaries often cover more words than a space has, or other words; at least one line must be usable.
    """
    return _read(Path(path), x, y, by, skip_unknown=True)


def _read(path: Path, x: SpaceLike, y: SpaceLike, by: str, *, skip_unknown: bool) -> Dictionary:
    x, y = as_space(x, "x").with_text_keys(), as_space(y, "y").with_text_keys()
    if by not in ("key", "row"):
        raise InputError(f"by must be 'key' or 'row', got {by!r}")
    table = read_fields(path)
    if not table:
        raise InputError(f"{path}: holds no pair")
    header = [name.strip().lower() for name in table[0][1]]
    columns = (0, 1)
    for names, kind in ((("x", "y"), by), (("source", "target"), by), (("x_row", "y_row"), "row")):
        if set(names) <= set(header):
            columns, by = (header.index(names[0]), header.index(names[1])), kind
            table = table[1:]
            break
    if not table:
        raise InputError(f"{path}: holds a header and no pair")
    pairs: dict[tuple[int, int], None] = {}
    skipped = 0
    for line_number, fields in table:
        where = f"{path}, line {line_number}"
        if len(fields) <= max(columns):
            raise InputError(f"{where}: two columns are needed, got {len(fields)}: {fields!r}")
        left, right = (
            _row(where, space, name, fields[column], by, may_lack=skip_unknown)
            for space, name, column in ((x, "X", columns[0]), (y, "Y", columns[1]))
        )
        if left is None or right is None:
            skipped += 1
        else:
            pairs[left, right] = None
    if not pairs:
        line_number, fields = table[0]
        of_x, of_y = (
            f"{space.source}, with keys such as {space.keys[0]!r}" if by == "key" else space.source for space in (x, y)
        )
        raise NoKnownPairError(
            f"{path}: none of its {len(table)} lines names a {by} of X ({of_x}) and then one of Y ({of_y}); "
            f"line {line_number} holds {fields[columns[0]]!r} and {fields[columns[1]]!r}: are the columns, and the "
            "files, in the right order?"
        )
    return Dictionary(np.asarray(list(pairs), dtype=np.int64), skipped, len(table))


def rows_from_key_pairs(pairs: Iterable[tuple[str, str]], x: Embeddings, y: Embeddings) -> NDArray[np.int64]:
    """Convert pairs of keys to pairs of rows (p, 2)."""
    listed = list(pairs)
    for pair in listed:
        if len(pair) != 2:
            raise InputError(f"pairs of keys must have two keys each, got {pair!r}; give (x key, y key)")
    return np.stack([x.rows(left for left, _ in listed), y.rows(right for _, right in listed)], axis=1)


def same_ids(x: Embeddings, y: Embeddings) -> int:
    """How many ids both spaces have, if that suggests one index at two times: most of them, and as many dimensions.

    Row numbers are not ids.
    """
    if x.dim != y.dim or all(key == str(row) for row, key in enumerate(x.keys)):
        return 0
    same = len(x.row_of.keys() & y.row_of.keys())
    return same if 2 * same >= max(len(x), len(y)) else 0


def read_key_list(path: str | Path) -> list[str]:
    """Read keys from a file, one per line; blank lines are skipped."""
    return [fields[0] for _, fields in read_fields(Path(path), whole_lines=True)]


def write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[str]], *, spreadsheet_safe: bool = False
) -> None:
    """Write a tab-separated table with a header line.

    With `spreadsheet_safe`, fields that a spreadsheet would take for a formula get a leading apostrophe. Such a table
    is for people: `read_table` keeps the apostrophe as a part of the field.
    """
    translate = str.maketrans(_ESCAPES)
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write("\t".join(header) + "\n")
        for row in rows:
            fields = (f"'{field}" if spreadsheet_safe and _FORMULA.match(field) else field for field in row)
            stream.write("\t".join(field.translate(translate) for field in fields) + "\n")


def read_table(path: Path) -> list[dict[str, str]]:
    """Read back what `write_table` wrote: one dict per row."""
    lines = read_fields(path)
    if not lines:
        raise InputError(f"{path}: the header line is missing")
    header = lines[0][1]
    return [dict(zip(header, fields, strict=True)) for _, fields in lines[1:]]


def read_fields(path: Path, *, whole_lines: bool = False) -> list[tuple[int, list[str]]]:
    """The non-empty lines of a file, as line numbers and fields."""
    require_regular_file(path)
    require_memory(10 * path.stat().st_size, str(path), "give a smaller file")  # every field becomes an object
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8 text ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix == ".csv" and not whole_lines:
        reader = csv.reader(io.StringIO(text, newline=""))
        try:
            return [(reader.line_num, fields) for fields in reader if fields]
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from error
    # Not str.splitlines, which also splits at characters that a key may contain.
    lines = [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1)]
    if path.suffix == ".tsv" and not whole_lines:
        return [(number, [unescape(field) for field in line.split("\t")]) for number, line in lines if line]
    lines = [(number, line) for number, line in lines if line.strip()]
    if whole_lines:
        return [(number, [line]) for number, line in lines]
    table = [(number, line.split("\t") if "\t" in line else line.split()) for number, line in lines]
    for (number, line), (_, fields) in zip(lines, table, strict=True):
        if "\t" not in line and len(fields) > 2:
            raise InputError(
                f"{path}, line {number}: two columns are needed, got {len(fields)}; use a .tsv file with tabs"
            )
    return table


def unescape(field: str) -> str:
    """Undo the escapes in a field of a `.tsv` file."""
    if "\\" not in field:
        return field
    out, position = [], 0
    while position < len(field):
        two = field[position : position + 2]
        out.append(_UNESCAPES.get(two, two[0]))
        position += 2 if two in _UNESCAPES else 1
    return "".join(out)


def _row(where: str, space: Embeddings, name: str, value: str, by: str, *, may_lack: bool) -> int | None:
    """The row that a field names; None if the space lacks it and `may_lack`."""
    if by == "key":
        row = space.row_of.get(value)
        if row is None and not may_lack:
            near = did_you_mean(value, space.row_of)
            message = f"{where}: {name} ({space.source}) has no key {value!r}{near}"
            raise UnknownKeyError(message, value, space.source)
        return row
    value = value.strip()
    is_number = value.isascii() and value.isdigit()
    if is_number and len(value) < 19 and int(value) < len(space):
        return int(value)
    if is_number and may_lack:
        return None
    raise InputError(f"{where}: {value!r} is not a row of {name} ({space.source}); rows are 0 to {len(space) - 1}")

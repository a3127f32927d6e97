"""Files of texts: `.jsonl`, `.csv`, `.tsv` (both with a header line) and `.txt` (one text per line), also `.gz`."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kedge.errors import InputError, did_you_mean
from kedge.spaces.pairs import unescape
from kedge.spaces.streams import open_binary, require_regular_file

_FORMATS = (".jsonl", ".csv", ".tsv", ".txt")
_CSV_FIELD = 2**31 - 1  # the csv module's own limit would refuse long texts


@dataclass(frozen=True)
class Texts:
    """Texts with unique keys, and the line of the file that each comes from."""

    keys: list[str]
    texts: list[str]
    lines: list[int]
    source: str

    def __len__(self) -> int:
        return len(self.keys)


def read_texts(
    path: str | Path, *, field: str = "text", key_field: str | None = None, limit: int | None = None
) -> Texts:
    """Read texts from a file whose suffix names its format.

    Parameters
    ----------
    path : str or Path
        `.jsonl`, `.csv`, `.tsv` or `.txt`, each also `.gz`. Empty lines are skipped, except in `.txt`, where they
        are texts. In `.tsv` quotes are ordinary characters, and a tab, line break or backslash is escaped as in pair
        files.
    field : str
        The field or column that holds the texts; not used for `.txt`.
    key_field : str, optional
        The field or column that holds the keys (strings or integers); by default the keys are "0", "1", ...
    limit : int, optional
        Read at most the first `limit` texts.
    """
    path = Path(path)
    if limit is not None and limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    form = _format_of(path)
    require_regular_file(path)
    if form == ".txt" and key_field is not None:
        raise InputError(f"{path}: a .txt file has no fields, and no key field {key_field!r}; use .jsonl, .csv or .tsv")
    read = Texts([], [], [], str(path))
    first_line: dict[str, int] = {}
    for line, record in _records(path, form):
        if limit is not None and len(read) >= limit:
            break
        where = f"{path}, line {line}"
        text = record if isinstance(record, str) else _text(where, record, field)
        key = str(len(read)) if key_field is None else _key(where, record, key_field)
        for what, value in (("text", text), ("key", key)):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise InputError(f"{where}: the {what} is not valid Unicode ({error})") from error
        if key in first_line:
            raise InputError(
                f"{where}: the key {key!r} is already in line {first_line[key]}; "
                "keys must be unique, rename one or choose another key field"
            )
        first_line[key] = line
        read.keys.append(key)
        read.texts.append(text)
        read.lines.append(line)
    if not read.keys:
        raise InputError(f"{path}: holds no text")
    return read


def _format_of(path: Path) -> str:
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    if suffix.lower() not in _FORMATS:
        raise InputError(
            f"{path}: the suffix is not that of a known text format; known are {', '.join(_FORMATS)}, also with .gz"
        )
    return suffix.lower()


def _records(path: Path, form: str) -> Iterator[tuple[int, str | dict[str, Any]]]:
    """Yield line numbers, each with a text or with the fields of a record."""
    if form == ".txt":
        yield from read_lines(path)
    elif form == ".jsonl":
        for number, line in read_lines(path):
            if line.strip():
                yield number, _json_object(f"{path}, line {number}", line)
    else:
        yield from _table(path, _csv_rows(path) if form == ".csv" else _tsv_rows(path))


def read_lines(path: Path, *, keep_ends: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file, also `.gz`; only LF or CRLF ends a line."""
    number = 0
    try:
        with open_binary(path, "rb") as stream:
            for raw in stream:
                number += 1
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, line if keep_ends else line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}, line {number}: not valid UTF-8 text ({error})") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not a readable gzip file of text ({error}); truncated or another format") from error


def _json_object(where: str, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON ({error}); one object per line is needed") from error
    if not isinstance(record, dict):
        raise InputError(f"{where}: one JSON object per line is needed, got {type(record).__name__}")
    return record


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(line for _, line in read_lines(path, keep_ends=True))
    before = csv.field_size_limit(_CSV_FIELD)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from error
    finally:
        csv.field_size_limit(before)


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path):
        if line:
            yield number, [unescape(field) for field in line.split("\t")]


def _table(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    header: list[str] | None = None
    for number, fields in rows:
        if header is None:
            header = fields
            if len(set(header)) < len(header):
                raise InputError(f"{path}, line {number}: the header names a column twice: {header!r}")
        elif len(fields) != len(header):
            raise InputError(f"{path}, line {number}: {len(header)} columns are needed, got {len(fields)}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _field(where: str, record: dict[str, Any], field: str) -> Any:
    if field not in record:
        near = did_you_mean(field, record) or f"; fields: {', '.join(map(repr, record)) or 'none'}"
        raise InputError(f"{where}: there is no field {field!r}{near}")
    return record[field]


def _text(where: str, record: dict[str, Any], field: str) -> str:
    value = _field(where, record, field)
    if not isinstance(value, str):
        raise InputError(f"{where}: the field {field!r} must be a string, got {type(value).__name__}")
    return value


def _key(where: str, record: str | dict[str, Any], field: str) -> str:
    value = record if isinstance(record, str) else _field(where, record, field)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(
            f"{where}: the key field {field!r} must be a string or a whole number, got {type(value).__name__}"
        )
    return str(value)

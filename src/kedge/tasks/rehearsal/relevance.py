r"""Judgements: which texts of the index a query should find, from a file or from Python.

A file holds one judgement per line, with fields separated by tabs, commas (`.csv`) or white space:

- four columns in TREC's format: query, iteration (ignored), text, grade;
- three columns: query, text, grade; or two: query, text, all equally relevant;
- any columns with a header that names them: `query-id` (or `query`), `doc-id` (or `corpus-id`, `doc`), and optionally
  `grade` (or `score`, `relevance`) and `kind`, a kind of query that gets figures of its own.

Grades are whole numbers; 0 means that the text is not relevant.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError, did_you_mean
from kedge.spaces import Embeddings
from kedge.spaces.conversion import SpaceLike, as_space
from kedge.spaces.encoders.texts import read_lines
from kedge.spaces.streams import require_regular_file

_NAMES = {
    "query": ("query-id", "query_id", "query", "qid"),
    "text": ("doc-id", "doc_id", "doc", "docid", "corpus-id", "corpus_id"),
    "grade": ("grade", "score", "relevance"),
    "kind": ("kind",),
}
_BY_COUNT = {
    2: {"query": 0, "text": 1},
    3: {"query": 0, "text": 1, "grade": 2},
    4: {"query": 0, "text": 2, "grade": 3},
}
_MAX_GRADE = 1000


@dataclass(frozen=True)
class Relevance:
    """Which `rows` (j,) of the index are relevant for which `queries` (j,), by row number, and their `grades` (j,).

    `kinds` maps the row number of a query to its kind, if it has one. `skipped` counts the judgements about queries or
    texts that are not in the spaces.
    """

    queries: NDArray[np.int64]
    rows: NDArray[np.int64]
    grades: NDArray[np.int64]
    kinds: Mapping[int, str]
    skipped: int = 0


RelevanceLike: TypeAlias = Relevance | Mapping[Any, Any] | Iterable[tuple[Any, ...]]
"""The result of `read_relevance`; a mapping from query to text, texts, or grades by text; or (query, text[, grade])."""


def read_relevance(path: str | Path, queries: SpaceLike, y: SpaceLike, *, strict: bool = False) -> Relevance:
    """Read judgements about `queries` and the rows of `y`, the index, both named by their keys.

    Lines that name an unknown query or text are skipped and counted, or, with `strict`, refused.
    """
    source = Path(path)
    asked, index = as_space(queries, "queries").with_text_keys(), as_space(y, "y").with_text_keys()
    return _collect(_read(source), asked, index, str(source), strict=strict)


def as_relevance(given: RelevanceLike, queries: Embeddings, y: Embeddings) -> Relevance:
    """Convert judgements in any form; those about unknown queries or texts are skipped and counted."""
    if isinstance(given, Relevance):
        if given.queries.max() >= len(queries) or given.rows.max() >= len(y):
            raise InputError("relevant: was read for other queries or another index; read it again with these")
        return given
    return _collect(_listed(given), queries, y, "relevant", strict=False)


class _Judgement(NamedTuple):
    where: str
    query: str
    text: str
    grade: int
    kind: str | None = None


def _collect(
    judgements: Iterable[_Judgement], queries: Embeddings, y: Embeddings, source: str, *, strict: bool
) -> Relevance:
    found: dict[tuple[int, int], int] = {}
    kinds: dict[int, str] = {}
    lines = skipped = 0
    first = None
    for one in judgements:
        lines += 1
        first = first or one
        query, row = queries.row_of.get(one.query), y.row_of.get(one.text)
        if query is None or row is None:
            if strict:
                space, key = (queries, one.query) if query is None else (y, one.text)
                raise InputError(f"{one.where}: {space.source} has no key {key!r}{did_you_mean(key, space.row_of)}")
            skipped += 1
            continue
        if found.setdefault((query, row), one.grade) != one.grade:
            raise InputError(
                f"{one.where}: the text {one.text!r} has grade {found[query, row]} for the query {one.query!r} "
                f"already, got {one.grade}; keep one of them"
            )
        if one.kind and kinds.setdefault(query, one.kind) != one.kind:
            raise InputError(
                f"{one.where}: the query {one.query!r} is of kind {kinds[query]!r} already, got {one.kind!r}; keep one"
            )
    if first is None:
        raise InputError(f"{source}: holds no judgement; give lines of a query and a relevant text")
    if not found:
        raise InputError(
            f"{source}: none of its {lines} judgements names a key of {queries.source} and then one of {y.source}; "
            f"{first.where} holds {first.query!r} and {first.text!r}: are the columns, and the files, in the right "
            "order?"
        )
    relevant = [(query, row, grade) for (query, row), grade in found.items() if grade > 0]
    if not relevant:
        raise InputError(f"{source}: no text is relevant for any query, all grades are 0; give grades of 1 and more")
    columns = np.asarray(relevant, dtype=np.int64).T
    return Relevance(columns[0], columns[1], columns[2], kinds, skipped)


def _read(path: Path) -> Iterator[_Judgement]:
    """The judgements of a file."""
    columns: dict[str, int] | None = None
    count = 0
    for number, fields in _rows(path):
        where = f"{path}, line {number}"
        if columns is None:
            count = len(fields)
            named = _header(fields)
            columns = named or _BY_COUNT.get(count)
            if columns is None:
                raise InputError(
                    f"{where}: two columns (query, text), three (query, text, grade) or TREC's four (query, iteration, "
                    f"text, grade) are needed, or a header that names them; got {count}: {fields!r}"
                )
            if named:
                continue
        if len(fields) != count:
            raise InputError(
                f"{where}: {count} columns are needed, as in the first line, got {len(fields)}: {fields!r}"
            )
        grade = _grade(fields[columns["grade"]], where) if "grade" in columns else 1
        kind = fields[columns["kind"]].strip() if "kind" in columns else None
        yield _Judgement(where, fields[columns["query"]], fields[columns["text"]], grade, kind)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    require_regular_file(path)
    if path.name.removesuffix(".gz").endswith(".csv"):
        reader = csv.reader(line for _, line in read_lines(path, keep_ends=True))
        try:
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from error
        return
    for number, line in read_lines(path):
        if line.strip():
            yield number, line.split("\t") if "\t" in line else line.split()


def _header(fields: list[str]) -> dict[str, int] | None:
    """The position of each column if this line is a header, otherwise None."""
    given = [field.strip().lower() for field in fields]
    columns = {
        role: next(place for place, name in enumerate(given) if name in names)
        for role, names in _NAMES.items()
        if any(name in names for name in given)
    }
    return columns if {"query", "text"} <= set(columns) else None


def _grade(text: str, where: str) -> int:
    try:
        grade = int(text)
    except ValueError:
        grade = -1
    if not 0 <= grade <= _MAX_GRADE:
        raise InputError(
            f"{where}: a grade is a whole number from 0 (not relevant) to {_MAX_GRADE}, got {text.strip()!r}"
        )
    return grade


def _listed(given: Mapping[Any, Any] | Iterable[tuple[Any, ...]]) -> Iterator[_Judgement]:
    """The judgements in a mapping or in tuples, with keys as text."""
    for number, entry in enumerate(_tuples(given), start=1):
        where = f"relevant, number {number}"
        if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
            raise InputError(f"{where}: (query, text) or (query, text, grade) is needed, got {entry!r}")
        yield _Judgement(where, str(entry[0]), str(entry[1]), _grade(str(entry[2]), where) if len(entry) == 3 else 1)


def _tuples(given: Mapping[Any, Any] | Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    if not isinstance(given, Mapping):
        yield from given
        return
    for query, texts in given.items():
        if isinstance(texts, Mapping):
            yield from ((query, text, grade) for text, grade in texts.items())
        elif isinstance(texts, str | int):
            yield query, texts
        else:
            yield from ((query, text) for text in texts)

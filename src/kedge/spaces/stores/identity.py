"""Unique row ids: find ids that repeat in a source, and decide what happens to their rows.

During a migration the ids are kept and sorted in a temporary file, so that memory use does not grow with them.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

from kedge.errors import InputError
from kedge.spaces.stores.backends.qdrant_points import point_id
from kedge.spaces.stores.store import Id, Store

OnDuplicate: TypeAlias = Literal["refuse", "first", "suffix"]

_IDS_AT_ONCE = 10_000
_NAMED = 3  # repeated ids named in a message
_LONG, _HEAD = 200, 60  # bytes: up to _LONG an id is kept whole, a longer one as its head and a hash
_OF_POINTS = ("qdrant", "qdrant-edge")  # kinds in which two ids may name one point: a text, and the UUID made of it
_REPEATED = "FROM ids WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1"


class RowIds:
    """The ids of all rows of a source, as the target will keep them.

    Parameters
    ----------
    id_of : callable
        The id under which the target keeps a row.
    place_of : callable, optional
        What the target tells rows with such ids apart by, if that is not the id itself.
    on_duplicate : "refuse", "first" or "suffix"
        What to do with a row whose id an earlier row has: raise `InputError`, leave the row out, or give it another id
        (`ID-2`, `ID-3`, ...).
    """

    def __init__(
        self,
        id_of: Callable[[Id], Id],
        on_duplicate: OnDuplicate = "refuse",
        place_of: Callable[[Id], Id] | None = None,
    ) -> None:
        if on_duplicate not in get_args(OnDuplicate):
            raise InputError(f"on_duplicate must be one of {', '.join(get_args(OnDuplicate))}, got {on_duplicate!r}")
        self._id_of, self._on_duplicate = id_of, on_duplicate
        self._place_of = place_of or (lambda key: key)
        self._database = sqlite3.connect("", isolation_level=None)  # a temporary file that SQLite deletes on close
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE ids (id BLOB, shown BLOB)")  # shown: the id, if the other is a place
        self.repeated = 0

    def scan(self, source: Store, *, skip_missing: bool) -> None:
        """Read all ids; raises `InputError` if some are null, or if some repeat and `on_duplicate` is "refuse".

        With `skip_missing`, rows without an id are ignored here; whoever reads the rows gets them as bad ones.
        """
        self._database.execute("BEGIN")
        for ids in source.ids(_IDS_AT_ONCE):
            self._database.executemany("INSERT INTO ids VALUES (?, ?)", map(self._row_of, ids))
        self._database.execute("COMMIT")
        self._require_ids(source, skip_missing=skip_missing)
        self._database.execute("CREATE TABLE repeated (id BLOB PRIMARY KEY, seen INTEGER) WITHOUT ROWID")
        self._database.execute(f"INSERT INTO repeated SELECT id, 0 {_REPEATED}")
        ((self.repeated,),) = self._database.execute("SELECT count(*) FROM repeated")
        if not self.repeated:
            return
        if self._on_duplicate == "refuse":
            raise InputError(f"{source.address}: {self._described()}")
        if self._on_duplicate == "suffix":
            self._database.execute("CREATE INDEX by_id ON ids (id)")

    def rewind(self) -> None:
        """Start over from the first row."""
        if self.repeated:
            self._database.execute("UPDATE repeated SET seen = 0")

    def chosen(self, ids: Sequence[Id]) -> list[Id | None]:
        """The ids to give to the next rows, which must come in reading order; None if a row is left out."""
        return [self._chosen(key) for key in ids] if self.repeated else list(ids)

    def close(self) -> None:
        """Delete the temporary file."""
        self._database.close()

    def _row_of(self, key: Id | None) -> tuple[bytes | None, bytes | None]:
        if key is None:
            return None, None
        kept = self._id_of(key)
        place, shown = _packed(self._place_of(kept)), _packed(kept)
        return place, None if place == shown else shown

    def _chosen(self, key: Id) -> Id | None:
        packed = _packed(self._place_of(self._id_of(key)))
        found = self._database.execute(
            "UPDATE repeated SET seen = seen + 1 WHERE id = ? RETURNING seen", (packed,)
        ).fetchall()
        if not found or found[0][0] == 1:
            return key
        if self._on_duplicate == "first":
            return None
        # The new id may be taken: count up until one is free. Every pass over the rows finds the same.
        number = found[0][0]
        while self._is_taken(renamed := f"{key}-{number}"):
            number += 1
        self._database.execute("UPDATE repeated SET seen = ? WHERE id = ?", (number, packed))
        return renamed

    def _is_taken(self, key: str) -> bool:
        packed = _packed(self._place_of(key))
        return bool(self._database.execute("SELECT 1 FROM ids WHERE id = ? LIMIT 1", (packed,)).fetchall())

    def _require_ids(self, source: Store, *, skip_missing: bool) -> None:
        (missing,) = self._database.execute("SELECT count(*) FROM ids WHERE id IS NULL").fetchone()
        if missing and not skip_missing:
            rows = self._database.execute("SELECT rowid - 1 FROM ids WHERE id IS NULL ORDER BY 1 LIMIT ?", (_NAMED,))
            raise InputError(
                f"{source.address}: {missing} {_plural(missing, 'row has', 'rows have')} no id "
                f"({_listed((f'row {row}' for (row,) in rows), missing)}, counted from 0); each row needs one: repair "
                "the source, or leave such rows out and list them with --skip-bad FILE"
            )

    def _described(self) -> str:
        """The message that says which ids repeat, where, and what can be done."""
        first = self._database.execute(
            "SELECT min(coalesce(shown, id)), max(coalesce(shown, id)), min(rowid) - 1, max(rowid) - 1 "
            f"{_REPEATED} ORDER BY 3 LIMIT {_NAMED}"
        )
        named = (f"{_both(one, other)} in rows {row} and {last}" for one, other, row, last in first)
        return (
            f"{self.repeated} {_plural(self.repeated, 'id repeats', 'ids repeat')} ({_listed(named, self.repeated)}, "
            "counted from 0); each row needs an id of its own: repair the source, or keep the first row of each id "
            "with --on-duplicate first, or rename later ones to ID-2, ID-3, ... with --on-duplicate suffix"
        )


@contextmanager
def row_ids(source: Store, target: Store, on_duplicate: OnDuplicate, *, skip_missing: bool) -> Iterator[RowIds]:
    """The scanned ids of the rows of `source`, for use in a `with` block."""
    place_of = point_id if target.address.kind in _OF_POINTS else None
    ids = RowIds(target.id_of, on_duplicate, place_of)
    try:
        ids.scan(source, skip_missing=skip_missing)
        yield ids
    except sqlite3.Error as error:
        raise InputError(f"{source.address}: its ids cannot be sorted in a temporary file ({error})") from error
    finally:
        ids.close()


def _packed(key: Id) -> bytes:
    """An id as bytes; a long one is shortened to its beginning and a hash."""
    packed = str(key).encode("utf-8", "surrogatepass")
    if len(packed) <= _LONG:
        return packed
    return packed[:_HEAD] + hashlib.blake2b(packed, digest_size=32).digest() + bytes(_LONG)


def _shown(packed: bytes) -> str:
    if len(packed) <= _LONG:
        return repr(packed.decode("utf-8", "surrogatepass"))
    return repr(packed[:_HEAD].decode("utf-8", "ignore") + "...")


def _both(one: bytes, other: bytes) -> str:
    return _shown(one) if one == other else f"{_shown(one)} and {_shown(other)}, which the target keeps as one,"


def _listed(names: Iterable[str], count: int) -> str:
    return ", ".join(names) + (", ..." if count > _NAMED else "")


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many

"""Migrate all rows of a store, their vectors translated into another space, to a new store beside it.

The source is never written. It is read three times: its ids alone, to check that they are unique; the rows, to
translate them; and the rows again, to check that they arrived. A killed migration resumes by asking the target which
ids it has, so that no other state needs to be kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.spaces.embeddings import unusable_rows
from kedge.spaces.stores.identity import OnDuplicate, RowIds, row_ids
from kedge.spaces.stores.payloads import same_payload, same_value
from kedge.spaces.stores.store import NOTE, Batch, Description, Id, Metric, Store

Translate: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.float32]]
OnBad: TypeAlias = Callable[[Id, str], None]
OnProgress: TypeAlias = Callable[[int, int], None]
Accepts: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Decides whether vectors may be added to a store with this note."""

TRANSLATED = "translated"
"""The mark of a translated row; rows that the model itself encoded should be marked "native"."""

# This many random rows of each batch are compared number by number and entry by entry.
_COMPARED = 20
_IDS_AT_ONCE = 1000
# Largest allowed difference of unit vectors, for stores with half precision.
_TOLERANCE = 2e-3
_REPEATED = "has the id of an earlier row"


@dataclass(frozen=True)
class Migration:
    """The result of a migration, as numbers of rows.

    Of all `rows` read, `written` were written now, `before` by an earlier attempt, and `bad` not at all. `repeated`
    rows had the id of an earlier one, and were left out or got another id. Of the rows that should have arrived,
    `missing` are not in the target; `extra` ones are only in the target. Of the `compared` rows, `different` are not as
    they should be, and `as_text` have entries that the target keeps as text, having no type for them.
    """

    rows: int
    written: int
    before: int
    bad: int
    missing: int
    extra: int
    compared: int
    different: int
    repeated: int = 0
    as_text: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything arrived and nothing else is there."""
        return not (self.missing or self.extra or self.different)


def migrate(
    source: Store,
    target: Store,
    translate: Translate,
    note: Mapping[str, Any],
    dims: tuple[int, int],
    *,
    batch_rows: int = 1000,
    resume: bool = False,
    on_duplicate: OnDuplicate = "refuse",
    mark: str | None = None,
    mark_as: str = TRANSLATED,
    metric: Metric | None = None,
    accepts: Accepts | None = None,
    on_bad: OnBad | None = None,
    on_progress: OnProgress | None = None,
    on_check: OnProgress | None = None,
) -> Migration:
    """Translate all rows of `source` into `target`, a new store unless `resume` or `accepts` is given.

    Parameters
    ----------
    translate : callable
        Takes vectors (n, dims[0]) and returns vectors (n, dims[1]), as `AnchorDiscovery.translate` does.
    note : mapping
        Says where the vectors come from; kept in the target's metadata, and must be the same when resuming.
    on_duplicate : "refuse", "first" or "suffix"
        What to do with a row whose id an earlier row has: raise `InputError` before anything is written, leave the row
        out, or call it `ID-2`, ...
    mark : str, optional
        A payload entry to set to `mark_as` in each row, so that these rows can be told from later ones that the model
        itself encoded.
    metric : "cosine", "l2" or "ip", optional
        The metric of the target (default: that of the source).
    accepts : callable, optional
        Called with the note of an existing target; if it returns True, rows are added there. Unless `resume`, none of
        their ids may exist in it already.
    on_bad : callable, optional
        Called with the id of each row that is left out, and why; without it the first bad row raises `InputError`.
    on_progress, on_check : callable, optional
        Called with the number of rows done and in total, for translating and for checking.

    Raises
    ------
    InputError
        If anything above is violated, or if another process is writing to the target.
    """
    about = _with_mark(require_fitting(source, dims), mark)
    about = replace(about, metric=metric or about.metric)
    if mark is not None and not target.keeps_payload:
        raise InputError(f"{target.address}: keeps no payload, so that rows cannot be marked in it; omit the mark")
    with (
        target.lock() as require_held,
        row_ids(source, target, on_duplicate, skip_missing=on_bad is not None) as ids,
    ):
        rename = bool(ids.repeated) and on_duplicate == "suffix"
        about = replace(about, id_type="str") if rename else about
        others = 0
        is_there = require_free(target, note, resume=resume, accepts=accepts)
        if is_there:
            others = 0 if accepts is None else target.describe().rows
            if not resume:
                _require_new_ids(source, target, ids)
        else:
            target.create(replace(about, dim=dims[1], metadata={NOTE: _as_text(note)}))
        read = written = before = bad = repeated = 0
        for batch in _marked(source.read(batch_rows), mark, mark_as):
            rows = _rows_for(target, batch, ids, on_bad)
            new = rows.batch.take(_rows_not_in(target, rows.batch)) if resume else rows.batch
            require_held()
            if len(new):
                target.write(replace(new, vectors=translate(new.vectors)))
            read += len(batch) + len(batch.bad)
            written += len(new)
            before += len(rows.batch) - len(new)
            bad += rows.bad
            repeated += rows.repeated
            if on_progress:
                on_progress(read, max(read, about.rows))
        require_held()
        if not (written or before):
            if not is_there:
                target.abandon()
            raise InputError(
                f"{source.address}: none of its {read} rows can be written; omit --skip-bad to see what is wrong with "
                "the first"
            )
        target.finish()
        ids.rewind()
        others = max(others - before, 0)
        arrived = _check(
            lambda: _marked(source.read(batch_rows), mark, mark_as), target, translate, ids, on_check, others
        )
    return Migration(rows=read, written=written, before=before, bad=bad, repeated=repeated, **arrived)


def require_fitting(source: Store, dims: tuple[int, int]) -> Description:
    """The description of the source; raises `InputError` if the map takes vectors of another dimension."""
    about = source.describe()
    if about.dim != dims[0]:
        other = "; with --back it takes them" if about.dim == dims[1] else ""
        raise InputError(f"{source.address}: holds vectors of {about.dim} numbers, but the map takes {dims[0]}{other}")
    return about


def _with_mark(about: Description, mark: str | None) -> Description:
    """The description of a source once its rows are marked: if the payload has types, the mark is text."""
    if mark is None or about.fields is None:
        return about
    import pyarrow as pa  # surely installed: `fields` is an Arrow schema

    if mark in about.fields.names:
        raise InputError(f"the payload has an entry {mark!r} already; choose another name for the mark")
    return replace(about, fields=about.fields.append(pa.field(mark, pa.string())))


def _marked(batches: Iterator[Batch], mark: str | None, mark_as: str) -> Iterator[Batch]:
    """Add the mark, if any, to the payloads of batches."""
    for batch in batches:
        if mark is None:
            yield batch
            continue
        if any(mark in payload for payload in batch.payloads):
            raise InputError(f"the payload has an entry {mark!r} already; choose another name for the mark")
        yield replace(batch, payloads=[{**payload, mark: mark_as} for payload in batch.payloads])


def require_own_ids(source: Store, target: Store, on_duplicate: OnDuplicate, *, skip_missing: bool) -> None:
    """Raise `InputError` for repeated or missing ids, as `migrate` would, without writing anything."""
    with row_ids(source, target, on_duplicate, skip_missing=skip_missing):
        pass


def require_free(target: Store, note: Mapping[str, Any], *, resume: bool, accepts: Accepts | None = None) -> bool:
    """Whether the target exists; raises `InputError` unless the same migration began it or `accepts` allows it."""
    if not target.exists():
        return False
    text = target.describe().metadata.get(NOTE)
    if accepts is not None:
        if not target.grows:
            raise InputError(f"{target.address}: is written whole, so no rows can be added; use another kind of store")
        if not accepts(read_note(text)):
            raise InputError(f"{target.address}: does not hold coordinates of this run; choose another name")
        return True
    if not resume:
        raise InputError(
            f"{target.address}: already exists; continue with --resume if a migration into it was interrupted, "
            "or choose another name"
        )
    if text != _as_text(note):
        raise InputError(
            f"{target.address}: holds something other than what this migration would write; choose another name"
        )
    return True


def read_note(text: str | None) -> Mapping[str, Any]:
    """Parse the note on a store's vectors; empty if kedge did not write it."""
    try:
        note = json.loads(text or "{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _require_new_ids(source: Store, target: Store, ids: RowIds) -> None:
    """Raise `InputError` if the target already has one of the ids that the source's rows will get."""
    for given in source.ids(_IDS_AT_ONCE):
        chosen = ids.chosen([name for name in given if name is not None])
        there = target.present([target.id_of(name) for name in chosen if name is not None])
        if there:
            raise InputError(
                f"{target.address}: has a row {min(map(str, there))!r} already; give these ids a prefix of their "
                "own with --id-prefix, or continue with --resume if adding them was interrupted"
            )
    ids.rewind()


def _as_text(note: Mapping[str, Any]) -> str:
    return json.dumps(note, sort_keys=True)


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch to write, under their final ids, with the numbers of bad and repeated ones."""

    batch: Batch
    bad: int
    repeated: int


def _rows_for(target: Store, batch: Batch, ids: RowIds, on_bad: OnBad | None) -> _Rows:
    """The rows of a batch to write; bad rows are reported to `on_bad`, or raise `InputError` without it."""
    wrong = unusable_rows(batch.vectors)
    for row, (key, payload) in enumerate(zip(batch.ids, batch.payloads, strict=True)):
        if row not in wrong and (why := target.unfit(key, payload)):
            wrong[row] = why
    for name, why in [*batch.bad, *((batch.ids[row], why) for row, why in wrong.items())]:
        if on_bad is None:
            raise InputError(f"row {name!r} {why}; repair it, or leave such rows out and list them with --skip-bad")
        on_bad(name, why)
    usable = batch.take([row for row in range(len(batch)) if row not in wrong]) if wrong or batch.bad else batch
    chosen = ids.chosen(usable.ids)
    repeated = sum(new != old for new, old in zip(chosen, usable.ids, strict=True))
    if repeated:
        kept = [row for row, name in enumerate(chosen) if name is not None]
        for row in range(len(chosen)):
            if on_bad is not None and chosen[row] is None:
                on_bad(usable.ids[row], _REPEATED)
        usable = replace(usable.take(kept), ids=[name for name in chosen if name is not None])
    return _Rows(usable, len(batch.bad) + len(wrong), repeated)


def _pass_over(*_: object) -> None:
    """Ignore bad rows, which were reported before."""


def _rows_not_in(target: Store, batch: Batch) -> list[int]:
    names = [target.id_of(name) for name in batch.ids]
    there = target.present(names)
    return [row for row, name in enumerate(names) if name not in there]


def _check(
    read: Callable[[], Iterator[Batch]],
    target: Store,
    translate: Translate,
    ids: RowIds,
    on_check: OnProgress | None,
    others: int,
) -> dict[str, int]:
    """Read the source again, count rows on both sides, and compare a random sample of each batch.

    `others` is the number of rows in the target that do not come from this source.
    """
    rng = np.random.default_rng(0)
    total = target.describe().rows - others
    expected = absent = compared = different = as_text = seen = 0
    for batch in read():
        rows = _rows_for(target, batch, ids, _pass_over).batch
        missing = set(_rows_not_in(target, rows))
        absent += len(missing)
        expected += len(rows)
        arrived = [row for row in range(len(rows)) if row not in missing]
        sample = rows.take(rng.permutation(arrived)[:_COMPARED].tolist()) if arrived else rows.take([])
        compared += len(sample)
        for same, exact in _compared(sample, target, translate):
            different += not same
            as_text += same and not exact
        seen += len(batch) + len(batch.bad)
        if on_check:
            on_check(seen, max(seen, total))
    return {
        "missing": max(absent, expected - total),
        "extra": max(total - (expected - absent), 0),
        "compared": compared,
        "different": different,
        "as_text": as_text,
    }


def _compared(sample: Batch, target: Store, translate: Translate) -> Iterator[tuple[bool, bool]]:
    """For each row of the sample: whether the target has it as it should be, and whether with the same types."""
    if not len(sample):
        return
    found = target.fetch([target.id_of(name) for name in sample.ids])
    place = {str(name): row for row, name in enumerate(found.ids)}
    for name, vector, payload in zip(sample.ids, translate(sample.vectors), sample.payloads, strict=True):
        row = place.get(str(target.id_of(name)))
        if row is None or not _points_alike(vector, found.vectors[row]):
            yield False, False
        elif not target.keeps_payload:
            yield True, True
        else:
            there = found.payloads[row]
            exact = all(same_value(value, there.get(entry)) for entry, value in payload.items())
            yield exact or same_payload(payload, there), exact


def _points_alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two vectors have the same direction; stores that compare by cosine need not keep lengths."""
    units = [vector / max(float(np.linalg.norm(vector)), 1e-30) for vector in (one, other)]
    return bool(np.abs(units[0] - units[1]).max() <= _TOLERANCE)

"""All rows of one store, their vectors translated into another space, into a new store beside it.

The source is never written. It is read three times: its ids alone, to see that each row has its own; the rows, to
translate them; and the rows again, to see that they arrived. What a killed migration left is found by asking the target
which ids it has, so that nothing else has to be remembered.
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
"""Whether vectors may be added to a store whose note says this."""

TRANSLATED = "translated"
"""What a mark says of a row; of one that the model itself encoded it should say "native"."""

# Of every batch so many rows, drawn at random, are compared number by number and entry by entry.
_COMPARED = 20
_IDS_AT_ONCE = 1000
# How far a unit vector may be off in a store that keeps half precision.
_TOLERANCE = 2e-3
_REPEATED = "has the id of an earlier row"


@dataclass(frozen=True)
class Migration:
    """What came of it.

    `rows` were read, of which `written` now, `before` by an earlier attempt, and `bad` not at all. Of those that must
    have arrived, `missing` are not in the target and `different` of the `compared` ones are not as they should be;
    `extra` are in the target only. Both sides are counted by rows. `repeated` rows had the id of an earlier one, and
    were left out or got another id; `as_text` of the compared ones have entries that the target keeps as text, having
    no type for them.
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
        """Whether everything arrived, and nothing else is there."""
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
    """Translate all rows of `source` into `target`, which must not exist yet unless the migration is to `resume`, or
    the target `accepts` rows beside those of others.

    Parameters
    ----------
    translate : callable
        Takes vectors (n, dims[0]) and returns vectors (n, dims[1]), as `AnchorDiscovery.translate` does.
    note : mapping
        What the target's metadata say of where its vectors come from; the same again when it resumes.
    on_duplicate : "refuse", "first" or "suffix"
        Rows whose id an earlier row has: an `InputError` before anything is written, left out, or called `ID-2`, ...
    mark : str, optional
        An entry of the payload that says `mark_as` of each row, so that rows which are added later, and are the
        model's own, can be told from these.
    metric : "cosine", "l2" or "ip", optional
        What the target is to be searched by (that of the source).
    accepts : callable, optional
        Rows are added to a target that exists if this says so of its note. None of their ids may be there already,
        unless the migration is to `resume`.
    on_bad : callable, optional
        Called with each row that cannot be translated or written, and why; without it the first is an `InputError`.
    on_progress, on_check : callable, optional
        Called with how many rows of how many are done, of translating and of checking.

    Raises
    ------
    InputError
        Also where another process is writing to the target.
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
        if require_free(target, note, resume=resume, accepts=accepts):
            others = 0 if accepts is None else target.describe().rows
            if not resume:
                _require_new_ids(source, target)
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
        target.finish()
        ids.rewind()
        others = max(others - before, 0)
        arrived = _check(
            lambda: _marked(source.read(batch_rows), mark, mark_as), target, translate, ids, on_check, others
        )
    return Migration(rows=read, written=written, before=before, bad=bad, repeated=repeated, **arrived)


def require_fitting(source: Store, dims: tuple[int, int]) -> Description:
    """What the source holds, if the map takes such vectors."""
    about = source.describe()
    if about.dim != dims[0]:
        other = "; it takes them the other way, by --back" if about.dim == dims[1] else ""
        raise InputError(f"{source.address}: holds vectors of {about.dim} numbers, the map takes {dims[0]}{other}")
    return about


def _with_mark(about: Description, mark: str | None) -> Description:
    """What a source holds once its rows are marked: where its payload has types, the mark is text."""
    if mark is None or about.fields is None:
        return about
    import pyarrow as pa  # installed, since there are fields

    if mark in about.fields.names:
        raise InputError(f"the payload has an entry {mark!r} already; choose another name for the mark")
    return replace(about, fields=about.fields.append(pa.field(mark, pa.string())))


def _marked(batches: Iterator[Batch], mark: str | None, mark_as: str) -> Iterator[Batch]:
    """Batches whose payloads say what their vectors are."""
    for batch in batches:
        if mark is None:
            yield batch
            continue
        if any(mark in payload for payload in batch.payloads):
            raise InputError(f"the payload has an entry {mark!r} already; choose another name for the mark")
        yield replace(batch, payloads=[{**payload, mark: mark_as} for payload in batch.payloads])


def require_own_ids(source: Store, target: Store, on_duplicate: OnDuplicate, *, skip_missing: bool) -> None:
    """Refuse what `migrate` would refuse for ids that repeat or are missing, and write nothing."""
    with row_ids(source, target, on_duplicate, skip_missing=skip_missing):
        pass


def require_free(target: Store, note: Mapping[str, Any], *, resume: bool, accepts: Accepts | None = None) -> bool:
    """Whether the target already exists, which only one may do that the same migration has begun, or that `accepts`."""
    if not target.exists():
        return False
    text = target.describe().metadata.get(NOTE)
    if accepts is not None:
        if not target.grows:
            raise InputError(f"{target.address}: is written whole, nothing is added to it; use another kind of store")
        if not accepts(read_note(text)):
            raise InputError(f"{target.address}: holds other coordinates than those of this run; choose another name")
        return True
    if not resume:
        raise InputError(
            f"{target.address}: already exists; go on with --resume if a migration into it was interrupted, "
            "or choose another name"
        )
    if text != _as_text(note):
        raise InputError(f"{target.address}: holds something else than what this migration would write; another name?")
    return True


def read_note(text: str | None) -> Mapping[str, Any]:
    """What a store says of its vectors; nothing if kedge did not write it."""
    try:
        note = json.loads(text or "{}")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _require_new_ids(source: Store, target: Store) -> None:
    """Refuse to add rows under ids that others have."""
    for ids in source.ids(_IDS_AT_ONCE):
        there = target.present([target.id_of(name) for name in ids if name is not None])
        if there:
            raise InputError(
                f"{target.address}: has a row {min(map(str, there))!r} already; give these ids a beginning of their "
                "own by --id-prefix, or go on with --resume if they were being added and that was interrupted"
            )


def _as_text(note: Mapping[str, Any]) -> str:
    return json.dumps(note, sort_keys=True)


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch that are to be written, under the ids they are to have, and how many others there were."""

    batch: Batch
    bad: int
    repeated: int


def _rows_for(target: Store, batch: Batch, ids: RowIds, on_bad: OnBad | None) -> _Rows:
    """What is to be written of a batch; rows that cannot be are reported, or refused."""
    wrong = unusable_rows(batch.vectors)
    for row, (key, payload) in enumerate(zip(batch.ids, batch.payloads, strict=True)):
        if row not in wrong and (why := target.unfit(key, payload)):
            wrong[row] = why
    for name, why in [*batch.bad, *((batch.ids[row], why) for row, why in wrong.items())]:
        if on_bad is None:
            raise InputError(f"row {name!r} {why}; repair it, or leave such rows out and have them listed: --skip-bad")
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
    """Bad rows are reported once."""


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
    """Read the source again, count rows on both sides, and compare a sample that is drawn from every batch.

    So many rows of the target are `others`, which no row of the source has to do with.
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
    """For each row whether the target has what it should, and whether with the same types."""
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
    """Whether two vectors have one direction; a store that compares by cosine need not keep lengths."""
    units = [vector / max(float(np.linalg.norm(vector)), 1e-30) for vector in (one, other)]
    return bool(np.abs(units[0] - units[1]).max() <= _TOLERANCE)

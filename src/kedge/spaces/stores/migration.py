"""All rows of one store, their vectors carried into another space, into a new store beside it.

The source is read twice and never written: once to carry the rows, once to see that they arrived. What a killed
migration left is found by asking the target which ids it has, so that nothing else has to be remembered.
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
from kedge.spaces.stores.store import NOTE, Batch, Description, Id, Store

Carry: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.float32]]
OnBad: TypeAlias = Callable[[Id, str], None]
OnProgress: TypeAlias = Callable[[int, int], None]

# Of every batch so many rows are compared, number by number and entry by entry.
_COMPARED = 20
# How far a unit vector may be off in a store that keeps half precision.
_TOLERANCE = 2e-3


@dataclass(frozen=True)
class Migration:
    """What came of it.

    `rows` were read, of which `written` now, `before` by an earlier attempt, and `bad` not at all. Of those that must
    have arrived, `missing` are not in the target and `different` of the `compared` ones are not as they should be;
    `extra` are in the target only.
    """

    rows: int
    written: int
    before: int
    bad: int
    missing: int
    extra: int
    compared: int
    different: int

    @property
    def complete(self) -> bool:
        """Whether everything arrived, and nothing else is there."""
        return not (self.missing or self.extra or self.different)


def migrate(
    source: Store,
    target: Store,
    carry: Carry,
    note: Mapping[str, Any],
    dims: tuple[int, int],
    *,
    batch_rows: int = 1000,
    resume: bool = False,
    on_bad: OnBad | None = None,
    on_progress: OnProgress | None = None,
    on_check: OnProgress | None = None,
) -> Migration:
    """Carry all rows of `source` into `target`, which must not be there yet unless it is to `resume`.

    Parameters
    ----------
    carry : callable
        Takes vectors (n, dims[0]) and returns vectors (n, dims[1]), as `AnchorDiscovery.translate` does.
    note : mapping
        What the target's metadata say of where its vectors come from; the same again when it resumes.
    on_bad : callable, optional
        Told of each row that cannot be carried, and why; without it the first such row is an `InputError`.
    on_progress, on_check : callable, optional
        Told how many rows of how many are done, of carrying and of checking.
    """
    about = require_fitting(source, dims)
    prepare(target, about, note, dims, resume=resume)
    read = written = before = bad = 0
    for batch in source.read(batch_rows):
        good = _carriable(batch, on_bad)
        new = good.take(_rows_not_in(target, good)) if resume else good
        if len(new):
            target.write(replace(new, vectors=carry(new.vectors)))
        read += len(batch) + len(batch.bad)
        written += len(new)
        before += len(good) - len(new)
        bad += len(batch) + len(batch.bad) - len(good)
        if on_progress:
            on_progress(read, max(read, about.rows))
    target.finish()
    arrived = _check(source, target, carry, batch_rows, on_check)
    return Migration(rows=read, written=written, before=before, bad=bad, **arrived)


def require_fitting(source: Store, dims: tuple[int, int]) -> Description:
    """What the source holds, if the map takes such vectors."""
    about = source.describe()
    if about.dim != dims[0]:
        other = "; it takes them the other way, by --back" if about.dim == dims[1] else ""
        raise InputError(f"{source.address}: holds vectors of {about.dim} numbers, the map takes {dims[0]}{other}")
    return about


def require_free(target: Store, note: Mapping[str, Any], *, resume: bool) -> bool:
    """Whether the target is there already, which only one that the same migration has begun may be."""
    if not target.exists():
        return False
    if not resume:
        raise InputError(
            f"{target.address}: is there already; go on with --resume if a migration into it was interrupted, "
            "or choose another name"
        )
    if target.describe().metadata.get(NOTE) != _as_text(note):
        raise InputError(f"{target.address}: holds something else than what this migration would write; another name?")
    return True


def prepare(
    target: Store, source: Description, note: Mapping[str, Any], dims: tuple[int, int], *, resume: bool
) -> None:
    """Make the target, unless there is one to go on with."""
    if not require_free(target, note, resume=resume):
        target.create(replace(source, dim=dims[1], metadata={NOTE: _as_text(note)}))


def _as_text(note: Mapping[str, Any]) -> str:
    return json.dumps(note, sort_keys=True)


def _carriable(batch: Batch, on_bad: OnBad | None) -> Batch:
    """The rows whose vectors can be carried."""
    wrong = unusable_rows(batch.vectors)
    found = [*batch.bad, *((batch.ids[row], why) for row, why in wrong.items())]
    for name, why in found:
        if on_bad is None:
            raise InputError(f"row {name!r} {why}; repair it, or leave such rows out and have them listed: --skip-bad")
        on_bad(name, why)
    return batch.take([row for row in range(len(batch)) if row not in wrong]) if found else batch


def _pass_over(*_: object) -> None:
    """Bad rows are told once."""


def _rows_not_in(target: Store, batch: Batch) -> list[int]:
    names = [target.id_of(name) for name in batch.ids]
    there = target.present(names)
    return [row for row, name in enumerate(names) if name not in there]


def _check(source: Store, target: Store, carry: Carry, batch_rows: int, on_check: OnProgress | None) -> dict[str, int]:
    """Read the source again, and compare with what the target has by now."""
    rng = np.random.default_rng(0)
    total = target.describe().rows
    there = missing = compared = different = seen = 0
    for batch in source.read(batch_rows):
        good = _carriable(batch, _pass_over)
        absent = set(_rows_not_in(target, good))
        missing += len(absent)
        there += len(good) - len(absent)
        arrived = [row for row in range(len(good)) if row not in absent]
        sample = good.take(rng.permutation(arrived)[:_COMPARED].tolist()) if arrived else good.take([])
        compared += len(sample)
        different += sum(not same for same in _compared(sample, target, carry))
        seen += len(batch) + len(batch.bad)
        if on_check:
            on_check(seen, max(seen, total))
    return {"missing": missing, "extra": max(total - there, 0), "compared": compared, "different": different}


def _compared(sample: Batch, target: Store, carry: Carry) -> Iterator[bool]:
    """For each row whether the target has what it should."""
    if not len(sample):
        return
    found = target.fetch([target.id_of(name) for name in sample.ids])
    place = {str(name): row for row, name in enumerate(found.ids)}
    for name, vector, payload in zip(sample.ids, carry(sample.vectors), sample.payloads, strict=True):
        row = place.get(str(target.id_of(name)))
        yield row is not None and (
            _points_alike(vector, found.vectors[row])
            and (not target.keeps_payload or _says_the_same(payload, found.payloads[row]))
        )


def _points_alike(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two vectors have one direction; a store that compares by cosine need not keep lengths."""
    units = [vector / max(float(np.linalg.norm(vector)), 1e-30) for vector in (one, other)]
    return bool(np.abs(units[0] - units[1]).max() <= _TOLERANCE)


def _says_the_same(payload: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether all entries are there, as they are or, where a store has no such type, written as text."""
    return all(
        name in found and (found[name] == value or _plain(found[name]) == _plain(value))
        for name, value in payload.items()
        if value is not None
    )


def _plain(value: Any) -> str:
    """As text; what JSON has no type for, such as a date, the way a store without that type has it."""
    text = json.dumps(value, default=str, sort_keys=True)
    plain = json.loads(text)
    return plain if isinstance(plain, str) else text

"""Run folders of a common space: safetensors, JSON and TSV, readable by other tools; never pickle.

run.json              version, settings, members, health, inputs, timings
groups.tsv            probability, and a column of keys per member: groups of two or more rows, best first
unmatched.tsv         space, key: rows that share a group with no other row
common.safetensors    the groups as rows, and the maps of each member into the common space and back
SHA256SUMS            a checksum of every other file, in the format of `sha256sum -c`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from kedge import __version__
from kedge.errors import InputError
from kedge.many.common_health import CommonHealth
from kedge.many.member import Member
from kedge.runs.description import COMMON, FORMAT, NAME, read_json
from kedge.runs.folder import check_target, require_unchanged, seal
from kedge.spaces.pairs import read_fields, write_table
from kedge.spaces.writing.atomic import atomic_folder
from kedge.storage.arrays import Array, between, read_arrays
from kedge.storage.schema import Count, Length, Share, Within, restore

GROUPS, _UNMATCHED, _ARRAYS = "groups.tsv", "unmatched.tsv", "common.safetensors"
FILES = frozenset({NAME, GROUPS, _UNMATCHED, _ARRAYS})
"""All files of such a run except the checksums."""

_PROVENANCE = ("inputs", "limit", "timings", "machine")
Keys = list[tuple[Any, ...]]


@dataclass(frozen=True)
class CommonContents:
    """The contents of a run folder."""

    members: tuple[Member, ...]
    groups: NDArray[np.int64]
    probability: NDArray[np.float32]
    keys: Keys
    seeds: NDArray[np.int64]
    health: CommonHealth
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class _MemberEntry:
    name: str
    rows: Count
    dimensions: Count
    mean_norm: Length
    checksum: str


@dataclass(frozen=True)
class _Settings:
    disjoint: bool
    min_confidence: Share
    random_state: Annotated[int, Within(0, 2**63 - 1)]


@dataclass(frozen=True)
class _Sizes:
    common: Count
    factors: Count
    groups: Count
    groups_of_many: Count
    seeds: Count


def write_common_run(contents: CommonContents, folder: Path, *, overwrite: bool) -> None:
    """Write a run folder atomically."""
    check_target(folder, overwrite=overwrite)
    members = contents.members
    many = (contents.groups >= 0).sum(axis=1) > 1
    stored = {
        "format": FORMAT,
        "kind": COMMON,
        "kedge": __version__,
        "settings": dict(contents.settings),
        "sizes": {
            "common": members[0].into.shape[1] if members else 0,
            "factors": len(members[0].loadings) if members else 0,
            "groups": len(contents.groups),
            "groups_of_many": int(many.sum()),
            "seeds": len(contents.seeds),
        },
        "members": [asdict(_MemberEntry(one.name, one.rows, one.dim, one.mean_norm, one.checksum)) for one in members],
        "health": asdict(contents.health),
        **contents.provenance,
    }
    arrays = {
        "groups": contents.groups,
        "probability": contents.probability,
        "seeds": contents.seeds,
        **({"usual": members[0].usual} if members else {}),
    }
    for number, member in enumerate(members):
        for name in ("center", "into", "back", "directions", "loadings"):
            arrays[f"{name}.{number}"] = getattr(member, name)
    with atomic_folder(folder) as temporary:
        names = [member.name for member in members]
        listed = np.flatnonzero(many).tolist()
        write_table(
            temporary / GROUPS,
            ("probability", *names),
            (
                (f"{contents.probability[number]:.4f}", *("" if key is None else key for key in contents.keys[number]))
                for number in listed
            ),
        )
        single = (contents.keys[number] for number in np.flatnonzero(~many).tolist())
        rows = ((names[place], key) for group in single for place, key in enumerate(group) if key is not None)
        write_table(temporary / _UNMATCHED, ("space", "key"), rows)
        plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        (temporary / _ARRAYS).write_bytes(serialize(plain))
        text = json.dumps(stored, indent=2, ensure_ascii=False)
        (temporary / NAME).write_text(text + "\n", encoding="utf-8")
        seal(temporary)


def read_common_description(folder: Path) -> dict[str, Any]:
    """The contents of the `run.json` of a common space, with the health validated."""
    stored = read_json(folder)
    if stored.get("kind") != COMMON:
        raise InputError(f"{folder}: is a run of two spaces, not a common space; `kedge unite` makes those")
    CommonHealth.from_dict(stored.get("health", {}), f"{folder / NAME}: health")
    return stored


def read_common_run(folder: Path) -> CommonContents:
    """Read a run folder back; raises `InputError` if it has changed since it was written."""
    stored = read_common_description(folder)
    require_unchanged(folder, FILES)
    where = f"{folder / NAME}:"
    entries = restore(tuple[_MemberEntry, ...], stored.get("members"), f"{where} members")
    settings = restore(_Settings, stored.get("settings"), f"{where} settings")
    sizes = restore(_Sizes, stored.get("sizes"), f"{where} sizes")
    arrays = read_arrays(folder / _ARRAYS, _expected(entries, sizes))
    members = tuple(
        Member(
            entry.name,
            entry.rows,
            arrays[f"center.{number}"],
            entry.mean_norm,
            entry.checksum,
            arrays[f"into.{number}"],
            arrays[f"back.{number}"],
            arrays[f"directions.{number}"],
            arrays[f"loadings.{number}"],
            arrays["usual"],
        )
        for number, entry in enumerate(entries)
    )
    health = CommonHealth.from_dict(stored["health"], f"{where} health")
    keys = _read_keys(folder, [entry.name for entry in entries], arrays["groups"], sizes)
    provenance = {name: stored[name] for name in _PROVENANCE if name in stored}
    return CommonContents(
        members, arrays["groups"], arrays["probability"], keys, arrays["seeds"], health, asdict(settings), provenance
    )


def _expected(entries: tuple[_MemberEntry, ...], sizes: _Sizes) -> dict[str, Array]:
    """The arrays that the file must hold."""
    limits = tuple(float(entry.rows - 1) for entry in entries)
    expected = {
        "groups": Array((sizes.groups, len(entries)), "I64", -1, limits),
        "probability": Array((sizes.groups,), minimum=0, maximum=1),
        "seeds": Array((sizes.seeds, len(entries)), "I64", -1, limits),
    }
    if entries:
        expected["usual"] = Array((sizes.factors,), minimum=0, maximum=1)
    for number, entry in enumerate(entries):
        d = entry.dimensions
        expected |= {
            f"center.{number}": between(1, d),
            f"into.{number}": between(1e9, d, sizes.common),
            f"back.{number}": between(1e9, sizes.common, d),
            f"directions.{number}": between(1e9, d, sizes.factors),
            f"loadings.{number}": Array((sizes.factors,), minimum=0, maximum=1),
        }
    return expected


def _read_keys(folder: Path, names: list[str], groups: NDArray[np.int64], sizes: _Sizes) -> Keys:
    """The keys of all groups in order: first groups of several rows, then single rows."""
    tables = {name: read_fields(folder / name) for name in (GROUPS, _UNMATCHED)}
    many = tables[GROUPS][1:]
    single = tables[_UNMATCHED][1:]
    if tables[GROUPS][0][1] != ["probability", *names] or len(many) != sizes.groups_of_many:
        raise InputError(f"{folder / GROUPS}: contradicts {NAME}: its columns or its lines differ")
    if len(many) + len(single) != sizes.groups:
        raise InputError(f"{folder / _UNMATCHED}: contradicts {NAME}: it has {len(single)} lines")
    keys: Keys = []
    for (_, fields), rows in zip(many, groups.tolist(), strict=False):
        keys.append(tuple(None if row < 0 else key for key, row in zip(fields[1:], rows, strict=True)))
    for (_, (name, key)), rows in zip(single, groups[len(many) :].tolist(), strict=True):
        keys.append(tuple(None if row < 0 else key for row in rows))
        if rows[names.index(name)] < 0:
            raise InputError(f"{folder / _UNMATCHED}: contradicts {_ARRAYS}: {key!r} is not a row of {name}")
    return keys

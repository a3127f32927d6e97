"""Which columns of an Arrow table are the keys and the vectors: one rule for files, folders and stores.

A column is chosen by the given name (`VECTORS` or `KEYS,VECTORS`), else by a usual name, else as the only candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kedge.errors import InputError, did_you_mean

_KEY_NAMES = ("id", "key", "_id", "ids", "keys", "word", "token", "text")
_VECTOR_NAMES = ("vector", "embedding", "embeddings", "emb", "vectors")


@dataclass(frozen=True)
class Columns:
    """The column of the ids, i.e. the keys (None: rows are numbered), and that of the vectors."""

    id: str | None
    vector: str

    @property
    def names(self) -> list[str]:
        """The names of the columns: ids, if there are any, then vectors."""
        return [self.vector] if self.id is None else [self.id, self.vector]


def columns_of(schema: Any, source: str, named: str = "", *, advice: str = "") -> Columns:
    """Find the columns of ids and vectors in an Arrow schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    source : str
        Where the table is, for messages.
    named : str
        Names of columns, as `VECTORS` or `KEYS,VECTORS`; if empty, they are inferred.
    advice : str
        What messages suggest if several columns qualify; by default, to name one after `#`.
    """
    from pyarrow import types

    lists, texts, integers = [], [], []
    for entry in schema:
        kind = entry.type
        if _is_list(kind):
            lists.append(entry)
        elif types.is_integer(kind):
            integers.append(entry.name)
        elif _is_text(kind) or (types.is_dictionary(kind) and _is_text(kind.value_type)):
            texts.append(entry.name)
    floats = [entry.name for entry in lists if types.is_floating(entry.type.value_type)]
    whole = [entry.name for entry in lists if types.is_integer(entry.type.value_type)]
    nested = [entry.name for entry in lists if _is_list(entry.type.value_type)]
    if nested and ((not floats and not whole) or named.rpartition(",")[2] in nested):
        raise InputError(
            f"{source}: column `{nested[0]}` holds several vectors per row (multi-vector, late interaction), but one "
            "is needed; pool them first, for example by their mean"
        )
    if not floats and not whole:
        raise InputError(f"{source}: no column holds lists of numbers; the columns are {', '.join(schema.names)}")

    keys, _, vectors = ("", "", named) if named in schema.names else named.rpartition(",")
    how = advice or f"name one: {source}#VECTORS"
    vector = _choose(source, "lists of numbers", (floats, whole), _VECTOR_NAMES, vectors, how)
    assert vector is not None, "there is at least one"
    how = advice or f"name the column of keys: {source}#KEYS,{vector}"
    return Columns(_choose(source, "text or whole numbers", (texts, integers), _KEY_NAMES, keys, how), vector)


def _choose(
    source: str, what: str, by_type: Sequence[Sequence[str]], usual: Sequence[str], named: str, advice: str
) -> str | None:
    """The column that is named or inferred, of candidates by type (the preferred type first); None if there is none."""
    columns = [name for names in by_type for name in names]
    if named:
        if named not in columns:
            others = f"those that do are {', '.join(columns)}" if columns else "none does"
            raise InputError(f"{source}: no column {named!r} holds {what}; {others}{did_you_mean(named, columns)}")
        return named
    for name in usual:
        if name in columns:
            return name
    meant = next((names for names in by_type if names), [])
    if len(meant) > 1:
        raise InputError(f"{source}: several columns hold {what} ({', '.join(meant)}); {advice}")
    return meant[0] if meant else None


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind)

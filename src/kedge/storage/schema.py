"""Validation of stored JSON by types: it is restored to dataclasses, or refused with a message that names the field.

The types are those of the values themselves (`Health`, `Step`, `Schedule`, ...). Bounds are annotations, as in
`Annotated[float, Within(0, 1)]`; numbers must always be finite.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from kedge.errors import InputError

_SHOWN = 60
# Not every program can write JSON that is nested more deeply.
_DEEPEST = 32


@dataclass(frozen=True)
class Within:
    """The bounds of a number."""

    minimum: float
    maximum: float


_FINITE = Within(-sys.float_info.max, sys.float_info.max)
Share = Annotated[float, Within(0, 1)]
Count = Annotated[int, Within(0, 2**48)]
Length = Annotated[float, Within(0, sys.float_info.max)]
_PLAIN = {bool: "true or false", str: "text", int: "a whole number", float: "a number", NoneType: "null"}


def parse_json(text: str | bytes, where: str) -> Any:
    """Parse JSON; refuses NaN and Infinity, duplicate names in an object, and excessive nesting."""
    try:
        parsed = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON ({error})") from error
    level = [parsed]
    for _ in range(_DEEPEST):
        level = [item for outer in level if isinstance(outer, list | dict) for item in _items(outer)]
    if level:
        raise InputError(f"{where}: is nested more than {_DEEPEST} levels deep")
    return parsed


def restore(kind: Any, value: Any, where: str) -> Any:
    """Check a parsed value against a type and convert it: objects become dataclasses where the type says so.

    Raises `InputError` if the value does not fit; `where` is what the message names: "FILE:" or "FILE: FIELD".
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _number(arguments[0], value, where, arguments[1])
    if kind in (int, float):
        return _number(kind, value, where, _FINITE)
    if origin in (Union, UnionType):
        return _any_of(arguments, value, where)
    if is_dataclass(kind):
        return _record(kind, value, where)
    fits: bool
    if origin is Literal:
        fits = isinstance(value, str) and value in arguments
    elif origin in (list, tuple, Sequence):
        fits = isinstance(value, list)
    elif origin in (dict, Mapping):
        fits = isinstance(value, dict)
    else:
        fits = kind is Any or (kind in _PLAIN and isinstance(value, kind) and _is_unicode(value))
    if not fits:
        raise _wrong(kind, value, where)
    if origin in (list, tuple, Sequence):
        items = [restore(arguments[0], item, f"{where}[{place}]") for place, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin in (dict, Mapping):
        return {name: restore(arguments[1], item, _field(where, name)) for name, item in value.items()}
    return value


def _record(kind: Any, value: Any, where: str) -> Any:
    """A dataclass from an object that has all fields without a default, and no unknown ones."""
    if not isinstance(value, dict):
        raise _wrong(kind, value, where)
    kinds = _kinds_of(kind)
    needed = {field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING}
    missing, unknown = sorted(needed - set(value)), sorted(set(value) - set(kinds))
    if missing:
        raise InputError(f"{_field(where, missing[0])}: is missing")
    if unknown:
        raise InputError(f"{_field(where, unknown[0])}: is not a field; the fields are {', '.join(kinds)}")
    restored = {name: restore(kinds[name], item, _field(where, name)) for name, item in value.items()}
    try:
        return kind(**restored)
    except InputError as error:  # from dataclasses that check themselves
        raise InputError(f"{where.removesuffix(':')}: {error}") from error


@cache
def _kinds_of(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _any_of(kinds: Sequence[Any], value: Any, where: str) -> Any:
    if value is None and NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) == 1:
        return restore(others[0], value, where)
    for kind in others:
        try:
            return restore(kind, value, where)
        except InputError:
            continue
    raise _wrong(Union[tuple(kinds)], value, where)  # noqa: UP007 - the list is only known at run time


def _number(kind: type, value: Any, where: str, bounds: Within) -> int | float:
    whole = isinstance(value, int) and not isinstance(value, bool)
    # A comparison cannot overflow, however large the integer, and is false for NaN.
    if (whole or (kind is float and isinstance(value, float))) and bounds.minimum <= value <= bounds.maximum:
        return value
    raise _wrong(Annotated[kind, bounds], value, where)


def _wrong(kind: Any, value: Any, where: str) -> InputError:
    received = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else json.dumps(value)
    received = received if len(received) <= _SHOWN else f"{received[:_SHOWN]}..."
    return InputError(f"{where.removesuffix(':')}: must be {_words_for(kind)}, got {received}")


def _words_for(kind: Any) -> str:
    """What a type asks for, as words for a message."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = arguments[1]
        words = _PLAIN[arguments[0]]
        return words if bounds == _FINITE else f"{words} from {bounds.minimum:.16g} to {bounds.maximum:.16g}"
    if origin in (Union, UnionType):
        return " or ".join(_words_for(one) for one in arguments)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in (list, tuple, Sequence):
        return "a list"
    return _PLAIN.get(kind, "an object")


def _field(where: str, name: str) -> str:
    name = name if name.isidentifier() else repr(name)
    return f"{where} {name}" if where.endswith(":") else f"{where}.{name}"


def _is_unicode(value: Any) -> bool:
    """Whether a value, if it is text, can be encoded: JSON may contain lone surrogates."""
    return not isinstance(value, str) or value == value.encode("utf-8", "replace").decode("utf-8")


def _items(outer: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{max(names, key=names.count)!r} occurs twice")
    return found

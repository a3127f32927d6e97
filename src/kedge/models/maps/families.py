"""The families of maps and their modules, which are imported only when needed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kedge.errors import InputError
from kedge.models.maps.protocol import Map

if TYPE_CHECKING:
    from kedge.models.maps.lesson import Lesson

FAMILIES = {
    "rotation": "kedge.models.maps.rotation",
    "whiten-rotate-recolor": "kedge.models.maps.recolored",
    "refined rotation": "kedge.models.maps.refined",
    "least squares": "kedge.models.maps.ridge",
    "canonical": "kedge.models.maps.canonical_map",
}
"""The module of each family, in the order in which equally good maps are preferred."""


def form_of(family: str) -> type[Map]:
    """The class of a family's maps; loads no torch."""
    if family not in FAMILIES:
        raise InputError(f"there is no family of maps {family!r}; the families are {', '.join(FAMILIES)}")
    form: type[Map] = import_module(FAMILIES[family]).Form
    return form


def candidates(lesson: Lesson, families: dict[str, str] | None = None) -> Iterator[tuple[str, str, Map]]:
    """All candidates fitted to a lesson: family, label and map."""
    for family, home in (FAMILIES if families is None else families).items():
        module: Any = import_module(home)
        for label, candidate in module.candidates(lesson):
            yield family, label, candidate

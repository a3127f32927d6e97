"""The members of a run of many spaces, known by their vectors, whatever their files are called."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kedge.many.common_space import CommonSpace
    from kedge.spaces import Embeddings
    from kedge.spaces.stores import Address


def read_members(
    common: CommonSpace, run_folder: Path, places: Iterable[Path | Address], limit: int | None
) -> dict[str, Embeddings]:
    """Spaces by the names of the members they are, in the order of the run."""
    from kedge.errors import InputError
    from kedge.spaces import read_embeddings
    from kedge.storage.checksum import matrix_checksum

    name_of = {member.checksum: member.name for member in common.members_.values()}
    found = {}
    for place in places:
        space = read_embeddings(place, limit=limit)
        name = name_of.get(matrix_checksum(space.vectors))
        if name is None:
            raise InputError(f"{place}: is not a member of {run_folder}, or has changed since the run was made")
        found[name] = space
    return {name: found[name] for name in common.members_ if name in found}

"""What `kedge audit --repair` does: all rows into a new store, the foreign ones translated."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kedge.tasks import Audit

# Translated rows are those of the main model if their likeness to it is at least this; unrelated ones have none.
_MIN_LIKENESS = 0.2


def repair(arguments: argparse.Namespace, found: Audit) -> dict[str, Any]:
    """Write all rows to `--to`, the foreign ones translated by the run, after a check that this makes them alike."""
    import numpy as np
    from numpy.typing import NDArray

    from kedge import __version__
    from kedge.errors import InputError
    from kedge.estimators import load
    from kedge.spaces import read_embeddings
    from kedge.spaces.stores import open_store
    from kedge.spaces.stores.migration import migrate

    if arguments.store == arguments.to:
        raise InputError(f"--to {arguments.to}: is the store itself, which is never changed; choose another name")
    if len(found.groups) != 2:
        what = "no foreign rows" if len(found.groups) < 2 else f"{len(found.groups) - 1} groups of foreign rows"
        raise InputError(f"--repair: translates one group of foreign rows, and there are {what}")
    discovery = load(arguments.repair)
    dims = discovery.map_.dims[::-1] if arguments.back else discovery.map_.dims
    foreign_keys = [str(key) for key in found.foreign_keys]
    foreign_rows = read_embeddings(arguments.store, keys=foreign_keys).vectors
    if dims != (foreign_rows.shape[1],) * 2:
        raise InputError(
            f"--repair: the run maps {dims[0]} dimensions to {dims[1]}, and the store has {foreign_rows.shape[1]}"
        )

    def translated(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(discovery.translate(vectors, back=arguments.back, scale="raw"), dtype=np.float32)

    before, after = (found.likeness_to_main(rows) for rows in (foreign_rows, translated(foreign_rows)))
    if after < max(_MIN_LIKENESS, 2 * before):
        raise InputError(
            f"--repair: translated by this run, the foreign rows are no more like the others ({after:.2f} after, "
            f"{before:.2f} before): another run is needed, or --back"
        )

    def only_foreign(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        made = np.array(vectors, dtype=np.float32)
        foreign = found.is_foreign(made)
        if foreign.any():
            made[foreign] = translated(made[foreign])
        return made

    note = {"repaired": str(arguments.store), "run": arguments.repair.name, "kedge": __version__}
    with open_store(arguments.store) as source, open_store(arguments.to) as target:
        result = migrate(source, target, only_foreign, note, (foreign_rows.shape[1],) * 2)
    return {
        "translated": int(found.foreign.sum()),
        "kept": int((~found.foreign).sum()),
        "likeness": [before, after],
        "complete": result.complete,
    }

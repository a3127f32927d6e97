"""The end of the verbs that write vectors."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kedge.spaces import Embeddings


def write_derived(arguments: argparse.Namespace, space: Embeddings, vectors: NDArray[np.float32], what: str) -> int:
    """Write new vectors (n, d) under the keys of `space` to `--out` and say so."""
    from kedge.cli.output import print_json, results
    from kedge.spaces import Embeddings, write_embeddings

    write_embeddings(Embeddings(space.keys, vectors, what), arguments.out)
    if arguments.json:
        print_json({"out": str(arguments.out), "rows": len(vectors), "dimensions": vectors.shape[1]})
    else:
        results().print(f"{what}: {len(vectors)} x {vectors.shape[1]} in {arguments.out}", markup=False)
    return 0

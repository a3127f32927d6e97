"""Convert numbers of any kind to NumPy arrays."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError


def as_dense(values: Any, name: str) -> NDArray[Any]:
    """Convert an array, torch tensor, list or table to a NumPy array; messages call it `name`."""
    if isinstance(values, str | bytes | PathLike):
        raise InputError(f"{name}: {values!r} is not an array; read the file first, with kedge.read_embeddings")
    if values is None:
        raise InputError(f"{name}: is None; give an array, a DataFrame, Embeddings or the like")
    is_tensor = hasattr(values, "detach")
    if hasattr(values, "tocsr") or (is_tensor and str(values.layout) != "torch.strided"):
        raise InputError(
            f"{name}: is a sparse matrix {tuple(values.shape)}, but a dense one is needed; give its toarray() "
            "(to_dense() in torch), or better its leading dimensions, for example from scikit-learn's TruncatedSVD"
        )
    if is_tensor:  # perhaps bfloat16, or on a GPU
        values = values.detach().cpu().float().numpy()
    elif isinstance(values, list | tuple) and any(hasattr(row, "detach") for row in values):
        values = [as_dense(row, name) for row in values]
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name}: rows must have the same number of dimensions ({error})") from error
    except TypeError as error:
        raise InputError(f"{name}: {type(values).__name__} cannot be converted to an array ({error})") from error

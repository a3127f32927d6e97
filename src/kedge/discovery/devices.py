"""Where to compute, and how vectors get there and back."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.geometry import centre_of, normalise, unit

# Rows that travel at once: a memory-mapped file is never copied whole in its raw form.
_ROWS = 65_536


def resolve_device(name: str) -> torch.device:
    """The torch device for a name; "auto" takes a CUDA GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for, but torch {torch.__version__} sees no CUDA GPU; use 'cpu'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} was asked for, but there are {torch.cuda.device_count()} CUDA GPUs")
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {name!r}")
    return device


def load_normalised(
    vectors: NDArray[np.float32], device: torch.device, *, centre: bool
) -> tuple[Tensor, Tensor | None, float]:
    """Unit rows (n, d) on the device, the centre (d,) taken off them, and the mean norm that left."""
    loaded = torch.empty(vectors.shape, device=device)
    for begin in range(0, len(vectors), _ROWS):
        block = np.array(vectors[begin : begin + _ROWS])  # a copy: a memory map may be read-only
        loaded[begin : begin + len(block)] = unit(torch.from_numpy(block).to(device))
    if not centre:
        return loaded, None, 1.0
    middle = centre_of(loaded)
    spread = 0.0
    for begin in range(0, len(loaded), _ROWS):
        rows = slice(begin, begin + _ROWS)
        spread += float((loaded[rows] - middle).norm(dim=1).sum())
        loaded[rows] = normalise(loaded[rows], middle)
    return loaded, middle, spread / len(loaded)


def refuse_one_direction(unit_rows: Tensor, name: str) -> None:
    """Raise an `InputError` where all rows (n, d) of a space are the same."""
    if bool((unit_rows == unit_rows[0]).all()):
        raise InputError(f"{name}: all rows point the same way, so that nothing tells them apart")


def normalise_rows(vectors: NDArray[np.float32], centre: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """New rows (k, d) normalised as the fitted ones were, whose centre (d,) this is."""
    # A copy: torch wants writable memory and the vectors may be a read-only map.
    loaded = torch.from_numpy(np.array(vectors))
    return to_numpy(normalise(loaded, None if centre is None else torch.from_numpy(centre)))


@overload
def to_numpy(tensor: Tensor) -> NDArray[Any]: ...
@overload
def to_numpy(tensor: Tensor | None) -> NDArray[Any] | None: ...
def to_numpy(tensor: Tensor | None) -> NDArray[Any] | None:
    """A tensor of any device as an array; None stays None."""
    return None if tensor is None else tensor.cpu().numpy()

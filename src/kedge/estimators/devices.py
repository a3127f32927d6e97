"""Where to compute, and how vectors get there and back."""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.geometry import center_of, normalise, unit
from kedge.matching import row_pieces

# Rows that travel at once: a memory-mapped file is never copied whole in its raw form.
_ROWS = 65_536


def resolve_device(name: str) -> torch.device:
    """The torch device for a name; "auto" takes a CUDA GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
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


class Loaded(NamedTuple):
    """Unit rows (n, d) on a device, the center (d,) subtracted from them, if any, and the mean length they had."""

    rows: Tensor
    center: Tensor | None
    mean_norm: float


def load_normalised(
    vectors: NDArray[np.float32], device: torch.device, *, center: bool, dtype: torch.dtype = torch.float32
) -> Loaded:
    """Read and normalise the rows (n, d) of a space, and hold them in a precision."""
    loaded = torch.empty(vectors.shape, dtype=dtype, device=device)
    lengths = torch.zeros((), dtype=torch.float64, device=device)
    for begin in range(0, len(vectors), _ROWS):
        # A copy: a memory map may be read-only.
        block = torch.from_numpy(np.array(vectors[begin : begin + _ROWS], dtype=np.float32)).to(device)
        lengths += block.double().norm(dim=1).sum()
        loaded[begin : begin + len(block)] = unit(block)
    _forget_pages(vectors)
    mean_norm = float(lengths) / len(vectors)
    if not center:
        return Loaded(loaded, None, mean_norm)
    middle = center_of(loaded)
    for begin in range(0, len(loaded), _ROWS):
        loaded[begin : begin + _ROWS] = normalise(loaded[begin : begin + _ROWS].float(), middle)
    return Loaded(loaded, middle, mean_norm)


def _forget_pages(vectors: NDArray[np.float32]) -> None:
    """Give the memory of a file that was read through a map back to the system; it can be read again."""
    base: Any = vectors
    while isinstance(base, np.ndarray):
        base = base.base
    # Not of a map that can be written to: changes that are in memory alone would be lost.
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise") and not vectors.flags.writeable:
        base.madvise(mmap.MADV_DONTNEED)


def refuse_one_direction(rows: Tensor, name: str) -> None:
    """Raise an `InputError` where all rows (n, d) of a space are the same."""
    first = rows[:1].float()
    if not any(bool((piece != first).any()) for piece in row_pieces(rows)):
        raise InputError(f"{name}: all rows point the same way, so that nothing distinguishes them")


@overload
def to_numpy(tensor: Tensor) -> NDArray[Any]: ...
@overload
def to_numpy(tensor: Tensor | None) -> NDArray[Any] | None: ...
def to_numpy(tensor: Tensor | None) -> NDArray[Any] | None:
    """A tensor of any device as an array; None stays None."""
    return None if tensor is None else tensor.cpu().numpy()

"""Where to compute, and how vectors get there and back."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kedge.errors import InputError
from kedge.geometry import Spectrum, eigh, leading_directions, normalise, unit
from kedge.matching import Problem, exact_is_quick

if TYPE_CHECKING:
    from kedge.estimators.fitted import FittedDiscovery

MAX_AXES = 512
"""Of larger spaces, only this many leading principal axes are used: the others cost minutes and say little."""

# Numbers that are copied to the device at once: a memory-mapped file is never copied whole in its raw form, and the
# memory for normalising does not grow with the dimensions.
_NUMBERS = 2**20
# Rows of the sample in which leading axes are found.
_AXES_ROWS = 8192
# Beyond this many dimensions the sample is held in half precision, to take no more memory.
_WIDE = 1536


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


@dataclass(frozen=True)
class Loaded:
    """The rows of a space on a device, ready for the method.

    `rows` (n, k) are normalised rows, less the `center` (d,) if there is one, in the space's own principal `axes`
    (d, k), largest variance first; of more than `MAX_AXES` axes, the last are usually left out. `mean_norm` is the mean
    length that the vectors had.
    """

    rows: Tensor
    axes: Tensor
    spectrum: Spectrum
    center: Tensor | None
    mean_norm: float

    @property
    def center_in_axes(self) -> Tensor | None:
        """The center (k + 1,) in the coordinates of the rows, with the length of what lies outside them as the last."""
        if self.center is None:
            return None
        inside = self.center @ self.axes
        outside = (self.center.square().sum() - inside.square().sum()).clamp_min(0).sqrt()
        return torch.cat([inside, outside[None]])


class Survey(NamedTuple):
    """The mean direction (d,) of the vectors of a space, and their mean length, from one pass over them."""

    center: Tensor
    mean_norm: float


def survey(vectors: NDArray[np.float32], device: torch.device, name: str) -> Survey:
    """Go over vectors (n, d) once; raises an `InputError` if all of them point the same way."""
    lengths = torch.zeros((), dtype=torch.float64, device=device)
    total = torch.zeros(vectors.shape[1], dtype=torch.float64, device=device)
    first, varies = None, False
    for block in _blocks(vectors, device):
        directions = unit(block)
        first = directions[:1] if first is None else first
        varies = varies or bool((directions != first).any())
        lengths += block.double().norm(dim=1).sum()
        total += directions.sum(dim=0, dtype=torch.float64)
    if not varies:
        raise InputError(f"{name}: all rows point the same way, so that nothing distinguishes them")
    return Survey((total / len(vectors)).float(), float(lengths) / len(vectors))


def load_problem(
    discovery: FittedDiscovery,
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    seeds: NDArray[np.int64],
    device: torch.device,
) -> tuple[Problem, Loaded, Loaded]:
    """The problem that rows (n, dx) and (m, dy) and seeds (s, 2) pose, as a discovery's parameters say.

    A fitted discovery gets back the problem that it was fitted on; it need not be fitted.
    """
    as_printed = discovery.method == "paper"
    exact = discovery.exact or as_printed or exact_is_quick(len(x), len(y), device)
    loaded_x, loaded_y = (
        load_space(
            vectors,
            device,
            name,
            center=discovery.center,
            dtype=torch.float32 if exact else torch.float16,
            max_axes=None if as_printed else MAX_AXES,
        )
        for vectors, name in ((x, "x"), (y, "y"))
    )
    seeds_x, seeds_y = torch.from_numpy(seeds.T.copy()).to(device)
    spectra = (loaded_x.spectrum, loaded_y.spectrum)
    problem = Problem(
        loaded_x.rows, loaded_y.rows, seeds_x, seeds_y, discovery.memory_budget, discovery.center, exact, spectra
    )
    return problem, loaded_x, loaded_y


def load_space(
    vectors: NDArray[np.float32],
    device: torch.device,
    name: str,
    *,
    center: bool,
    dtype: torch.dtype = torch.float32,
    max_axes: int | None = MAX_AXES,
) -> Loaded:
    """Read the rows (n, d) of a space, some at a time, and hold them as `dtype` in their principal axes.

    Rotating a space loses nothing, and in principal axes its covariance, with any ridge, is diagonal.
    """
    seen = survey(vectors, device, name)
    middle = seen.center if center else None
    start = _leading_axes(vectors, device, middle, max_axes)
    dim = vectors.shape[1] if start is None else start.shape[1]
    rows = torch.empty(len(vectors), dim, dtype=dtype, device=device)
    moment = torch.zeros(dim, dim, dtype=torch.float64, device=device)
    begin = 0
    for block in _blocks(vectors, device):
        normalised = normalise(block, middle)
        inside = normalised if start is None else normalised @ start
        rows[begin : begin + len(inside)] = inside
        moment += (inside.T @ inside).double()
        begin += len(inside)
    _forget_pages(vectors)
    variances, axes = eigh(moment / len(vectors))
    turn = axes.flip(1).float()
    for some in _pieces(*rows.shape):
        rows[some] = (rows[some].float() @ turn).to(dtype)
    spectrum = Spectrum(variances.flip(0).clamp_min(0))
    return Loaded(rows, turn if start is None else start @ turn, spectrum, middle, seen.mean_norm)


def load_rows(vectors: NDArray[np.float32], rows: NDArray[np.int64], center: Tensor | None) -> NDArray[np.float32]:
    """Some rows (k,) of a space, normalised, in its own coordinates (k, d)."""
    some = torch.from_numpy(np.array(vectors[rows], dtype=np.float32))
    return to_numpy(normalise(some, None if center is None else center.cpu()))


def _leading_axes(
    vectors: NDArray[np.float32], device: torch.device, center: Tensor | None, max_axes: int | None
) -> Tensor | None:
    """The leading axes (d, k) of a space with more than `max_axes` dimensions, from a sample of rows; else None."""
    if max_axes is None or vectors.shape[1] <= max_axes:
        return None
    drawn = np.sort(np.random.default_rng(0).permutation(len(vectors))[:_AXES_ROWS])
    dtype = torch.float32 if vectors.shape[1] <= _WIDE else torch.float16
    sample = torch.empty(len(drawn), vectors.shape[1], dtype=dtype, device=device)
    for some in _pieces(*sample.shape):
        sample[some] = normalise(_float32(vectors[drawn[some]], device), center)
    return leading_directions(sample, max_axes)


def _blocks(vectors: NDArray[np.float32], device: torch.device) -> Iterator[Tensor]:
    for some in _pieces(*vectors.shape):
        yield _float32(vectors[some], device)


def _pieces(rows: int, dim: int) -> Iterator[slice]:
    """Slices of `rows` rows, of `dim` numbers each, that are worked on at once."""
    count = max(_NUMBERS // max(dim, 1), 1)
    return (slice(begin, begin + count) for begin in range(0, rows, count))


def _float32(vectors: NDArray[Any], device: torch.device) -> Tensor:
    """Vectors (k, d) on a device; a copy, since a memory map may be read-only."""
    return torch.from_numpy(np.array(vectors, dtype=np.float32)).to(device)


def _forget_pages(vectors: NDArray[np.float32]) -> None:
    """Give the memory of a memory-mapped file back to the system; it can be read again."""
    base: Any = vectors
    while isinstance(base, np.ndarray):
        base = base.base
    # Not for a map that can be written to: changes that are only in memory would be lost.
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise") and not vectors.flags.writeable:
        base.madvise(mmap.MADV_DONTNEED)


@overload
def to_numpy(tensor: Tensor) -> NDArray[Any]: ...
@overload
def to_numpy(tensor: Tensor | None) -> NDArray[Any] | None: ...
def to_numpy(tensor: Tensor | None) -> NDArray[Any] | None:
    """A tensor on any device as an array; None stays None."""
    return None if tensor is None else tensor.cpu().numpy()

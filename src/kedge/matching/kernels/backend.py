"""Which code runs a reduction, and in what precision: fused kernels with CUDA and Triton, otherwise plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from kedge.errors import InputError

Precision = Literal["tf32", "bf16", "float32"]
"""What fused kernels multiply in; they always accumulate in float32. Plain torch computes in float32 throughout."""

_precision: ContextVar[Precision] = ContextVar("precision", default="tf32")


MAX_FUSED_NEIGHBOURS = 16
"""The most neighbours that the fused top-k can keep."""
MAX_FUSED_VALUES = 512
"""The most coordinates that fused kernels can take means of; more do not fit on the chip."""


def use_fused(*tensors: Tensor) -> bool:
    """Whether the fused kernels can take these tensors, all on one device."""
    if not all(tensor.is_cuda and tensor.dtype == torch.float32 for tensor in tensors):
        return False
    return _triton_works(tensors[0].device)


def current_precision() -> Precision:
    """The precision that fused kernels multiply in by default."""
    return _precision.get()


@contextmanager
def using_precision(precision: Precision) -> Iterator[None]:
    """Let fused kernels multiply in this precision inside the context."""
    if precision not in get_args(Precision):
        raise InputError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
    token = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(token)


@cache
def _triton_works(device: torch.device) -> bool:
    # Tensor cores for tf32 and bfloat16 came with compute capability 8, tensor descriptors with Triton 3.4.
    try:
        described = find_spec("triton.tools.tensor_descriptor") is not None
    except ModuleNotFoundError:
        return False
    return described and torch.cuda.get_device_capability(device) >= (8, 0)

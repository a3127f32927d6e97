"""Several processes that share one discovery: which of them answers for which rows, and the few ways they talk.

Alone, as by default, nobody talks and a process answers for all rows. `several_processes` changes that for a while, for
processes that `torchrun` has started. All of them then run the same program on the same numbers; only work over rows is
divided. What one of them draws at random, all draw.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from kedge.errors import KedgeError
from kedge.spaces.selection import share_of

# A process that waits this long for another gives up.
_PATIENCE = timedelta(minutes=30)


class ProcessesError(KedgeError):
    """Another process has stopped, or cannot be reached."""


@dataclass
class Traffic:
    """What a process has handed to collective calls: how many of each name, and their bytes (`payload`).

    A broadcast counts in every process, also in those that receive it; what crosses the network follows from the name
    and the number of processes.
    """

    calls: Counter[str] = field(default_factory=Counter)
    payload: Counter[str] = field(default_factory=Counter)

    def count(self, name: str, tensor: Tensor) -> None:
        """One more call with this tensor."""
        self.calls[name] += 1
        self.payload[name] += tensor.nbytes

    def clear(self) -> None:
        """Begin again at nothing."""
        self.calls.clear()
        self.payload.clear()


@dataclass(frozen=True)
class Processes:
    """Number `rank` of `count` processes; one that is alone has nobody to talk to.

    They talk by two collectives only, `all_reduce` and `broadcast`: what gloo can do with CUDA tensors too. `traffic`
    tallies them by the method that called: "sum", "greatest" (`log_sum_exp` is one of each), "from_first", "in_turn",
    "object_from_first".
    """

    rank: int = 0
    count: int = 1
    traffic: Traffic = field(default_factory=Traffic, compare=False, repr=False)

    @property
    def alone(self) -> bool:
        """Whether there is no other."""
        return self.count == 1

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and prints."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """The rows, of so many, that this process answers for."""
        return share_of(total, self.rank, self.count)

    def shares(self, total: int) -> tuple[int, ...]:
        """Where the processes' rows begin, and at the end how many there are (count + 1,)."""
        return (0, *(share_of(total, rank, self.count).stop for rank in range(self.count)))

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, the same number for number in each; may change its argument."""
        return tensor if self.alone else self._reduced("sum", tensor, dist.ReduceOp.SUM)

    def greatest(self, tensor: Tensor) -> Tensor:
        """The elementwise maximum over all processes; may change its argument."""
        return tensor if self.alone else self._reduced("greatest", tensor, dist.ReduceOp.MAX)

    def log_sum_exp(self, tensor: Tensor) -> Tensor:
        """The elementwise log of the sum of exponentials over all processes."""
        if self.alone:
            return tensor
        peak = self.greatest(tensor.clone())
        return peak + self.sum((tensor - peak).exp()).log()

    def from_first(self, tensor: Tensor) -> Tensor:
        """What the first process has: replicated results that must not differ in their last bits."""
        return tensor if self.alone else self._broadcast("from_first", tensor)

    def object_from_first(self, value: Any) -> Any:
        """Any picklable object that the first process has."""
        if self.alone:
            return value
        data = bytearray(pickle.dumps(value)) if self.leads else bytearray()
        size = int(self._broadcast("object_from_first", torch.tensor(len(data))))
        data = data or bytearray(size)
        self._broadcast("object_from_first", torch.frombuffer(data, dtype=torch.uint8))
        return value if self.leads else pickle.loads(data)

    def in_turn(self, own: Tensor, bounds: tuple[int, ...]) -> Iterator[tuple[int, Tensor]]:
        """Every process's part of a matrix, with the number of its first row; bounds (count + 1,) say who has what."""
        for rank in range(self.count):
            first, rows = bounds[rank], bounds[rank + 1] - bounds[rank]
            part = own if rank == self.rank else own.new_empty(rows, *own.shape[1:])
            part = part.contiguous() if self.alone else self._broadcast("in_turn", part, rank)
            if rows:
                yield first, part

    def joined(self, own: Tensor, bounds: tuple[int, ...]) -> Tensor:
        """All parts one below the other, in every process."""
        return own if self.alone else torch.cat([part for _, part in self.in_turn(own, bounds)])

    def _reduced(self, name: str, tensor: Tensor, how: Any) -> Tensor:
        tensor = tensor.contiguous()
        self.traffic.count(name, tensor)
        _talk(lambda: dist.all_reduce(tensor, how))
        return tensor

    def _broadcast(self, name: str, tensor: Tensor, rank: int = 0) -> Tensor:
        tensor = tensor.contiguous()
        self.traffic.count(name, tensor)
        _talk(lambda: dist.broadcast(tensor, src=rank))
        return tensor


ALONE = Processes()
_current: ContextVar[Processes] = ContextVar("processes", default=ALONE)


def processes() -> Processes:
    """Those that share the work at hand."""
    return _current.get()


@contextmanager
def several_processes(device: torch.device) -> Iterator[Processes]:
    """Share the work inside with the other processes that `torchrun` has started; alone without `torchrun`.

    They talk by NCCL where each has a GPU of its own, otherwise by gloo.
    """
    ours = not (dist.is_available() and dist.is_initialized())  # some builds of torch come without
    if ours and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    if ours:
        here_too = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        own_gpu = device.type == "cuda" and here_too <= torch.cuda.device_count()
        if device.type == "cuda":
            torch.cuda.set_device(device)  # or NCCL takes the first one in every process
        backend = "cpu:gloo,cuda:nccl" if own_gpu else "gloo"
        _talk(lambda: dist.init_process_group(backend, timeout=_PATIENCE))
    here = Processes(dist.get_rank(), dist.get_world_size())
    token = _current.set(here)
    try:
        yield here
    finally:
        _current.reset(token)
    if ours:  # not after an error: the others may not be there to take leave of
        dist.destroy_process_group()


def _talk(exchange: Callable[[], object]) -> None:
    """Do it, and say in one line what it means when the others do not answer."""
    try:
        exchange()
    except (RuntimeError, ValueError) as error:  # the latter where torchrun's variables are there only in part
        if "memory" in str(error):
            raise
        raise ProcessesError(
            "another of the processes that share this work has stopped or cannot be reached; the first message of "
            f"theirs says why ({' '.join(str(error).split())[:120]})"
        ) from error

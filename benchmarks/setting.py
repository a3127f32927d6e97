"""What the benchmarks share: where the data are, what machine it is, how much time and memory was taken."""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import re
import time
from pathlib import Path

import torch

from kedge import Step
from kedge.discovery.devices import resolve_device


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """`--data`, with `KEDGE_DATA` as its default."""
    default = os.environ.get("KEDGE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=default and Path(default),
        required=default is None,
        help="folder with words/ and images/ (default: $KEDGE_DATA)",
    )


def describe_machine(device_name: str) -> str:
    """What the figures were measured on."""
    device = resolve_device(device_name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"


class StageClock:
    """An `on_step` that adds up the seconds until the end of each step by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, step: Step) -> None:
        """Count what went by since the last step."""
        now = time.perf_counter()
        self.seconds[step.stage] = self.seconds.get(step.stage, 0.0) + now - self._last
        self._last = now


def forget_peak() -> None:
    """Measure peaks of memory from now on; where the system cannot, from the start."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # or work could live on what was freed before
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        pass


def peak_megabytes(device: str) -> float:
    """Most memory taken so far, of the process ("cpu") or by torch on the GPU ("cuda"); NaN where nobody tells."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 1e6 if torch.cuda.is_available() else math.nan
    try:
        return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024 / 1e6
    except (OSError, IndexError):
        return math.nan

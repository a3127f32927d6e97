"""What the benchmarks share: where the data are, and what machine it is."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch

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

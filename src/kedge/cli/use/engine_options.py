"""Where a job over all rows runs, and whether it goes on with an earlier one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import positive

if TYPE_CHECKING:
    from kedge.engines import Engine


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The options that choose an engine."""
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="what goes over the rows: this machine, or Ray (local)",
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="cluster to use (the one that RAY_ADDRESS names, or a new one on this machine)"
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="CPUs of a Ray that is started here (all)")


@contextmanager
def chosen_engine(arguments: argparse.Namespace, scratch: Path) -> Iterator[Engine]:
    """The engine that was asked for."""
    from kedge.engines import open_engine
    from kedge.errors import InputError

    for option in ("ray", "workers"):
        if getattr(arguments, option) is not None and arguments.engine != "ray":
            raise InputError(f"--{option}: is for --engine ray; add that, or omit it")
    options: dict[str, Any] = {} if arguments.workers is None else {"num_cpus": arguments.workers}
    with open_engine(arguments.engine, scratch, arguments.ray, **options) as engine:
        yield engine

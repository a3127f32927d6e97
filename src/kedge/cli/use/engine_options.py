"""Where a job over all rows runs, and whether it goes on with an earlier one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import positive

if TYPE_CHECKING:
    from kedge.engines import Engine
    from kedge.spaces.stores import Address
    from kedge.tasks.all_rows import Arrival
    from kedge.tasks.all_rows.rewriting import Transform


def add_engine(parser: argparse.ArgumentParser, *, always: bool = True) -> None:
    """The options that choose an engine; unless `always`, without one the rows are read at once, as they were."""
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local" if always else None,
        help="what goes over the rows: this machine, or Ray (local)"
        if always
        else "go over the rows in batches, on this machine or by Ray, from one Parquet to another (all rows at once)",
    )
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="cluster to use (the one that RAY_ADDRESS names, or a new one on this machine)"
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="CPUs of a Ray that is started here (all)")


def add_resume(parser: argparse.ArgumentParser, what: str) -> None:
    """Whether to go on."""
    parser.add_argument("--resume", action="store_true", help=f"go on with {what} that was interrupted")


def require_engine(arguments: argparse.Namespace) -> None:
    """Refuse options of an engine that was not asked for."""
    from kedge.errors import InputError

    for option in ("ray", "workers"):
        if getattr(arguments, option) is not None and arguments.engine != "ray":
            raise InputError(f"--{option}: is for --engine ray; add that, or omit it")
    if arguments.workers is not None and (arguments.ray or os.environ.get("RAY_ADDRESS")):
        raise InputError("--workers: a cluster that is running has its own; omit it, or the address of the cluster")
    if arguments.resume and arguments.engine is None:
        raise InputError("--resume: is for --engine local or ray; add that, or omit it")


def run_digest(folder: Path) -> str:
    """What shows that a run is the same as before."""
    from kedge.runs.folder import SUMS
    from kedge.storage.checksum import file_sha256

    return file_sha256(folder / SUMS)


def rewrite_in_batches(
    arguments: argparse.Namespace, source: Path | Address, target: Path | Address, transform: Transform, **options: Any
) -> Arrival:
    """Write other vectors for all rows of `source` to `target`, which must be a folder of Parquet.

    Then all rows are counted on both sides, and some compared; the target appears only if nothing is missing or
    differs. `options` are those of `rewrite_all`.
    """
    from kedge.cli.progress import counting_bar
    from kedge.engines.job_folder import job_folder
    from kedge.errors import InputError
    from kedge.spaces.row_ranges import open_ranges
    from kedge.spaces.stores.address import Address
    from kedge.tasks.all_rows import PARTS, compare_all, rewrite_all

    if not isinstance(target, Address) or target.kind != "parquet" or target.name:
        raise InputError(f"{target}: --engine writes a folder of Parquet files; write parquet:FOLDER, or omit --engine")
    out = Path(target.place)
    overwrite = getattr(arguments, "overwrite", False)
    with job_folder(out, PARTS, resume=arguments.resume, overwrite=overwrite, activity="job") as folder:
        rows = open_ranges(source, folder, "source")
        with chosen_engine(arguments, folder) as engine, counting_bar("ranges of rows") as on_progress:
            rewrite_all(rows, transform, folder=folder, engine=engine, on_progress=on_progress, **options)
            found = compare_all(rows, transform, folder, engine)
        if found.arrived != found.rows or found.different:
            raise InputError(
                f"{folder}: {found.arrived} rows are there of {found.rows}, and {found.different} of {found.compared} "
                "compared rows differ from what they should be; delete that folder and begin again"
            )
        return found


@contextmanager
def chosen_engine(arguments: argparse.Namespace, scratch: Path) -> Iterator[Engine]:
    """The engine that was asked for."""
    from kedge.engines import open_engine

    require_engine(arguments)
    options: dict[str, Any] = {} if arguments.workers is None else {"num_cpus": arguments.workers}
    with open_engine(arguments.engine, scratch, arguments.ray, **options) as engine:
        yield engine

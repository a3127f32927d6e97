"""Where a job over all rows runs, and whether it continues an earlier one."""

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
    """The options that choose an engine; unless `always`, all rows are read at once if none is chosen."""
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local" if always else None,
        help="process the rows on this machine, or by Ray (local)"
        if always
        else "process the rows in batches, on this machine or by Ray, and write Parquet (all rows at once)",
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="Ray cluster to use (the one named by RAY_ADDRESS, or a new one on this machine)",
    )
    parser.add_argument("--workers", type=positive, metavar="N", help="CPUs for Ray, if it is started here (all)")


def add_resume(parser: argparse.ArgumentParser, what: str) -> None:
    """Whether to continue."""
    parser.add_argument("--resume", action="store_true", help=f"continue an interrupted {what}")


def require_engine(arguments: argparse.Namespace) -> None:
    """Refuse options of an engine that was not chosen."""
    from kedge.errors import InputError

    for option in ("ray", "workers"):
        if getattr(arguments, option) is not None and arguments.engine != "ray":
            raise InputError(f"--{option}: is for --engine ray; add that, or omit it")
    if arguments.workers is not None and (arguments.ray or os.environ.get("RAY_ADDRESS")):
        raise InputError("--workers: a cluster that is running has its own; omit it, or the address of the cluster")
    if arguments.resume and arguments.engine is None:
        raise InputError("--resume: is for --engine local or ray; add that, or omit it")


def run_digest(folder: Path) -> str:
    """A digest that shows whether a run is the same as before."""
    from kedge.runs.folder import SUMS
    from kedge.storage.checksum import file_sha256

    return file_sha256(folder / SUMS)


def rewrite_in_batches(
    arguments: argparse.Namespace, source: Path | Address, target: Path | Address, transform: Transform, **options: Any
) -> Arrival:
    """Write the transformed vectors of all rows of `source` to `target`, which must be a folder of Parquet files.

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
                f"{folder}: {found.arrived} of {found.rows} rows are there, and {found.different} of {found.compared} "
                "compared rows differ from what they should be; delete that folder and begin again"
            )
        return found


@contextmanager
def chosen_engine(arguments: argparse.Namespace, scratch: Path) -> Iterator[Engine]:
    """Open the engine that was chosen."""
    from kedge.engines import open_engine

    require_engine(arguments)
    options: dict[str, Any] = {} if arguments.workers is None else {"num_cpus": arguments.workers}
    with open_engine(arguments.engine, scratch, arguments.ray, **options) as engine:
        yield engine

"""Run the notebooks in examples/ and store them with their outputs, without traces of this machine.

    python tools/execute_examples.py                                # all, in place
    python tools/execute_examples.py 01_two_models.ipynb            # one, in place
    python tools/execute_examples.py --into FOLDER                  # leave examples/ as it is

Needs `nbclient` and `ipykernel`. The kernel is always the interpreter that runs this, whichever kernels are installed.
An error in a cell ends the run with a traceback, and nothing is written.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
CELL_SECONDS = 600
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


class ThisInterpreter(AsyncKernelManager):
    """Knows no installed kernels, which leaves the one of the interpreter that is running."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.kernel_spec_manager = KernelSpecManager(kernel_dirs=[])


def main() -> int:
    """Execute what is named, or everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", help="file names in examples/ (all)")
    parser.add_argument("--into", type=Path, default=EXAMPLES, metavar="FOLDER", help="where to write (examples/)")
    arguments = parser.parse_args()
    for name in arguments.notebooks or sorted(path.name for path in EXAMPLES.glob("*.ipynb")):
        began = time.perf_counter()
        notebook = nbformat.read(EXAMPLES / name, as_version=4)
        execute(notebook)
        strip(notebook)
        target = arguments.into / name
        nbformat.write(notebook, target)
        print(f"{name}: {time.perf_counter() - began:.0f} s, {target.stat().st_size / 1000:.0f} kB")
    return 0


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run all cells in an empty folder.

    On one thread of the CPU: the same sums in the same order, and threads that wait for each other on a busy machine
    take several times as long.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("MPLBACKEND", None)  # the notebook's own, which draws into it
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            kernel_name="python3",
            kernel_manager_class=ThisInterpreter,
            resources={"metadata": {"path": folder}},
            timeout=CELL_SECONDS,
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],
        ).execute(env=environment)


def strip(notebook: nbformat.NotebookNode) -> None:
    """Take away versions and times, and number the cells."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({"tags": cell.metadata.tags} if "tags" in cell.metadata else {})
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    nbformat.validate(notebook)


if __name__ == "__main__":
    sys.exit(main())

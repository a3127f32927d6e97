"""kedge as users get it: sizes of the wheel and the sdist, and how long the installed package takes to import.

    python benchmarks/installed.py --out BUILT [--json FILE]

Both are built from this checkout into BUILT. The wheel is installed into a new environment there, which borrows kedge's
dependencies from the one that runs this, so that nothing is downloaded. Times are the best of five processes, beside
those of the same Python importing only NumPy or torch. Needs `pip install build hatchling`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMED = {
    "Python alone": "pass",
    "NumPy": "import numpy",
    "import kedge": "import kedge",
    "kedge.load_translator": "import kedge; kedge.load_translator",
    "kedge --help": "from kedge.cli.parser import build_parser; build_parser().format_help()",
    "torch": "import torch",
    "kedge.AnchorDiscovery": "import kedge; kedge.AnchorDiscovery",
}
"""What is timed, and the code that does it."""


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel that is built from that sdist."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def install(wheel: Path, folder: Path) -> Path:
    """The programs of a new environment that has the wheel, and borrows what it depends on from this one."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    command = [str(programs / "pip"), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=apart())
    if done.stderr:
        sys.exit(f"installing says: {done.stderr}")
    (packages,) = folder.glob("lib/python*/site-packages")
    # Of a folder that a .pth file names the .pth files are not read: an editable kedge stays out.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def apart() -> dict[str, str]:
    """The environment of a process that is to see no checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def import_seconds(programs: Path, code: str, repeats: int = 5) -> float:
    """How long a new process takes for some code."""
    with tempfile.TemporaryDirectory() as elsewhere:

        def once() -> float:
            began = time.perf_counter()
            subprocess.run([programs / "python", "-c", code], cwd=elsewhere, env=apart(), check=True)
            return time.perf_counter() - began

        return min(once() for _ in range(repeats))


def main() -> None:
    """Build, install, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the wheel, the sdist and the environment")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    arguments = parser.parse_args()
    sdist, wheel = build(arguments.out)
    programs = install(wheel, arguments.out / "environment")
    sizes = {path.name: path.stat().st_size for path in (wheel, sdist)}
    seconds = {name: import_seconds(programs, code) for name, code in TIMED.items()}
    for name, size in sizes.items():
        print(f"{name:32} {size / 1e6:6.2f} MB")
    for name, taken in seconds.items():
        print(f"{name:32} {taken:6.2f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps({"bytes": sizes, "seconds": seconds}, indent=2) + "\n")


if __name__ == "__main__":
    main()

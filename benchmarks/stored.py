"""Results as files: every row of a benchmark with what it rests on, stored as soon as it is measured.

A file in `benchmarks/results` holds the command, its settings, checksums of the data, and rows. A row names the case,
what was measured, the commit of kedge and the machine. Rows that are measured later, after an interruption or for
further cases, are added to those that are there. `tables.py` makes the tables of the documentation from these files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kedge
from paper.pairs_of_spaces import SpacePair
from setting import describe_machine, write_json

RESULTS = Path(__file__).resolve().parent / "results"

Row = dict[str, Any]


class Record:
    """The rows of one benchmark.

    Parameters
    ----------
    path
        where they are kept; `None`: nowhere
    settings
        what all rows have in common, such as how many items are drawn. A file of other settings is refused, so that no
        table mixes them.
    device
        which machine is named
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any], device: str) -> None:
        self.path = path
        self._machine = describe_machine(device)
        self._commit = commit_of_kedge()
        self._content: dict[str, Any] = {
            "command": f"python benchmarks/{Path(sys.argv[0]).name}",
            "settings": dict(settings),
            "data": {},
            "rows": [],
        }
        if path and path.exists():
            stored = read_record(path)
            if stored["settings"] != self._content["settings"]:
                raise SystemExit(f"{path} holds rows of other settings, {stored['settings']}: name another file")
            self._content = stored
        self._known = {_key(row["case"]): row for row in self._content["rows"]}

    def row(self, case: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> Row:
        """The row of a case: measured, unless it is there. What was measured earlier may name its own commit."""
        key = _key(case)
        if key not in self._known:
            row = {"case": dict(case), "commit": self._commit, "machine": self._machine, **measure()}
            self._known[key] = row
            self._content["rows"].append(row)
            if self.path:
                write_json(self.path, self._content)
        return self._known[key]

    def note_data(self, pair: SpacePair) -> None:
        """Keep of a pair of spaces what tells whether others have the same."""
        spaces = {"x": pair.x, "y": pair.y}
        self._content["data"][pair.name] = {
            name: f"{len(space)} x {space.dim}, crc32 {zlib.crc32(space.vectors.tobytes()):08x}"
            for name, space in spaces.items()
        }


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """`--json`, for a record."""
    parser.add_argument("--json", type=Path, help="keep the rows in this file; those that it holds are not run again")


def read_record(path: Path) -> dict[str, Any]:
    """What a file holds."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def commit_of_kedge() -> str:
    """The commit that the imported package is of, with a + where its code has been changed since."""
    folder = Path(kedge.__file__).resolve().parent
    commit = _git(folder, "rev-parse", "--short=7", "HEAD")
    return commit + "+" if _git(folder, "status", "--porcelain", ".") else commit


def _git(folder: Path, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _key(case: Mapping[str, Any]) -> str:
    return json.dumps(case, sort_keys=True)

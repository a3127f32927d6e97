"""The tables of README and documentation, made from the files in `benchmarks/results`.

    python benchmarks/tables.py            write all tables anew
    python benchmarks/tables.py --check    say which differ from their files, and change nothing

In a page, a table stands between two comments; the first names its layout and its files:

    <!-- table: methods methods-laptop.json -->
    ...
    <!-- end of table -->

Below the table are the command, the machine and the commit of its figures. Nothing between the comments is written by
hand. If there is no such file, a line says so, and which command would measure it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kedge.spaces.writing.atomic import atomic_path
from layouts import LAYOUTS
from setting import new_parser
from stored import RESULTS, read_record

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- table: (?P<name>[\w-]+) (?P<files>[^\n]+?) -->\n.*?<!-- end of table -->", flags=re.DOTALL)


def main() -> None:
    """Write or check all pages."""
    parser = new_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a page differs from its files")
    arguments = parser.parse_args()
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        made = with_tables(text)
        if made == text:
            continue
        stale.append(page)
        print(f"{page.relative_to(ROOT)}: {'differs from its files' if arguments.check else 'written'}")
        if not arguments.check:
            with atomic_path(page) as temporary:
                temporary.write_text(made, encoding="utf-8")
    if arguments.check and stale:
        raise SystemExit("python benchmarks/tables.py makes them anew")


def pages() -> list[Path]:
    """All pages that may have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def with_tables(text: str, folder: Path = RESULTS) -> str:
    """A page with every table as its files have it."""

    def made(found: re.Match[str]) -> str:
        files = found["files"].split()
        missing = [file for file in files if not (folder / file).exists()]
        if missing:
            content = f"*Not measured on this version yet: {' and '.join(map(command_for, missing))}.*"
        else:
            records = [read_record(folder / file) for file in files]
            content = f"{LAYOUTS[found['name']](records)}\n\n{caption(records, files)}"
        return f"<!-- table: {found['name']} {found['files']} -->\n\n{content}\n\n<!-- end of table -->"

    return BLOCK.sub(made, text)


def command_for(file: str) -> str:
    """What makes a file of results."""
    name, _, size = file.removesuffix(".json").rpartition("-")
    return f"`python benchmarks/run.py --only {name} --size {size}`"


def caption(records: list[dict[str, Any]], files: list[str]) -> str:
    """What the figures of a table rest on."""
    parts = []
    for record, file in zip(records, files, strict=True):
        settings = "".join(
            f", {name.replace('_', ' ')} {value}" for name, value in record["settings"].items() if value is not None
        )
        machines, commits = (listed(row[name] for row in record["rows"]) for name in ("machine", "commit"))
        parts.append(f"`{record['command']}`{settings}; {machines}; commit {commits}; `results/{file}`")
    return f"*{'. '.join(parts)}.*"


def listed(values: Iterable[str]) -> str:
    """Each of them once, in order."""
    return ", ".join(dict.fromkeys(values))


if __name__ == "__main__":
    main()

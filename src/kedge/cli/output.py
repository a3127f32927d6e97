"""What the verbs print: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

if TYPE_CHECKING:
    from kedge.discovery import Health

_COLOURS = {"right": "green", "doubtful": "yellow", "not right": "red"}


_WIDEST = 1000


class _Console(Console):
    """Prints text as it is, and leaves a closed pipe to `main`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def results() -> Console:
    """For results; plain text when stdout is no terminal."""
    return _Console()


def notes() -> Console:
    """For progress, logs and warnings."""
    return _Console(stderr=True)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=_jsonable) + "\n")
    sys.stdout.flush()  # `kedge explore` goes on after it


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A small table on stdout; the first column is text, the others are figures."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        table.add_column(column, justify="left" if position == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console = results()
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    console.width = max(needed, console.width)  # a line too long wraps, and nothing is cut off
    console.print(table)


def health_lines(health: Health) -> str:
    """Both answers, a line each, and what is shared, with colour markup."""
    answers = (("The map is", health.map), ("The pairs are", health.pairs))
    lines = [
        f"{begin} [bold {_COLOURS[answer.verdict]}]{answer.verdict.upper()}[/] ({answer.score:.2f}): {answer.reason}"
        for begin, answer in answers
    ]
    return "\n".join([*lines, f"In both: {health.overlap}."])


def note(message: str) -> None:
    """One line for the log, on stderr."""
    notes().print(f"kedge: {message}", markup=False)


def tell_page(path: Path) -> None:
    """Where a page is that has been written, on stdout."""
    results().print(f"page: {path} (open it in a browser)", markup=False)


def command() -> str:
    """How to call kedge again from here: by name, or by path where it is not on the PATH."""
    if shutil.which("kedge"):
        return "kedge"
    script = Path(sys.executable).with_name("kedge")
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")

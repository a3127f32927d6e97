"""What the commands print: results on stdout, everything else on stderr, and nothing that controls the terminal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kedge.cli.escaping import shown, shown_in_json
from kedge.judging.health import sentence
from kedge.masking import mask

if TYPE_CHECKING:
    from kedge.judging.health import Answer, Health

_COLOURS = {"ok": "green", "uncertain": "yellow", "failed": "red"}
_MAX_WIDTH = 1000


def one_line(*parts: str | tuple[str, str]) -> Text:
    """Text that prints as one line, whatever its parts hold; each is a text or (text, style)."""
    return Text.assemble(*((shown(part), "") if isinstance(part, str) else (shown(part[0]), part[1]) for part in parts))


class _Console(Console):
    """Wraps nothing, and leaves a closed pipe to `main`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def notes() -> Console:
    """The console for progress, logs and warnings. Text from data must go through `one_line` first."""
    return _Console(stderr=True)


def print_line(*parts: str | tuple[str, str]) -> None:
    """Print one line of the result, of texts and (text, style), on stdout; in colour only on a terminal."""
    _Console().print(one_line(*parts))


def note(message: str) -> None:
    """One line for the log, on stderr."""
    notes().print(one_line("kedge: ", mask(message)))


def warn(message: str) -> None:
    """One line on stderr that must not be overlooked."""
    notes().print(one_line(("WARNING", "bold red"), " ", mask(message)))


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    lines = json.dumps(value, ensure_ascii=False, indent=2, default=_jsonable).split("\n")
    sys.stdout.write("\n".join(map(shown_in_json, lines)) + "\n")
    sys.stdout.flush()  # `kedge explore` keeps running after it


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A small table on stdout; the first column is text, the others are figures."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        table.add_column(one_line(column), justify="left" if position == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(one_line, row))
    console = _Console()
    needed = Measurement.get(console, console.options.update(max_width=_MAX_WIDTH), table).maximum
    console.width = max(needed, console.width)  # a long line wraps instead of being cut off
    console.print(table)


def print_health(health: Health) -> None:
    """Print the answer for each use on a line, with what it rests on, and then what the spaces share."""
    for use, answer in health.answers.items():
        print_answer(f"{sentence(use)}: ", answer)
    print_line(f"In both: {health.overlap}.")


def print_answer(begin: str, answer: Answer) -> None:
    """One answer: its verdict and score, its reason, and what it rests on."""
    verdict = (answer.verdict.upper(), f"bold {_COLOURS[answer.verdict]}")
    basis = f" [by {answer.basis}]" if answer.basis else ""
    print_line(begin, verdict, f" ({answer.score:.2f}). {answer.reason}{basis}")


def print_page(path: Path) -> None:
    """Say on stdout where a page was written."""
    print_line(f"page: {path} (open it in a browser)")


def counted(number: int, name: str) -> str:
    """A number of things, such as "1 seed" or "2 seeds"."""
    return f"{number} {name if number == 1 else f'{name}s'}"


def kedge_command() -> str:
    """How to call kedge again from here: by name, or by path if it is not on the PATH."""
    if shutil.which("kedge"):
        return "kedge"
    script = Path(sys.executable).with_name("kedge")
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def _jsonable(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot be written as JSON: {type(value).__name__}")

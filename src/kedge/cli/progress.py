"""Progress bars, on stderr, only on a terminal: one follows the steps of a discovery, one merely counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kedge.cli.output import notes
from kedge.discovery import Step
from kedge.discovery.steps import OnStep

_LABELS = {
    "fingerprints": "fingerprints",
    "anneal": "annealing",
    "finish": "finishing on all rows",
    "rivals": "what random starts do",
    "confidence": "measuring confidence",
    "paper": "paper's optimiser",
}


def _bars(console: Console, *more: ProgressColumn) -> Progress:
    """What every bar shows: label, count, `more`, and times."""
    return Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        *more,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


@contextmanager
def progress_bar() -> Iterator[OnStep]:
    """Yield a callback for `on_step` that says what is being tried, and draws one bar a stage of it."""
    console = notes()
    with _bars(console, TextColumn("{task.fields[figures]}")) as progress:
        tasks: dict[tuple[str, str], TaskID] = {}

        def on_step(step: Step) -> None:
            if step.stage == "health":  # no bar: a line, which stays
                if console.is_terminal:
                    console.print(f"kedge: {step.attempt.split(':')[0]} came to a score of {step.figures['score']:.2f}")
                return
            bar = (step.stage, step.attempt)
            if step.attempt and step.attempt not in {attempt for _, attempt in tasks} and console.is_terminal:
                console.print(f"kedge: {step.attempt}", markup=False)
            if bar not in tasks:
                for done in tasks.values():  # a stage may end before its last possible step
                    progress.update(done, total=progress.tasks[done].completed)
                tasks[bar] = progress.add_task(_LABELS.get(step.stage, step.stage), total=step.total, figures="")
            figures = "  ".join(f"{name} {value:.3g}" for name, value in step.figures.items())
            progress.update(tasks[bar], completed=step.index, figures=figures)

        yield on_step


@contextmanager
def counting_bar(label: str, *, rate: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that is told how many are done, and of how many; with `rate` the bar shows how many a second."""
    first: list[tuple[float, int]] = []  # when counting began, and with how many: a bar may wait for another to end
    with _bars(notes(), *([TextColumn("{task.fields[rate]}")] if rate else [])) as progress:
        task = progress.add_task(label, total=None, rate="")

        def on_progress(done: int, total: int) -> None:
            now = time.monotonic()
            if not first:
                first.append((now, done))
            seconds, count = now - first[0][0], done - first[0][1]
            told = f"{count / seconds:.0f}/s" if count and seconds else ""
            progress.update(task, completed=done, total=total, rate=told)

        yield on_progress

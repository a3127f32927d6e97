"""Progress bars, on stderr, only on a terminal: one follows the steps of a discovery, one merely counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from kedge.cli.escaping import shown
from kedge.cli.output import notes, one_line
from kedge.solving.steps import OnStep, Step

_LABELS = {
    "fingerprints": "fingerprints",
    "anneal": "annealing",
    "finish": "finishing on all rows",
    "rivals": "what random starts do",
    "confidence": "measuring confidence",
    "paper": "paper's optimiser",
}


class _Rate(ProgressColumn):
    """How many per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.0f}/s" if speed else "")


def _bars(console: Console, *more: ProgressColumn) -> Progress:
    """What every bar shows: label, count, `more`, and times."""
    return Progress(
        TextColumn("{task.description:<22}", markup=False),
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
    """Yield a callback for `on_step` that says what is being tried, and draws one bar for each stage of it."""
    console = notes()
    with _bars(console, TextColumn("{task.fields[figures]}", markup=False)) as progress:
        tasks: dict[tuple[str, str], TaskID] = {}

        def on_step(step: Step) -> None:
            if step.stage == "health":  # no bar: a line, which stays
                if console.is_terminal:
                    score = step.figures["score"]
                    console.print(one_line(f"kedge: {step.attempt.split(':')[0]} came to a score of {score:.2f}"))
                return
            bar = (step.stage, step.attempt)
            if step.attempt and step.attempt not in {attempt for _, attempt in tasks} and console.is_terminal:
                console.print(one_line(f"kedge: {step.attempt}"))
            if bar not in tasks:
                for done in tasks.values():  # a stage may end before its last possible step
                    progress.update(done, total=progress.tasks[done].completed)
                tasks[bar] = progress.add_task(shown(_LABELS.get(step.stage, step.stage)), total=step.total, figures="")
            figures = "  ".join(f"{name} {value:.3g}" for name, value in step.figures.items())
            progress.update(tasks[bar], completed=step.index, figures=figures)

        yield on_step


@contextmanager
def counting_bar(label: str, *, rate: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that takes how many are done, and of how many; with `rate` the bar shows how many per second."""
    with _bars(notes(), *([_Rate()] if rate else [])) as progress:
        task = progress.add_task(shown(label), total=None)

        def on_progress(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield on_progress

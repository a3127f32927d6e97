"""Progress bars, on stderr and only on a terminal: one follows the steps of a discovery, one just counts."""

from __future__ import annotations

import time
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
    "components": "components",
    "anneal": "annealing",
    "finish": "finishing on all rows",
    "rivals": "trying random starts",
    "confidence": "measuring confidence",
    "paper": "paper's optimiser",
}


# How many rows are compared to measure the speed of the machine.
_TRIAL = (512, 4096)


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


def about(seconds: float) -> str:
    """A duration for people, such as "about 3 minutes"."""
    if seconds < 90:
        return f"about {max(round(seconds, -1), 10):.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"


def estimate_seconds(rows_x: int, rows_y: int, dim: int, passes: float, device: str) -> float:
    """How long it takes to compare all rows with all `passes` times, by timing a few rows on this machine."""
    import torch

    from kedge.estimators.devices import resolve_device

    place = resolve_device(device)
    a, b = (torch.ones(rows, dim, device=place) for rows in _TRIAL)
    float((a @ b.T).amax(dim=1).sum())  # a warm-up
    began = time.perf_counter()
    float((a @ b.T).amax(dim=1).sum())
    return passes * (time.perf_counter() - began) * rows_x * rows_y / (_TRIAL[0] * _TRIAL[1])


@contextmanager
def progress_bar() -> Iterator[OnStep]:
    """Yield a callback for `on_step` that says what is being tried, and draws a bar for each stage."""
    console = notes()
    with _bars(console, TextColumn("{task.fields[figures]}", markup=False)) as progress:
        tasks: dict[tuple[str, str], TaskID] = {}

        def on_step(step: Step) -> None:
            if step.stage == "health":  # a line that stays, not a bar
                if console.is_terminal:
                    score = step.figures["score"]
                    console.print(one_line(f"kedge: {step.attempt.split(':')[0]} scored {score:.2f}"))
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
    """Yield a callback that takes how many are done, and the total; with `rate` the bar shows how many per second."""
    with _bars(notes(), *([_Rate()] if rate else [])) as progress:
        task = progress.add_task(shown(label), total=None)

        def on_progress(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield on_progress

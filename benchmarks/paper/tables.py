"""Results of an experiment: tables as Markdown, everything as JSON, and summary statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kedge.spaces.writing.atomic import atomic_path

OURS = ("GT", "Seed", "Found", "Paper's optimiser")
"""The sets of anchors in every table; some may not be run."""


@dataclass(frozen=True)
class Table:
    """A table: title, columns, rows of formatted cells, and remarks below."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    remarks: list[str] = field(default_factory=list)

    def to_markdown(self) -> str:
        """Format the table as a Markdown section."""
        lines = [f"### {self.title}", "", _row(self.columns), "|" + "---|" * len(self.columns)]
        lines += [_row(cells) for cells in self.rows]
        lines += ["", *(f"{remark}\n" for remark in self.remarks)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Result:
    """The tables of an experiment, all its numbers (`details`, for JSON), and the paths of its pictures."""

    name: str
    tables: list[Table]
    details: dict[str, Any]
    pictures: list[Path] = field(default_factory=list)

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.md` and `NAME.json`; returns the paths of all files, including pictures."""
        markdown, described = folder / f"{self.name}.md", folder / f"{self.name}.json"
        with atomic_path(markdown) as temporary:
            temporary.write_text("\n".join(table.to_markdown() for table in self.tables), encoding="utf-8")
        with atomic_path(described) as temporary:
            temporary.write_text(json.dumps(self.details, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return [markdown, described, *self.pictures]


def summarise(states: list[Any]) -> Any:
    """Mean and standard deviation of every number in records of the same structure."""
    first = states[0]
    if isinstance(first, dict):
        return {
            name: summarise([state[name] for state in states])
            for name, value in first.items()
            if isinstance(value, dict | float | int)
        }
    return mean_and_spread(states)


def mean_and_spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation over the random states."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def shown(summaries: Sequence[dict[str, float]]) -> str:
    """Format several summaries as one cell: all means, and the largest standard deviation."""
    means = " / ".join(short(summary["mean"]) for summary in summaries)
    return f"{means} ±{short(max(summary['std'] for summary in summaries))}"


def short(value: float) -> str:
    """Format a number with three decimals and no leading zero."""
    return f"{value:.3f}".removeprefix("0")


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"

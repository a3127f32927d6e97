"""What an experiment leaves behind: tables as Markdown, everything as JSON, figures as PNG and SVG."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kedge.experiments.tables import Table
from kedge.spaces.atomic import atomic_path


@dataclass(frozen=True)
class Result:
    """The tables of an experiment, its figures in full (`details`, for JSON), and the pictures it drew."""

    name: str
    tables: list[Table]
    details: dict[str, Any]
    pictures: list[Path] = field(default_factory=list)

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.md` and `NAME.json`; returns the paths of everything there is."""
        markdown, described = folder / f"{self.name}.md", folder / f"{self.name}.json"
        with atomic_path(markdown) as temporary:
            temporary.write_text("\n".join(table.to_markdown() for table in self.tables), encoding="utf-8")
        with atomic_path(described) as temporary:
            temporary.write_text(json.dumps(self.details, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return [markdown, described, *self.pictures]

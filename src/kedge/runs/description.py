"""What `run.json` holds, as types; reading it checks all of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from kedge.errors import InputError
from kedge.judging.health import Health
from kedge.matching import Agreement
from kedge.runs.schema import Count, Length, Share, Within, parse_json, restore
from kedge.solving.steps import Step

FORMAT = 4
"""Of run folders."""

NAME = "run.json"
# What `kedge info` says of the settings, in any run.
_NEEDED = ("method", "random_state")
_NOT_KEPT = ("checkpoint", "on_step", "return")
# Of settings that are numbers, what more than the constructor's types must hold.
_BOUNDS = {
    "n_anchors": Count | None,
    "whiten": Share | Literal["auto"],
    "min_confidence": Share,
    "memory_budget": Count,
    "random_state": Annotated[int, Within(0, 2**63 - 1)],
}


@dataclass(frozen=True)
class Counts:
    """The sizes of what a run holds."""

    rows_x: Count
    rows_y: Count
    dim_x: Count
    dim_y: Count
    seeds: Count
    anchors: Count
    pairs: Count
    shared: Count


@dataclass(frozen=True)
class InputFile:
    """A file, or a store, that was read: its name and SHA-256, and the size of the space in it."""

    file: str
    sha256: str
    rows: Count | None = None
    dimensions: Count | None = None
    keys_sha256: str | None = None


@dataclass(frozen=True)
class MapScores:
    """Which kind of map was chosen, and how it searches."""

    kind: str
    own_rank: Share | None
    overlap: Share | None


@dataclass(frozen=True)
class Maps:
    """The two maps."""

    map: MapScores
    map_back: MapScores


@dataclass(frozen=True)
class Approximate:
    """An `Agreement`, and the same in words."""

    told: str
    checked: Count
    share: Share
    checked_pairs: Count
    share_of_pairs: Share

    @property
    def agreement(self) -> Agreement:
        """Without the words."""
        return Agreement(self.checked, self.share, self.checked_pairs, self.share_of_pairs)


@dataclass(frozen=True)
class RunDescription:
    """All of `run.json` that is used; what else it holds was given to `save` by others."""

    format: int
    kedge: str
    settings: dict[str, Any]
    counts: Counts
    inputs: dict[str, InputFile]
    health: Health
    iterations: Count
    converged: bool
    whitening: Share
    ridge: Length
    maps: Maps
    length_x: Length
    length_y: Length
    history: tuple[Step, ...]
    approximate: Approximate | None = None
    limit: Count | None = None
    timings: dict[str, float] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    resumed: bool = False


def holds_run(folder: Path) -> bool:
    """Whether the folder holds a run."""
    return (folder / NAME).is_file()


def read_description(folder: Path) -> dict[str, Any]:
    """The contents of `run.json`, all that is used of it checked."""
    return restore_description(folder)[0]


def restore_description(folder: Path) -> tuple[dict[str, Any], RunDescription]:
    """The contents of `run.json`, and the same as values; settings are what `AnchorDiscovery` takes."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {'is a file, not a run folder' if folder.exists() else 'no such run folder'}")
    if not holds_run(folder):
        raise InputError(f"{folder}: is no run folder, it holds no {NAME}")
    path = folder / NAME
    try:
        run = parse_json(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise InputError(f"{path}: format {FORMAT} is needed; written by another version of kedge?")
    used = {one.name: run[one.name] for one in fields(RunDescription) if one.name in run}
    description: RunDescription = restore(RunDescription, used, f"{path}:")
    settings = _settings(description.settings, f"{path}: settings")
    return run, replace(description, settings=settings)


def _settings(stored: dict[str, Any], where: str) -> dict[str, Any]:
    """Parameters of an `AnchorDiscovery`, as its constructor says that they must be."""
    from kedge.estimators.anchor_discovery import AnchorDiscovery

    kinds = get_type_hints(AnchorDiscovery.__init__, include_extras=True)
    kinds = {name: _BOUNDS.get(name, kind) for name, kind in kinds.items() if name not in _NOT_KEPT}
    for name in _NEEDED:
        if name not in stored:
            raise InputError(f"{where}.{name}: is missing")
    for name in stored:
        if name not in kinds:
            raise InputError(f"{where}.{name}: is no setting; there are {', '.join(kinds)}")
    return {name: restore(kinds[name], value, f"{where}.{name}") for name, value in stored.items()}

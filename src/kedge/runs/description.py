"""The contents of `run.json`, as types; reading it checks all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kedge.errors import InputError
from kedge.judging.health import Health
from kedge.models.confidence_curve import ConfidenceCurve
from kedge.models.mixed_scores import ScoreOffsets
from kedge.solving.steps import Step
from kedge.storage.schema import Count, Length, Share, parse_json, restore

FORMAT = 6
"""The format of run folders."""

NAME = "run.json"
COMMON = "common space"
"""The `kind` of the runs that `kedge unite` writes; runs of two spaces have none."""

# The settings that `kedge info` shows for any run.
_NEEDED = ("method", "random_state")


@dataclass(frozen=True)
class Counts:
    """The sizes of what a run holds; if a space has the first of more dimensions, `prefix_of` says of how many."""

    rows_x: Count
    rows_y: Count
    dim_x: Count
    dim_y: Count
    seeds: Count
    anchors: Count
    pairs: Count
    effective_dims: Count
    prefix_of_x: Count | None = None
    prefix_of_y: Count | None = None


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
    """The chosen map, its family, and how well searches with it do on held-out pairs, known or found ones."""

    family: str
    kind: str
    mrr: Share | None
    overlap: Share | None
    tested: Count
    by_known: bool


@dataclass(frozen=True)
class Maps:
    """The scores of both maps."""

    map: MapScores
    map_back: MapScores


@dataclass(frozen=True)
class Queries:
    """How queries are translated, and how well that agrees with the source's own model (see `QueryTranslation`)."""

    kind: str
    agreement: Share | None
    agreement_of_one_map: Share | None


@dataclass(frozen=True)
class TrustSizes:
    """How many held-out pairs, and how many rows of X, are kept to say how far a translation can be trusted."""

    pairs: Count
    seen: Count


@dataclass(frozen=True)
class Approximate:
    """How often candidates gave the exact answer (a `CandidateRecall`), and the same in words."""

    summary: str
    checked: Count
    share: Share
    checked_pairs: Count
    share_of_pairs: Share


@dataclass(frozen=True)
class RunDescription:
    """All of `run.json` that is used; anything else in it was passed to `save` by a caller."""

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
    mean_norm_x: Length
    mean_norm_y: Length
    history: tuple[Step, ...]
    queries: Queries | None = None
    trust: TrustSizes | None = None
    score_offsets: ScoreOffsets | None = None
    approximate: Approximate | None = None
    confidence_curve: ConfidenceCurve | None = None
    limit: Count | None = None
    timings: dict[str, float] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    resumed: bool = False


def holds_run(folder: Path) -> bool:
    """Whether the folder holds a run."""
    return (folder / NAME).is_file()


def holds_common_space(folder: Path) -> bool:
    """Whether the folder holds a run of many spaces, as `kedge unite` writes it."""
    return holds_run(folder) and read_json(folder).get("kind") == COMMON


def read_json(folder: Path) -> dict[str, Any]:
    """The contents of `run.json`, which must have this version's format."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {'is a file, not a run folder' if folder.exists() else 'no such run folder'}")
    if not holds_run(folder):
        raise InputError(f"{folder}: is not a run folder: it holds no {NAME}")
    path = folder / NAME
    try:
        run = parse_json(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if not isinstance(run, dict) or run.get("format") != FORMAT:
        raise InputError(
            f"{path}: format {FORMAT} is needed, but another version of kedge wrote this run; run `kedge "
            "discover` again with the same files and --random-state, which gives the same result"
        )
    return run


def read_description(folder: Path) -> tuple[dict[str, Any], RunDescription]:
    """The contents of `run.json`, as parsed and as values; all that is used of it is checked."""
    run = read_json(folder)
    if run.get("kind") == COMMON:
        raise InputError(
            f"{folder}: holds a common space of many (`kedge unite`), but a run of two spaces is needed here; a "
            "common space can be used by info, report, evaluate, compare, search, translate, project, export and "
            "migrate, and in Python with kedge.CommonSpace.load"
        )
    return run, describe(run, f"{folder / NAME}:")


def describe(run: Mapping[str, Any], where: str) -> RunDescription:
    """The contents of `run.json` as values; raises `InputError` if they are invalid."""
    used = {one.name: run[one.name] for one in fields(RunDescription) if one.name in run}
    description: RunDescription = restore(RunDescription, used, where)
    curve = description.confidence_curve
    if curve is not None and not curve.is_sound:
        raise InputError(
            f"{where} confidence_curve: margins must ascend, with a probability for each, got {len(curve.margins)} "
            f"margins and {len(curve.probabilities)} probabilities"
        )
    for name in _NEEDED:
        if name not in description.settings:
            raise InputError(f"{where} settings.{name}: is missing")
    return description

"""How to run an experiment: its options, its random states, and the finished ones that are kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kedge import __version__
from kedge.estimators.devices import resolve_device
from kedge.solving.steps import OnStep
from kedge.spaces import Embeddings
from kedge.spaces.writing.atomic import atomic_path
from paper.pairs_of_spaces import ANCHORS, SEEDS

OnPart = Callable[[str, bool], None]


class Parts:
    """Finished parts in a folder, one JSON file each, computed with the same settings and data.

    File names end with a digest of the settings, so that parts with other settings are kept, but not read.

    Parameters
    ----------
    folder : Path
    settings : mapping
        Everything that the parts depend on.
    on_part : callable
        Called before each part with its name, and with whether it was finished in an earlier run.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], on_part: OnPart) -> None:
        described = json.dumps(dict(settings), sort_keys=True)
        self._folder = folder
        self._digest = hashlib.sha256(described.encode()).hexdigest()[:12]
        self._on_part = on_part

    def get(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Read the part of this name if it is finished, otherwise compute and write it."""
        self._folder.mkdir(parents=True, exist_ok=True)  # fail now, not after the work
        path = self._folder / f"{name}-{self._digest}.json"
        finished = _read(path)
        self._on_part(name, finished is not None)
        if finished is not None:
            return finished
        part = compute()
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(part, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return part


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a run: output folder, random states, device and callbacks.

    Parameters
    ----------
    out : Path
        The output folder; finished parts are kept in it, and not computed again.
    paper_optimiser : bool
        Whether to also run the paper's optimiser, which takes very long without a GPU.
    figures : bool
        Whether to draw figures (needs `kedge[plot]`).
    """

    out: Path
    random_states: Sequence[int]
    on_part: OnPart
    on_step: OnStep | None = None
    device: str = "auto"
    paper_optimiser: bool = False
    figures: bool = True

    def settings(self) -> dict[str, Any]:
        """Everything that all results depend on, apart from the data."""
        return {
            "paper_optimiser": self.paper_optimiser,
            "seeds": SEEDS,
            "anchors": ANCHORS,
            **describe_machine(self.device),
        }

    def states(
        self, name: str, settings: Mapping[str, Any], run: Callable[..., dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The results of `run` for all random states; finished ones are read instead."""
        parts = Parts(self.out / "parts", settings, self.on_part)
        run = partial(run, device=self.device, paper_optimiser=self.paper_optimiser, on_step=self.on_step)
        return [parts.get(f"{name}-state-{state}", partial(run, state)) for state in self.random_states]


def digest_of(*parts: Embeddings | NDArray[Any]) -> str:
    """A digest of spaces (keys and vectors) and arrays of labels."""
    summed = hashlib.sha256()
    for part in parts:
        if isinstance(part, Embeddings):
            summed.update("\n".join(part.keys).encode())
            summed.update(np.ascontiguousarray(part.vectors).data)
        else:
            summed.update("\n".join(map(str, part.tolist())).encode())
    return summed.hexdigest()[:12]


def describe_machine(device: str) -> dict[str, str]:
    """The versions and device that results depend on, so that those of different machines are not mixed."""
    place = resolve_device(device)
    return {
        "kedge": __version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
    }


def _read(path: Path) -> dict[str, Any] | None:
    """Read a finished part; returns None if it is missing or damaged."""
    try:
        part = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return part if isinstance(part, dict) and part else None

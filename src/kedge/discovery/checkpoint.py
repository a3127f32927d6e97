"""A folder with what an unfinished discovery has reached: one safetensors file a stage, each replaced as a whole.

Whatever moment the process dies at, the folder holds the state after the last round that was finished. It says what it
belongs to (`identity.json`), so that a discovery of something else does not go on from it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from kedge import __version__
from kedge.discovery.steps import Step
from kedge.errors import InputError
from kedge.spaces.atomic import atomic_path, require_parent

_IDENTITY = "identity.json"
_TEMPORARY = ".kedge-"


class Checkpoint:
    """The states of one unfinished discovery in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._identity: dict[str, Any] = {}

    def open(self, inputs: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Step]:
        """See that the folder, if there is one, belongs to this discovery; return the steps that led to its state.

        Raises `InputError` where it holds the states of a discovery of other inputs or with other settings.
        """
        identity = {"kedge": __version__, "inputs": inputs, "settings": settings}
        self._identity = json.loads(json.dumps(identity))  # as it is read back
        folder = self._folder
        if (folder / _IDENTITY).is_file():
            self._refuse_another()
            for leftover in folder.glob(f"{_TEMPORARY}*"):  # of a process that was killed while it wrote
                leftover.unlink()
            return self._history()
        if folder.exists() and not (folder.is_dir() and _is_bare(folder)):
            raise InputError(f"{folder}: holds something else than the state of a discovery; choose another name")
        require_parent(folder)
        return []

    def _refuse_another(self) -> None:
        kept = _identity_in(self._folder)
        if kept is None:
            raise InputError(f"{self._folder / _IDENTITY}: cannot be read; delete the folder")
        for name, value in self._identity["inputs"].items():
            if kept["inputs"].get(name) != value:
                raise InputError(
                    f"{self._folder}: is the state of another discovery, whose {name} differs; give the same files, "
                    "seeds and anchors as before, or start over"
                )
        for name, value in (self._identity["settings"] | {"version of kedge": __version__}).items():
            before = (kept["settings"] | {"version of kedge": kept["kedge"]}).get(name)
            if before != value:
                raise InputError(
                    f"{self._folder}: is the state of another discovery: {name} was {before!r} and is now {value!r}; "
                    "give the same settings as before, or start over"
                )

    def read(self, stage: str) -> dict[str, Tensor] | None:
        """The tensors kept for a stage, or None."""
        path = self._path(stage)
        if not path.is_file():
            return None
        with self._opened(path) as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping

    def write(self, stage: str, tensors: Mapping[str, Tensor], history: Sequence[Step]) -> None:
        """Keep the tensors of a stage, and the steps that led there; the first ones make the folder."""
        if not (self._folder / _IDENTITY).is_file():
            self._folder.mkdir(exist_ok=True)
            with atomic_path(self._folder / _IDENTITY) as temporary:
                temporary.write_text(json.dumps(self._identity, indent=2) + "\n")
        told = json.dumps([asdict(step) for step in history])
        with atomic_path(self._path(stage)) as temporary:
            save_file(dict(tensors), temporary, metadata={"history": told})

    def _history(self) -> list[Step]:
        """The steps that led to the latest state."""
        histories: list[list[Step]] = [[]]
        for path in self._folder.glob("*.safetensors"):
            with self._opened(path) as stored:
                histories.append([Step(**step) for step in json.loads(stored.metadata()["history"])])
        return max(histories, key=len)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[Any]:
        try:
            with safe_open(path, framework="pt") as stored:
                yield stored
        except SafetensorError as error:
            raise InputError(f"{path}: cannot be read ({error}); delete {self._folder} and start over") from error

    def _path(self, stage: str) -> Path:
        return self._folder / f"{stage}.safetensors"


def discard(folder: Path) -> None:
    """Delete a checkpoint, if the folder is one; as a whole or not at all."""
    if _identity_in(folder) is not None:
        doomed = folder.with_name(f"{_TEMPORARY}{uuid4().hex}-{folder.name}")
        folder.rename(doomed)
        shutil.rmtree(doomed)


def _is_bare(folder: Path) -> bool:
    """Whether there is nothing in the folder but what was being written when a process was killed."""
    return all(path.name.startswith(_TEMPORARY) and path.is_file() for path in folder.iterdir())


def _identity_in(folder: Path) -> dict[str, Any] | None:
    """What the folder says it belongs to; None where it is no checkpoint."""
    try:
        identity = json.loads((folder / _IDENTITY).read_text())
    except (OSError, ValueError):
        return None
    return identity if isinstance(identity, dict) and {"kedge", "inputs", "settings"} <= set(identity) else None

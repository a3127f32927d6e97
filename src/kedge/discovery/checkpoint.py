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

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from kedge import __version__
from kedge.discovery.steps import Step
from kedge.errors import InputError
from kedge.spaces.atomic import atomic_path

_IDENTITY = "identity.json"


class Checkpoint:
    """The states of one unfinished discovery in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, identity: Mapping[str, Any]) -> list[Step]:
        """Make the folder, or see that the one that is there belongs here; return the steps that led to its state.

        Raises `InputError` where the folder holds the states of another discovery than `identity` describes.
        """
        described = {"version of kedge": __version__, **identity}
        folder, parent = self._folder, self._folder.absolute().parent
        for leftover in folder.glob(".kedge-*"):  # of a process that was killed while it wrote
            leftover.unlink()
        if (folder / _IDENTITY).is_file():
            self._refuse_another(described)
            return self._history()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: holds something else than the state of a discovery; choose another name")
        if not parent.is_dir():
            raise InputError(f"{folder}: the folder {str(parent)!r} does not exist; create it first")
        folder.mkdir(exist_ok=True)
        with atomic_path(folder / _IDENTITY) as temporary:
            temporary.write_text(json.dumps(described, indent=2) + "\n")
        return []

    def _refuse_another(self, described: Mapping[str, Any]) -> None:
        try:
            kept = json.loads((self._folder / _IDENTITY).read_text())
        except ValueError as error:
            raise InputError(f"{self._folder / _IDENTITY}: cannot be read ({error}); delete the folder") from error
        for name, value in json.loads(json.dumps(described)).items():
            if kept.get(name) != value:
                raise InputError(
                    f"{self._folder}: is the state of another discovery: {name} was {kept.get(name)!r} and is now "
                    f"{value!r}; start over, or give the same files and settings as before"
                )

    def read(self, stage: str) -> dict[str, Tensor] | None:
        """The tensors kept for a stage, or None."""
        path = self._path(stage)
        if not path.is_file():
            return None
        with self._opened(path) as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping

    def write(self, stage: str, tensors: Mapping[str, Tensor], history: Sequence[Step]) -> None:
        """Keep the tensors of a stage, and the steps that led there."""
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
    """Delete a checkpoint, if the folder is one."""
    if (folder / _IDENTITY).is_file():
        shutil.rmtree(folder)

"""A folder with what an unfinished discovery has reached: one safetensors file a stage, each replaced as a whole.

Whatever moment the process dies at, the folder holds the state after the last round that was finished. It says what it
belongs to (`identity.json`), and so does each state, so that a discovery of something else does not go on from it; and
while one writes there, it is locked for any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from kedge import __version__
from kedge.errors import InputError
from kedge.runs.arrays import Array, read_arrays, read_metadata
from kedge.runs.schema import parse_json, restore
from kedge.solving.steps import Step
from kedge.spaces.atomic import atomic_path, delete_folder
from kedge.spaces.lock import FolderLock
from kedge.spaces.staging import clear_leftovers

_IDENTITY = "identity.json"


@dataclass(frozen=True)
class Identity:
    """What tells a discovery from others: the version of kedge, what it is given and what it is asked for."""

    kedge: str
    inputs: dict[str, str | None]
    settings: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of it, which every state carries."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Kept:
    """What a state must be: its tensors, and a rule between them, if there is one."""

    tensors: Mapping[str, Array]
    holds: Callable[[Mapping[str, Tensor]], bool] = lambda _: True


class Checkpoint:
    """The states of one unfinished discovery in a folder, from `open` to `close`."""

    def __init__(self, folder: Path, inputs: Mapping[str, str | None], settings: Mapping[str, Any]) -> None:
        identity = {"kedge": __version__, "inputs": dict(inputs), "settings": dict(settings)}
        self._identity = Identity(**json.loads(json.dumps(identity)))  # as it is read back
        self._folder = folder
        self._lock = FolderLock(folder)

    def open(self) -> list[Step]:
        """Lock the folder, and see that it, if there is one, belongs to this discovery.

        Returns the steps that led to its state. Raises `InputError` where another process is writing there, or where it
        holds the states of a discovery of other inputs or with other settings, or anything else.
        """
        self._lock.acquire()
        try:
            return self._opened()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others write there."""
        self._lock.release()

    def read(self, stage: str, expected: Kept) -> dict[str, Tensor] | None:
        """The tensors kept for a stage, or None; raises `InputError` where they are not what they must be."""
        path = self._path(stage)
        if not path.is_file():
            return None
        try:
            self._history_in(path)
            tensors = {name: torch.from_numpy(array) for name, array in read_arrays(path, expected.tensors).items()}
            if not expected.holds(tensors):
                raise InputError(f"{path}: contradicts itself")
        except InputError as error:
            raise InputError(f"{error}; delete {self._folder} and start over") from error
        return tensors

    def write(self, stage: str, tensors: Mapping[str, Tensor], history: Sequence[Step]) -> None:
        """Keep the tensors of a stage, and the steps that led there; the first ones make the folder."""
        if not (self._folder / _IDENTITY).is_file():
            self._folder.mkdir(exist_ok=True)
            with atomic_path(self._folder / _IDENTITY) as temporary:
                temporary.write_text(json.dumps(asdict(self._identity), indent=2) + "\n")
        told = {
            "discovery": self._identity.digest,
            "stage": stage,
            "history": json.dumps([asdict(step) for step in history]),
        }
        with atomic_path(self._path(stage)) as temporary:
            save_file(dict(tensors), temporary, metadata=told)

    def _opened(self) -> list[Step]:
        folder = self._folder
        if folder.is_dir():
            clear_leftovers(folder)  # of a process that was killed while it wrote
        if not (folder / _IDENTITY).is_file():
            if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
                raise InputError(f"{folder}: holds something else than the state of a discovery; choose another name")
            return []
        self._refuse_another()
        try:
            histories = [self._history_in(path) for path in folder.glob("*.safetensors")]
        except InputError as error:
            raise InputError(f"{error}; delete {folder} and start over") from error
        return max(histories, key=len, default=[])

    def _refuse_another(self) -> None:
        ours, kept = self._identity, _identity_in(self._folder)
        for name in ours.inputs:
            if kept.inputs.get(name) != ours.inputs[name]:
                raise InputError(
                    f"{self._folder}: is the state of another discovery, whose {name} differs; give the same files, "
                    "seeds and anchors as before, or start over"
                )
        for name, value in (ours.settings | {"version of kedge": ours.kedge}).items():
            before = (kept.settings | {"version of kedge": kept.kedge}).get(name)
            if before != value:
                raise InputError(
                    f"{self._folder}: is the state of another discovery: {name} was {before!r} and is now {value!r}; "
                    "give the same settings as before, or start over"
                )

    def _history_in(self, path: Path) -> list[Step]:
        """The steps that led to a state of this discovery; the state of another is refused."""
        told = read_metadata(path)
        if (told.get("discovery"), told.get("stage")) != (self._identity.digest, path.stem):
            raise InputError(f"{path}: is the state of another discovery, or of another stage")
        where = f"{path}: history"
        steps: list[Step] = restore(list[Step], parse_json(told.get("history", ""), where), where)
        return steps

    def _path(self, stage: str) -> Path:
        return self._folder / f"{stage}.safetensors"


def discard(folder: Path) -> None:
    """Delete a checkpoint, if the folder is one; as a whole or not at all, and not while another writes there."""
    if not (folder / _IDENTITY).is_file():
        return
    with FolderLock(folder):
        try:
            _identity_in(folder)
        except InputError:
            return
        delete_folder(folder)


def _identity_in(folder: Path) -> Identity:
    """What the folder says it belongs to."""
    path = folder / _IDENTITY
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); delete the folder") from error
    identity: Identity = restore(Identity, parse_json(text, str(path)), f"{path}:")
    return identity

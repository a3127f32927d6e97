"""Checkpoints: a folder with the results of an unfinished discovery, one safetensors file per finished stage.

Whenever the process dies, the folder holds the results of all stages that were finished. It says which discovery it
belongs to (`identity.json`), and so does each result, with a checksum, so that no other discovery goes on from it.
While one process writes there, it is locked for all others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from kedge import __version__
from kedge.errors import InputError
from kedge.solving.steps import Step, Value
from kedge.spaces.streams import require_regular_file
from kedge.spaces.writing.atomic import atomic_path, delete_folder
from kedge.spaces.writing.lock import FolderLock
from kedge.spaces.writing.staging import clear_leftovers
from kedge.storage.schema import parse_json, restore

_IDENTITY = "identity.json"
_GENERATOR = "generator"


@dataclass(frozen=True)
class Identity:
    """What distinguishes a discovery from others: the version of kedge, its inputs and its settings."""

    kedge: str
    inputs: dict[str, str | None]
    settings: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the identity, which every result carries."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


class Checkpoint:
    """A `Keeper` of the finished stages of one discovery in a folder, which is locked inside the context (`with`).

    The state of the random generator is kept with each result, so that later stages draw what they would have drawn.
    """

    def __init__(
        self,
        folder: Path,
        inputs: Mapping[str, str | None],
        settings: Mapping[str, Any],
        device: torch.device,
        generator: torch.Generator,
    ) -> None:
        identity = {"kedge": __version__, "inputs": dict(inputs), "settings": dict(settings)}
        self._identity = Identity(**json.loads(json.dumps(identity)))  # as it is read back
        self._folder = folder
        self._lock = FolderLock(folder)
        self._device = device
        self._generator = generator

    def __enter__(self) -> Checkpoint:
        """Lock the folder and check that, if it exists, it belongs to this discovery.

        Raises `InputError` if another process is writing there, or if the folder holds results of a discovery with
        other inputs or settings, or anything else.
        """
        self._lock.acquire()
        try:
            self._require_own_folder()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def recall(self, stage: str, kind: type[Value]) -> tuple[Value, list[Step]] | None:
        """See `Keeper.recall`; raises `InputError` if a file is not as it was written."""
        path = self._path(stage)
        if not path.is_file():
            return None
        try:
            tensors, about = _read(path)
            if (about.get("discovery"), about.get("stage")) != (self._identity.digest, stage):
                raise InputError(f"{path}: is the state of another discovery, or of another stage")
            reported = about.get("steps", "")
            if about.get("sha256") != _digest(tensors, reported):
                raise InputError(f"{path}: has changed since it was written")
            steps: list[Step] = restore(list[Step], parse_json(reported, str(path)), f"{path}: steps")
            state = tensors.pop(_GENERATOR, None)
            value: Value | None = _from_tensors(
                kind, {name: tensor.to(self._device) for name, tensor in tensors.items()}
            )
            if value is None or state is None:
                raise InputError(f"{path}: lacks a part of the state")
        except InputError as error:
            raise InputError(f"{error}; delete {self._folder} and start over") from error
        self._generator.set_state(state)
        return value, steps

    def keep(self, stage: str, value: object, steps: Sequence[Step]) -> None:
        """See `Keeper.keep`; the first result creates the folder."""
        if not (self._folder / _IDENTITY).is_file():
            self._folder.mkdir(exist_ok=True)
            with atomic_path(self._folder / _IDENTITY) as temporary:
                temporary.write_text(json.dumps(asdict(self._identity), indent=2) + "\n")
        tensors = _to_tensors(value) | {_GENERATOR: self._generator.get_state()}
        reported = json.dumps([asdict(step) for step in steps])
        about = {
            "discovery": self._identity.digest,
            "stage": stage,
            "steps": reported,
            "sha256": _digest(tensors, reported),
        }
        with atomic_path(self._path(stage)) as temporary:
            save_file(tensors, temporary, metadata=about)

    def _require_own_folder(self) -> None:
        folder = self._folder
        if folder.is_dir():
            clear_leftovers(folder)  # of a process that was killed while writing
        if (folder / _IDENTITY).is_file():
            self._refuse_another()
        elif folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(f"{folder}: holds something other than the state of a discovery; choose another name")

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

    def _path(self, stage: str) -> Path:
        return self._folder / f"{stage}.safetensors"


def discard(folder: Path) -> None:
    """Delete a folder if it is a checkpoint: as a whole or not at all, and not while another process writes there."""
    if not (folder / _IDENTITY).is_file():
        return
    with FolderLock(folder):
        try:
            _identity_in(folder)
        except InputError:
            return
        delete_folder(folder)


def _identity_in(folder: Path) -> Identity:
    """The identity of the discovery that the folder belongs to."""
    path = folder / _IDENTITY
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); delete the folder") from error
    identity: Identity = restore(Identity, parse_json(text, str(path)), f"{path}:")
    return identity


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, and its metadata."""
    require_regular_file(path)
    try:
        with safe_open(path, framework="pt") as stored:
            return {name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def _to_tensors(value: Any, prefix: str = "") -> dict[str, Tensor]:
    """A dataclass of tensors, numbers, None and other such dataclasses, as tensors by name."""
    tensors: dict[str, Tensor] = {}
    for field in fields(value):
        part, name = getattr(value, field.name), prefix + field.name
        if is_dataclass(part):
            tensors |= _to_tensors(part, f"{name}.")
        elif isinstance(part, Tensor):
            tensors[name] = part.detach().cpu().contiguous()
        elif part is not None:
            tensors[name] = torch.tensor(part, dtype=torch.float64 if isinstance(part, float) else None)
    return tensors


def _from_tensors(kind: Any, tensors: Mapping[str, Tensor], prefix: str = "") -> Any:
    """The dataclass that `_to_tensors` made these from; None if a required part is missing."""
    hints = get_type_hints(kind)
    parts: dict[str, Any] = {}
    for field in fields(kind):
        name = prefix + field.name
        part: Any = None
        optional = NoneType in get_args(hints[field.name])
        wanted = next((one for one in get_args(hints[field.name]) if one is not NoneType), hints[field.name])
        if is_dataclass(wanted):
            part = _from_tensors(wanted, tensors, f"{name}.")
        elif name in tensors:
            part = tensors[name] if wanted is Tensor else wanted(tensors[name].item())
        if part is None and not optional:
            return None
        parts[field.name] = part
    return kind(**parts)


def _digest(tensors: Mapping[str, Tensor], steps: str) -> str:
    """SHA-256 of named tensors, and of the steps that led to them."""
    digest = hashlib.sha256(steps.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()

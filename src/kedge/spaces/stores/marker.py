"""One writer per collection on a server: a marker beside the collection names the writer and carries its heartbeat.

The marker is a collection of its own, since creating one is the only operation that, on every server, just one of two
clients can succeed in. Its single row says who the writer is and how many heartbeats it has sent. Whether a writer is
alive shows in its heartbeats, not in timestamps, since the clocks of two machines differ; if the writer runs on this
machine, its process tells.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kedge.errors import InputError
from kedge.spaces.stores.store import Batch, Description, Store

MARKER = ".kedge-writer"
"""Suffix of a marker's name, after the name of its collection."""

BEAT_SECONDS = 5.0
_MISSED_BEATS = 3  # after this many a writer counts as dead
_ROW = "1"


@dataclass
class WriterMarker:
    """A marker held inside `with`; raises `InputError` if another writer holds it.

    Parameters
    ----------
    open_marker : callable
        Opens the marker's collection, which need not exist, as a store.
    delete : callable
        Deletes that collection.
    target : str
        What is being written, for messages.
    """

    open_marker: Callable[[], Store]
    delete: Callable[[Store], None]
    target: str
    beat_seconds: float = BEAT_SECONDS
    _token: str = field(init=False, default_factory=lambda: uuid.uuid4().hex)
    _lost: bool = field(init=False, default=False)

    def __enter__(self) -> WriterMarker:
        while not self._made():
            self._refuse_or_clear()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        # If the server is unreachable, the marker stays, and the next writer clears it.
        with suppress(Exception), self._opened() as store:
            if self._is_ours(store):
                self.delete(store)

    def require_held(self) -> None:
        """Raise `InputError` if another writer took this one for dead, as may happen after a suspend."""
        if self._lost:
            raise InputError(f"{self.target}: another process has begun to write there; run this again later")

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        """The marker's store, opened anew since clients cache what they have seen."""
        store = self.open_marker()
        try:
            yield store
        finally:
            store.close()

    def _made(self) -> bool:
        """Create the marker; returns False if there is one already."""
        with self._opened() as store:
            if store.exists():
                return False
            try:
                store.create(Description(1, 1))
            except Exception:  # another created it first: each client has its own error for that
                if not store.exists():
                    raise
                return False
            self._say(store, 0)
            return self._is_ours(store)

    def _refuse_or_clear(self) -> None:
        """Delete the marker of a dead writer; raises `InputError` if the writer is alive."""
        before = self._said()
        alive = None if before is None else _is_alive(before)
        if alive is None:
            time.sleep(_MISSED_BEATS * self.beat_seconds)
            alive = self._said() != before
        if alive:
            who = f"process {before.get('process')} on {before.get('host')}" if before else "process unknown"
            raise InputError(
                f"{self.target}: another process is writing there ({who}); wait until it is done, stop it, or choose "
                "another name"
            )
        with self._opened() as store:
            if store.exists() and _said_by(store) == before:
                self.delete(store)

    def _beat(self) -> None:
        count = 0
        while not self._done.wait(self.beat_seconds):
            count += 1
            # Ignore a server that does not answer for a while: whoever writes gets the error.
            with suppress(Exception), self._opened() as store:
                if not self._is_ours(store):
                    self._lost = True
                    return
                self._say(store, count)

    def _say(self, store: Store, beats: int) -> None:
        said = {"writer": self._token, "beats": beats} | _this_process()
        store.write(Batch([_ROW], np.ones((1, 1), dtype=np.float32), [said]))

    def _said(self) -> dict[str, Any] | None:
        with self._opened() as store:
            return _said_by(store)

    def _is_ours(self, store: Store) -> bool:
        said = _said_by(store)
        return said is not None and said.get("writer") == self._token


def _said_by(store: Store) -> dict[str, Any] | None:
    """What the marker says; None if there is no marker, or nothing in it yet."""
    found = store.fetch([_ROW]) if store.exists() else ()
    return dict(found.payloads[0]) if isinstance(found, Batch) and len(found) else None


def _this_process() -> dict[str, str | int]:
    """Identify the writer: its process, machine and start time."""
    return {
        "process": os.getpid(),
        "host": platform.node(),
        "machine": _machine(),
        "began": _beginning_of(os.getpid()),
    }


def _is_alive(said: dict[str, Any]) -> bool | None:
    """Whether a writer on this machine is alive; None for other machines, where only heartbeats can tell."""
    if not said.get("machine") or said["machine"] != _machine():
        return None
    return bool(said.get("began") == _beginning_of(int(said["process"])))


def _machine() -> str:
    """The scope in which process ids are unique: this boot of the machine and its PID namespace; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _beginning_of(process: int) -> str:
    """The start time of a process, which tells it from later ones with the same id; empty if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""

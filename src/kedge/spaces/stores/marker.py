"""One writer per collection of a server: a marker beside the collection that says who writes, and beats while it does.

The marker is a collection of its own, since to make one is the only thing that of two clients one alone can do on every
server. Its single row says who the writer is, and how often it has beaten. Whether a writer is alive is seen from the
beats and no clock, since those of two machines differ; where the writer was on this machine, from its process.
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
"""What the name of a marker has after that of its collection."""

BEAT_SECONDS = 5.0
_MISSED_BEATS = 3  # after which a writer is taken for dead
_ROW = "1"


@dataclass
class WriterMarker:
    """Held inside `with`; the second one is refused with an `InputError`.

    Parameters
    ----------
    open_marker : callable
        Makes a store for the collection of the marker, which need not exist.
    delete : callable
        Deletes that collection.
    target : str
        What is written, for messages.
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
        # A marker that stays, since the server is gone, is cleared by the next writer.
        with suppress(Exception), self._opened() as store:
            if self._is_ours(store):
                self.delete(store)

    def require_held(self) -> None:
        """Raise `InputError` if another took this writer for dead, as happens to one that was suspended."""
        if self._lost:
            raise InputError(f"{self.target}: another process has begun to write there meanwhile; run this again later")

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        """The marker as it is now; clients remember what they have seen."""
        store = self.open_marker()
        try:
            yield store
        finally:
            store.close()

    def _made(self) -> bool:
        """Make the marker; False where there is one."""
        with self._opened() as store:
            if store.exists():
                return False
            try:
                store.create(Description(1, 1))
            except Exception:  # of two that make it at once one is refused, by every client in its own way
                if not store.exists():
                    raise
                return False
            self._say(store, 0)
            return self._is_ours(store)

    def _refuse_or_clear(self) -> None:
        """Delete the marker of a dead writer; a living one is an `InputError`."""
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
            # A server may not answer for a while; whoever writes hears of it.
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
    """What a marker says; None where there is none, or nothing in it yet."""
    found = store.fetch([_ROW]) if store.exists() else ()
    return dict(found.payloads[0]) if isinstance(found, Batch) and len(found) else None


def _this_process() -> dict[str, str | int]:
    """Who writes: its process, and which machine that is, and since when."""
    return {
        "process": os.getpid(),
        "host": platform.node(),
        "machine": _machine(),
        "began": _beginning_of(os.getpid()),
    }


def _is_alive(said: dict[str, Any]) -> bool | None:
    """Whether the writer is alive, if it is on this machine; None where only its beats can show."""
    if not said.get("machine") or said["machine"] != _machine():
        return None
    return bool(said.get("began") == _beginning_of(int(said["process"])))


def _machine() -> str:
    """What numbers of processes belong to: a machine since it was started, and a container on it; empty: unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _beginning_of(process: int) -> str:
    """When a process began, which no later one of the same number shares; empty where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""

"""A hundred thousand vectors through every store: killed in the middle, resumed, nothing lost, memory flat."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_stores import ADDRESSES

import kedge
from kedge.spaces.stores import Batch, Description, open_store

pytestmark = pytest.mark.slow

ROWS, DIM = 100_000, 384
MOST_BYTES = 10**9


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A run between two spaces of 384 dimensions."""
    chance = np.random.default_rng(0)
    x = (chance.standard_normal((1200, DIM)) * np.geomspace(1, 0.05, DIM)).astype(np.float32)
    rotation, _ = np.linalg.qr(chance.standard_normal((DIM, DIM)))
    known = np.stack([np.arange(1180)] * 2, axis=1)
    discovery = kedge.AnchorDiscovery(n_anchors=20, device="cpu").fit(x, (x @ rotation).astype(np.float32), known)
    folder = tmp_path_factory.mktemp("runs") / "run"
    discovery.save(folder)
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    """A folder of Parquet files."""
    address = f"parquet:{tmp_path_factory.mktemp('source') / 'rows'}"
    chance = np.random.default_rng(1)
    with open_store(address) as store:
        store.create(Description(ROWS, DIM, "cosine"))
        for begin in range(0, ROWS, 10_000):
            numbers = range(begin, begin + 10_000)
            payloads = [{"number": row, "document": f"text {row}"} for row in numbers]
            vectors = chance.standard_normal((10_000, DIM)).astype(np.float32)
            store.write(Batch([str(row) for row in numbers], vectors, payloads))
    return address


class Ended(NamedTuple):
    """What a command came to: its exit code, output, and greatest memory in bytes."""

    code: int
    output: str
    peak: int


def kedge_command(*arguments: Any, killed_after: float | None = None) -> Ended:
    command = [sys.executable, "-m", "kedge", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if killed_after is not None:
        time.sleep(killed_after)
        os.kill(process.pid, signal.SIGKILL)  # Popen's own would wait for it, and lose what it used
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(process.returncode, output, usage.ru_maxrss * 1024)


@pytest.mark.parametrize("kind", [kind for kind in ADDRESSES if kind != "qdrant-server"])
def test_nothing_is_lost_and_memory_stays_flat(request, tmp_path, kind, source, run_folder, record_property):
    target = ADDRESSES[kind](request, tmp_path, "carried")
    command = ("migrate", source, target, "--run", run_folder, "--json")
    killed = kedge_command(*command, killed_after=8)
    assert killed.code in (-signal.SIGKILL, 0)  # the quickest are done by then
    began = time.perf_counter()
    ended = kedge_command(*command, "--resume")
    seconds = time.perf_counter() - began
    assert ended.code == 0
    result = json.loads(ended.output)
    assert result["complete"]
    assert (result["rows"], result["written"] + result["before"], result["bad"]) == (ROWS, ROWS, 0)
    assert max(ended.peak, killed.peak) < MOST_BYTES
    figures = {
        "before": result["before"],
        "rows_a_second": ROWS / seconds,
        "peak_mb": max(ended.peak, killed.peak) / 1e6,
    }
    record_property("figures", figures)
    print(f"{kind}: {json.dumps(figures)}")  # noqa: T201

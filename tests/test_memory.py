"""Memory is a contract: the similarity of all rows is never stored."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kedge.estimators.devices import _pieces

PROGRAM = """
import resource, sys, numpy as np, torch
from kedge import AnchorDiscovery, Embeddings, Schedule
torch.set_num_threads(2)
rows, dim, budget, folder = 32_000, 64, 64 * 2**20, sys.argv[1]
chance = np.random.default_rng(0)
vectors = (chance.standard_normal((rows, dim)) * np.geomspace(1, 0.1, dim)).astype(np.float32)
turn, _ = np.linalg.qr(chance.standard_normal((dim, dim)))
np.save(f"{folder}/x.npy", vectors)
np.save(f"{folder}/y.npy", (vectors @ turn).astype(np.float32))
del vectors
keys = [str(row) for row in range(rows)]
x, y = (Embeddings(keys, np.load(f"{folder}/{name}.npy", mmap_mode="r")) for name in "xy")
seeds = np.stack([np.arange(20), np.arange(20)], axis=1)
small = AnchorDiscovery(n_anchors=50, device="cpu", memory_budget=budget, schedule=Schedule(sample_size=2000))
small.fit(x.take(range(500)), y.take(range(500)), seeds)  # load and warm up everything
taken = int([line for line in open("/proc/self/status") if line.startswith("VmData")][0].split()[1]) * 1024
# From here on: a few copies of the spaces, the budget, and what an allocator may waste.
allowed = taken + 8 * rows * dim * 4 + budget + 64 * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
small.fit(x, y, seeds)
print(np.mean(small.match_ == np.arange(rows)))
"""


def _under_the_limit(program, folder):
    """Run it with an allocator that gives back what is freed: glibc keeps up to 60 MB, another number in every run."""
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    command = [sys.executable, "-c", program, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=surroundings)


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account and limit of memory")
def test_discovery_needs_the_budget_and_not_the_matrix(tmp_path):
    """32,000 x 32,000 similarities are 3,906 MB; the process may take 190 MB more than before, or it fails."""
    done = _under_the_limit(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) > 0.99


LOADING = """
import sys, numpy as np, torch
from kedge.estimators.devices import load_space
np.save(sys.argv[1], np.random.default_rng(0).standard_normal((60_000, 256)).astype(np.float32))
def of_files():
    return int([line for line in open("/proc/self/status") if line.startswith("RssFile")][0].split()[1]) / 1024
vectors = np.load(sys.argv[1], mmap_mode="r")
before = of_files()
total = float(vectors.sum(dtype=np.float64))
read = of_files() - before
rows = load_space(vectors, torch.device("cpu"), "x", center=True).rows
assert float(vectors[:1000].sum(dtype=np.float64)) == float(np.load(sys.argv[1])[:1000].sum(dtype=np.float64))
print(read, of_files() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account of memory")
def test_a_mapped_file_is_let_go_once_it_is_loaded(tmp_path):
    """Its 59 MB are in memory after a first look, and not beside the normalised rows."""
    program = [sys.executable, "-c", LOADING, str(tmp_path / "x.npy")]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    read, left = map(float, done.stdout.split())
    assert read > 50
    assert left < 20


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account and limit of memory")
def test_the_limit_would_catch_a_stored_matrix(tmp_path):
    """The check can fail: the same limit stops a program that stores the similarities."""
    greedy = PROGRAM.replace("small.fit(x, y, seeds)\nprint", "torch.empty(32_000, 32_000).fill_(0)\nprint")
    done = _under_the_limit(greedy, tmp_path)
    assert done.returncode != 0
    assert "memory" in done.stderr


@pytest.mark.parametrize("dim", [1, 300, 3072, 3 * 2**20])
def test_what_is_read_at_once_does_not_grow_with_the_dimensions(dim):
    pieces = list(_pieces(5000, dim))
    rows = [row for some in pieces for row in range(*some.indices(5000))]
    assert rows == list(range(5000))
    assert max(some.stop - some.start for some in pieces) * dim <= max(2**20, dim)

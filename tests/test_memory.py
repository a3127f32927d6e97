"""Memory is a contract: the similarity of all rows is never stored."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account and limit of memory")
def test_discovery_needs_the_budget_and_not_the_matrix(tmp_path):
    """32,000 x 32,000 similarities are 3,906 MB; the process may take 190 MB more than before, or it fails."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) > 0.99


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's account and limit of memory")
def test_the_limit_would_catch_a_stored_matrix(tmp_path):
    """The check can fail: the same limit stops a program that stores the similarities."""
    greedy = PROGRAM.replace("small.fit(x, y, seeds)\nprint", "torch.empty(32_000, 32_000).fill_(0)\nprint")
    done = subprocess.run([sys.executable, "-c", greedy, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode != 0
    assert "memory" in done.stderr

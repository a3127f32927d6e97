"""Memory is a contract: the similarity of all rows is never stored."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, numpy as np, torch
from kedge import AnchorDiscovery, Schedule
torch.set_num_threads(2)
chance = np.random.default_rng(0)
x = (chance.standard_normal((20000, 24)) * np.geomspace(1, 0.1, 24)).astype(np.float32)
turn, _ = np.linalg.qr(chance.standard_normal((24, 24)))
y = (x @ turn).astype(np.float32)
seeds = np.stack([np.arange(20), np.arange(20)], axis=1)
small = AnchorDiscovery(n_anchors=50, device="cpu", memory_budget=64 * 2**20, schedule=Schedule(sample_size=2000))
small.fit(x[:500], y[:500], seeds)  # load and warm up everything
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small.fit(x, y, seeds)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(np.mean(small.match_ == np.arange(20000)), (after - before) / 1024)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs the resource module")
def test_discovery_needs_the_budget_and_not_the_matrix():
    """20,000 x 20,000 similarities are 1,526 MB; with a budget of 64 MB the peak may rise by far less."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    right, megabytes = map(float, done.stdout.split())
    assert right > 0.99
    assert megabytes < 250

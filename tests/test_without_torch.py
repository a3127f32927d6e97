"""What needs no torch works where it is absent."""

from __future__ import annotations

import json
import subprocess
import sys

BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
COMMAND = (
    BLOCKED
    + """
from kedge.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
)
FILES = (
    BLOCKED
    + """
import numpy as np
import kedge

space = kedge.Embeddings(["a", "b"], np.eye(2))
for suffix in ("vec", "bin", "npz", "npy"):
    kedge.write_embeddings(space, f"x.{suffix}")
    assert list(kedge.read_embeddings(f"x.{suffix}").keys) == ["a", "b"]
kedge.write_embeddings(space, "x.safetensors")
"""
)


def run(script, *arguments, folder=None):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_stores_are_listed():
    done = run(COMMAND, "stores")
    assert (done.returncode, done.stderr) == (0, "")
    assert "pgvector:postgresql://USER@HOST/DB#TABLE.COLUMN" in done.stdout
    done = run(COMMAND, "stores", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert {store["kind"] for store in json.loads(done.stdout)["stores"]} >= {"chroma", "parquet"}


def test_files_are_read_and_written(tmp_path):
    done = run(FILES, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")

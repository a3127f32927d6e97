"""The engine on Ray: the same pairs as on this machine, whatever happens to workers and nodes.

Each test is a script in a process of its own: what Ray starts, and warns of, stays there.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from kedge import write_embeddings
from kedge.data import load_demo_words

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'kedge[ray]'"),
]

BEGIN = """
import os, signal, sys, time
from functools import partial
from pathlib import Path
import ray
from kedge import load
from kedge.engines.job_folder import job_folder
from kedge.engines.local_engine import LocalEngine
from kedge.engines.ray_engine import RayEngine
from kedge.spaces.row_ranges import open_ranges
from kedge.tasks.all_rows import PAIRS, match_all, match_plan, merging, pairing, match_job

SMALL = {"num_cpus": 2, "object_store_memory": 150_000_000, "_temp_dir": TEMP}
FILES = Path(FILES)


def matched(name, engine, resume=False):
    out = Path(name)
    with job_folder(out, PAIRS, resume=resume, overwrite=False, activity="match") as folder:
        x, y = open_ranges(FILES / "x.npy", folder, "x"), open_ranges(FILES / "y.parquet", folder, "y")
        return match_all(load(RUN), x, y, folder, engine or LocalEngine(folder))


def pairs(name):
    import pyarrow.parquet as pq
    return sorted(map(str, pq.read_table(name).to_pylist()))
"""


@pytest.fixture(scope="module")
def word_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    x, y = load_demo_words()
    write_embeddings(x, folder / "x.npy")
    write_embeddings(y.take(np.random.default_rng(5).permutation(len(y))), folder / "y.parquet")
    return folder


@pytest.fixture
def run_script(tmp_path, run_files, word_files):
    """A function that runs a script after the lines above, and returns what it prints."""

    def run(body: str, **environment: str) -> str:
        with tempfile.TemporaryDirectory(prefix="kedge-ray-") as folder:  # pytest's is too long for a socket
            names = {"TEMP": f"{folder}/ray", "FILES": str(word_files), "RUN": run_files[0]}
            given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
            script, token = Path(folder, "script.py"), Path(folder, "token")
            script.write_text(given + BEGIN + body)
            token.write_text(secrets.token_hex(32))  # or Ray would leave one in the home folder
            settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
            settings["RAY_worker_niceness"] = "0"  # as it is, 15, other tests on the same cores would starve them
            done = subprocess.run(
                [sys.executable, str(script)],
                env=os.environ | settings | {"OMP_NUM_THREADS": "1"} | environment,
                capture_output=True, text=True, timeout=600, cwd=tmp_path,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr[-5000:]
        return done.stdout

    return run


def test_ray_gives_the_same_pairs(run_script):
    said = run_script("""
expected = matched("local", None)
engine = RayEngine(**SMALL)
assert matched("ray", engine) == expected
engine.close()
assert not ray.is_initialized()
assert pairs("ray") == pairs("local")
print("same", len(pairs("ray")))
""")
    assert "same 5000" in said


# What kills the worker that it runs in, the first time that it is called for a group.
KILLED = """
class KillOnce:
    def __init__(self, work, marker):
        self.work, self.marker = work, marker

    def __call__(self, *task):
        if not os.path.exists(self.marker):
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work(*task)


class KillingEngine(RayEngine):
    def regroup(self, tasks, split, finish, groups):
        self.calls = getattr(self, "calls", 0) + 1
        split = KillOnce(split, f"{TEMP}-split-{self.calls}")
        yield from super().regroup(tasks, split, KillOnce(finish, f"{TEMP}-finish-{self.calls}"), groups)
"""


def test_killed_workers_change_nothing(run_script):
    said = run_script(
        KILLED
        + """
expected = matched("local", None)
engine = KillingEngine(**SMALL)
assert matched("ray", engine) == expected
engine.close()
killed = len([name for name in os.listdir(os.path.dirname(TEMP)) if "split" in name or "finish" in name])
assert pairs("ray") == pairs("local")
print("same after", killed, "kills")
"""
    )
    assert "same after 6 kills" in said


# What writes down which groups are done, and stops at one of them.
STOPPED = """
from kedge.errors import InputError


class Recorded:
    def __init__(self, finish, stopping):
        self.finish, self.stopping = finish, stopping
        self.pass_name = type(finish).__name__

    def __call__(self, group, table):
        if self.stopping and (self.pass_name, group) == ("MergeMet", 1):
            raise InputError("stopped")
        done = self.finish(group, table)
        with open(f"{TEMP}-{self.stopping}", "a") as file:
            file.write(f"{self.pass_name} {group}\\n")
        return done


class RecordingEngine(RayEngine):
    def regroup(self, tasks, split, finish, groups):
        yield from super().regroup(tasks, split, Recorded(finish, self.stopping), groups)


def recorded(name, stopping):
    engine = RecordingEngine(**SMALL)
    engine.stopping = stopping
    try:
        return matched(name, engine, resume=not stopping)
    finally:
        engine.close()


def groups_done(stopping):
    return set(Path(f"{TEMP}-{stopping}").read_text().split("\\n")[:-1])
"""


def test_a_second_run_does_only_what_is_missing(run_script):
    said = run_script(
        STOPPED
        + """
expected = matched("local", None)
try:
    recorded("ray", True)
except InputError as error:
    print(error)
assert not Path("ray").exists()
assert recorded("ray", False) == expected
first, second = groups_done(True), groups_done(False)
assert "CompareRows 0" in first
assert not first & second
assert {"MergeMet 1", "WritePairs 0"} <= second <= {"MergeMet 0", "MergeMet 1", "WritePairs 0"}
assert pairs("ray") == pairs("local")
print("the rest:", len(second))
"""
    )
    assert said.startswith("stopped")
    assert "the rest:" in said


def test_a_node_that_leaves_changes_nothing_or_is_reported(run_script):
    said = run_script("""
from ray.cluster_utils import Cluster
from kedge.engines.ray_engine import EngineError

expected = matched("local", None)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100_000_000})
second = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")


class LeavingEngine(RayEngine):
    def regroup(self, tasks, split, finish, groups):
        for number, result in enumerate(super().regroup(tasks, split, finish, groups)):
            if number == 0 and second in cluster.list_all_nodes():
                cluster.remove_node(second, allow_graceful=False)
            yield result


try:
    assert matched("ray", LeavingEngine()) == expected
except EngineError as error:
    assert not Path("ray").exists()
    print("reported:", error)
    assert matched("ray", RayEngine(), resume=True) == expected
assert pairs("ray") == pairs("local")
print("same", len(cluster.list_all_nodes()), "node")
ray.shutdown()
cluster.shutdown()
""")
    assert "same 1 node" in said


def test_what_is_wrong_with_the_data_is_said_as_it_is(run_script):
    said = run_script("""
import numpy as np
from kedge.errors import InputError

vectors = np.load(FILES / "x.npy")
vectors[4321] = 0
os.mkdir("bad")
np.save("bad/x.npy", vectors)
os.symlink(FILES / "y.parquet", "bad/y.parquet")
FILES = Path("bad").absolute()
engine = RayEngine(**SMALL)
try:
    matched("ray", engine)
except InputError as error:
    print(type(error).__name__, error)
engine.close()
assert not Path("ray").exists()
""")
    assert "InputError" in said
    assert "the vector of key '4321' (row 4321) is a zero vector" in said
    assert len(said.strip().splitlines()) == 1


def test_exhausted_memory_is_one_line(run_script):
    said = run_script("""
from kedge.engines.ray_engine import EngineError


def hungry(task):
    raise MemoryError("no room")


engine = RayEngine(**SMALL)
try:
    list(engine.each([1, 2], hungry))
except EngineError as error:
    print(error)
engine.close()
""")
    assert "Ray could not finish" in said
    assert "--resume" in said
    assert len(said.strip().splitlines()) == 1

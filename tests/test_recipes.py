"""The blocks of recipes that need an engine of their own, run as they stand on the page."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from test_docs import Block, blocks_of, lines_of

import kedge
from kedge.cli.main import main

SCALE, CHANGE = "docs/recipes/at-scale.md", "docs/recipes/changing-models.md"


@pytest.fixture
def at_hand(tmp_path, run_files, monkeypatch) -> Path:
    """A folder with what the page on scale has when it comes to an engine."""
    for name, file in zip(("RUN", "x.npz"), run_files, strict=False):
        (tmp_path / name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "x.npz", "parquet:old"]) == 0
    return tmp_path


# Around the blocks: a Ray on one core, in a folder of its own.
RAY = """import ray

ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, _temp_dir={folder!r})
{blocks}
ray.shutdown()
"""


def only_block(page: str, language: str, word: str) -> Block:
    """The block of a page in which a word occurs."""
    (block,) = (block for block in blocks_of(page) if block.language == language and word in block.body)
    return block


def python_of(page: str, *words: str) -> str:
    """The Python blocks with these words, one after the other."""
    return "\n".join(only_block(page, "python", word).body for word in words)


def assert_carried(address: str, old: kedge.Embeddings, expected: np.ndarray) -> None:
    """The store holds these vectors under the old keys, up to the last digits of float32."""
    carried = kedge.read_embeddings(address)
    assert sorted(carried.keys) == sorted(old.keys)
    tolerance = 1e-6 * np.linalg.norm(expected, axis=1).max()
    np.testing.assert_allclose(carried.vectors[carried.rows(old.keys)], expected, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'ray[data]'")
def test_ray_carries_a_folder(at_hand):
    # In a process of its own: what Ray starts, and warns of, stays there. Pytest's folder is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="kedge-ray-") as folder:
        script, token = Path(folder, "script.py"), Path(folder, "token")
        script.write_text(RAY.format(folder=f"{folder}/ray", blocks=python_of(SCALE, "load_translator(", "import ray")))
        token.write_text(secrets.token_hex(32))  # or Ray would leave one in the home folder
        settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-5000:]
    old = kedge.read_embeddings("x.npz")
    assert_carried("parquet:new", old, kedge.load("RUN").translate(old, scale="raw"))


def test_copy_fills_a_table(at_hand, postgres, monkeypatch):
    url = urlsplit(postgres)
    monkeypatch.setenv("PGHOST", parse_qs(url.query)["host"][0])
    monkeypatch.setenv("PGUSER", url.username)
    monkeypatch.setenv("PGDATABASE", url.path.strip("/"))
    execute(postgres, "DROP TABLE IF EXISTS docs")
    exec(python_of(SCALE, "load_translator(", "import psycopg"), {"__name__": "__page__"})
    old = kedge.read_embeddings("x.npz")
    assert_carried(f"pgvector:{postgres}#docs", old, kedge.load("RUN").translate(old, scale="raw"))
    execute(postgres, "DROP TABLE docs")


def test_a_column_stands_beside_the_old(postgres, run_files):
    run, _, y = run_files
    old = kedge.read_embeddings(y)
    vectors = [(key, key[0], str(vector.tolist())) for key, vector in zip(old.keys, old.vectors, strict=True)]
    execute(postgres, "CREATE EXTENSION IF NOT EXISTS vector", "DROP TABLE IF EXISTS docs")
    execute(postgres, f"CREATE TABLE docs (id text PRIMARY KEY, package text, minilm vector({old.dim}))")
    execute(postgres, "INSERT INTO docs VALUES (%s, %s, %s)", rows=vectors)
    (line,) = lines_of(only_block(CHANGE, "sh", "pgvector:").body)
    arguments = shlex.split(line.replace("postgresql://me@localhost/library", postgres))[1:]
    arguments[arguments.index("change")] = run
    assert main(arguments) == 0
    execute(postgres, *only_block(CHANGE, "sql", "VACUUM").body.split(";")[:-1])
    assert_carried(f"pgvector:{postgres}#docs.e5", old, kedge.load(run).translate(old, scale="raw", back=True))
    execute(postgres, "DROP TABLE docs")


def execute(url: str, *statements: str, rows: list[tuple[str, ...]] | None = None) -> None:
    """Statements one by one, as they are: some cannot be part of a transaction."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            if rows is None:
                cursor.execute(statement)
            else:
                cursor.executemany(statement, rows)

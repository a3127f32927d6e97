"""What the design promises of the code itself: light imports, and imports in one direction only."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kedge

PACKAGE = Path(kedge.__file__).parent

# A folder may import from those after it. The modules beside them may be imported by all; data sits beside tasks.
LAYERS = (
    "cli", "data", "report", "tasks", "estimators", "judging", "solving", "models", "runs",
    "matching", "geometry", "spaces",
)  # fmt: skip
ANYONE = {"errors", "extras", "masking", "__version__"}


def imports_of(path: Path) -> set[str]:
    """The parts of kedge that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "kedge" else [f"kedge.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("kedge.")}
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_one_way(layer):
    allowed = set(LAYERS[LAYERS.index(layer) :]) | ANYONE
    files = list((PACKAGE / layer).rglob("*.py"))
    assert files
    for path in files:
        assert imports_of(path) <= allowed, path


def test_every_folder_is_in_the_design():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(LAYERS)


def test_numerics_do_not_touch_paths():
    for layer in ("matching", "geometry"):
        for path in (PACKAGE / layer).rglob("*.py"):
            assert "pathlib" not in path.read_text(), path


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    return set(output.split())


def test_import_kedge_is_light():
    heavy = {"torch", "triton", "pyarrow", "matplotlib", "transformers", "lightning", "sklearn", "scipy", "rich"}
    assert not heavy & loaded_by("import kedge")


def test_the_library_loads_no_optional_dependency():
    optional = {"pyarrow", "matplotlib", "onnx", "transformers", "lightning", "sklearn", "ot", "geotorch", "triton"}
    optional |= {"chromadb", "lancedb", "qdrant_client", "qdrant_edge", "psycopg", "apsw", "sqlite_vec", "faiss", "ray"}
    used = "import kedge\n" + "\n".join(f"kedge.{name}" for name in kedge.__all__)
    assert not optional & loaded_by(used)


def test_help_does_not_load_torch():
    code = "from kedge.cli.parser import build_parser\nbuild_parser().format_help()"
    assert "torch" not in loaded_by(code)

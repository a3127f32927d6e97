"""What the design promises of the code itself: light imports, and imports in one direction only."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import kedge

PACKAGE = Path(kedge.__file__).parent

# A folder may import from those after it. The modules beside them may be imported by all; data sits beside tasks.
LAYERS = (
    "cli", "data", "report", "integrations", "tasks", "many", "estimators", "runs", "judging", "solving", "models",
    "matching", "geometry", "engines", "storage", "spaces",
)  # fmt: skip
MAX_MODULES = 12
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


def imported_by(path: Path) -> set[str]:
    """The packages that a module imports, anywhere in it."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[0] for name in names}


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


def modules_of(*folders: str) -> list[Path]:
    """All modules under some folders, but those that stand for a folder."""
    return [path for folder in folders for path in sorted((PACKAGE / folder).rglob("*.py")) if path.stem != "__init__"]


def assert_distinct(named: Iterable[tuple[str, Path]]) -> None:
    """That no name is that of two."""
    homes: dict[str, Path] = {}
    for name, path in named:
        assert homes.setdefault(name, path) == path, f"{name} is in {homes[name]} and in {path}"


def classes_in(path: Path) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]


def test_no_two_modules_and_no_two_classes_have_one_name():
    modules = modules_of(*LAYERS)
    # A command is named like what it does, as `kedge lexicon` and `tasks/lexicon.py` are.
    assert_distinct((path.stem, path) for path in modules if "cli" not in path.relative_to(PACKAGE).parts)
    assert_distinct((name, path) for path in modules for name in classes_in(path))


@pytest.mark.parametrize("folder", LAYERS)
def test_a_folder_has_at_most_a_dozen_modules(folder):
    counts = Counter(path.parent for path in (PACKAGE / folder).rglob("*.py") if path.stem != "__init__")
    assert all(count <= MAX_MODULES for count in counts.values()), counts


@pytest.mark.parametrize("folder", LAYERS)
def test_every_folder_says_what_it_is_for_and_what_it_imports(folder):
    for path in (PACKAGE / folder).rglob("__init__.py"):
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert re.search(r"\bimports?\b", said, re.IGNORECASE), path


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "tools"])
def test_what_lies_beside_the_package_imports_modules_that_exist(folder):
    """Only some of it runs in the tests: the rest would break unseen when a module moves."""
    for path in (PACKAGE.parents[1] / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kedge":
                assert importlib.util.find_spec(str(node.module)), f"{path}: {node.module}"
                if "kernels" not in str(node.module):  # those want a GPU
                    module = importlib.import_module(str(node.module))
                    assert all(hasattr(module, name.name) for name in node.names), f"{path}: {node.module}"


def test_numerics_do_not_touch_paths():
    for path in modules_of("matching", "geometry", "solving", "judging", "models"):
        assert not {"pathlib", "os", "io", "shutil"} & imported_by(path), path
        assert "open(" not in path.read_text(), path


def test_solving_knows_no_judge():
    """Judging is injected: the method asks whatever it is given."""
    for path in modules_of("solving"):
        assert "judging" not in imports_of(path), path


def test_nothing_but_the_kernels_knows_triton():
    for path in modules_of(*LAYERS):
        assert ("triton" in imported_by(path)) <= (path.parent.name == "kernels"), path


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


def test_a_translator_loads_neither_torch_nor_scipy(run_files):
    code = (
        "import kedge, numpy\n"
        f"back = kedge.load_translator({run_files[0]!r}, back=True, scale='raw')\n"
        f"there = kedge.load_translator({run_files[0]!r})\n"
        "assert back(numpy.ones((3, 100))).shape == (3, 300)\n"
        "assert back.then(there)(numpy.ones(100)).shape == (100,)"
    )
    assert not {"torch", "scipy", "pandas", "pyarrow", "sklearn"} & loaded_by(code)


def test_forms_of_maps_load_without_torch():
    code = (
        "from kedge.models.maps.families import FAMILIES, form_of\n"
        "import numpy\n"
        "for family in FAMILIES:\n"
        "    form_of(family).from_state({'matrix': numpy.eye(3, dtype=numpy.float32)}, (3, 3))"
    )
    assert "torch" not in loaded_by(code)


def test_threads_sleep_while_they_wait_whichever_part_is_loaded_first_unless_the_environment_says_otherwise():
    code = "import os, kedge.estimators.devices\nprint(os.environ['OMP_WAIT_POLICY'])"
    for given, expected in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
        done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
        assert done.stdout.split() == [expected]


def test_a_small_discovery_loads_no_scipy():
    code = (
        "import numpy, kedge\n"
        "x = numpy.random.default_rng(0).standard_normal((60, 5))\n"
        "kedge.AnchorDiscovery(n_anchors=5, device='cpu').fit(x, x, [(i, i) for i in range(40)])"
    )
    assert "scipy" not in loaded_by(code)

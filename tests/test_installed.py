"""kedge as strangers install it: the sdist and the wheel are whole, and work where there is no checkout."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

import kedge

pytestmark = pytest.mark.thorough


class Installed(NamedTuple):
    """What was built, the programs of the environment that has the wheel, and an empty folder."""

    sdist: Path
    wheel: Path
    programs: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        from installed import apart

        command = [str(self.programs / program), *arguments]
        return subprocess.run(command, cwd=self.elsewhere, env=apart(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    for package in ("build", "hatchling"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'kedge[dev]'")
    from installed import build, install

    sdist, wheel = build(tmp_path_factory.mktemp("dist"))
    programs = install(wheel, tmp_path_factory.mktemp("installed") / "environment")
    return Installed(sdist, wheel, programs, tmp_path_factory.mktemp("elsewhere"))


def test_the_wheel_has_the_package_its_data_and_nothing_else(installed):
    with zipfile.ZipFile(installed.wheel) as archive:
        names = set(archive.namelist())
    package = Path(kedge.__file__).parent
    files = {
        f"kedge/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(f"kedge-{kedge.__version__}.dist-info/")} == files
    assert {"kedge/py.typed", "kedge/data/word2vec.npz"} <= files
    assert {f"kedge-{kedge.__version__}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= names


def test_the_sdist_has_what_make_needs(installed):
    root = f"kedge-{kedge.__version__}"
    with tarfile.open(installed.sdist) as archive:
        names = set(archive.getnames())
    for name in ("Makefile", "constraints.txt", "mkdocs.yml", "CITATION.cff", "SECURITY.md", "tests/conftest.py"):
        assert f"{root}/{name}" in names
    assert not any("__pycache__" in name or "/.venv/" in name for name in names)


def test_importing_everything_warns_of_nothing(installed):
    code = "import kedge; [getattr(kedge, name) for name in kedge.__all__]; print(kedge.__file__)"
    done = installed.run("python", "-W", "error", "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()).is_relative_to(installed.programs.parent)


def test_the_command_works_and_warns_of_nothing(installed):
    done = installed.run("kedge", "--version")
    assert (done.stdout, done.stderr) == (f"kedge {kedge.__version__}\n", "")
    done = installed.run("kedge", "discover", "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_demo_finds_the_words(installed):
    done = installed.run("python", "-W", "error", "-m", "kedge", "demo", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr
    pairs = installed.elsewhere / "kedge-demo" / "run" / "pairs.tsv"
    assert len(pairs.read_text(encoding="utf-8").splitlines()) > 4500

"""Optional packages: what to install if one is missing, and why an installed one cannot be imported."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from kedge.errors import MissingExtraError

_MAX_LETTERS = 300


@contextmanager
def needing(what: str, *packages: str, install: str, otherwise: str = "") -> Iterator[None]:
    """Turn any failure of the imports inside the context into a `MissingExtraError`.

    Parameters
    ----------
    what : str
        The beginning of the message, such as "ONNX files need".
    packages : str
        The packages imported, named as in `import` statements.
    install : str
        What pip should install, such as "kedge[onnx]"; several names are separated by spaces.
    otherwise : str
        The end of the message: what to do without the package.
    """
    try:
        yield
    except Exception as error:
        # Not only ImportError: a torchvision built for another torch fails with a RuntimeError.
        needs = f"{what} {' and '.join(packages)}"
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in packages:
            raise MissingExtraError(f"{needs}: {install_command(install)}{otherwise}") from error
        raise MissingExtraError(f"{needs}, which is installed but cannot be imported ({reason_of(error)})") from error


def install_command(install: str) -> str:
    """The shell command that installs something, such as "kedge[onnx]".

    pip resolves `kedge[onnx]` if kedge is installed, from a wheel or from a checkout. A checkout that is merely on
    Python's path must be named by its folder.
    """
    try:
        distribution("kedge")
    except PackageNotFoundError:
        checkout = Path(__file__).parents[2]
        if "kedge[" in install and (checkout / "pyproject.toml").is_file():
            install = re.sub(r"\bkedge(?=\[)", lambda _: str(checkout), install)
            return f"pip install --editable {shlex.quote(install)}"
    return f"pip install {shlex.join(install.split())}"


def reason_of(error: BaseException) -> str:
    """An error and its root cause in one line, because libraries wrap the errors of what they import."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    return "; because ".join(dict.fromkeys([_in_one_line(error), _in_one_line(first)]))


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _MAX_LETTERS else text[:_MAX_LETTERS] + " ..."

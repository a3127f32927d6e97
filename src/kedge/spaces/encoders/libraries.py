"""The optional libraries of the encoders: import them, load their models, and say clearly what went wrong."""

from __future__ import annotations

import logging
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from kedge.errors import InputError, KedgeError
from kedge.extras import needing, reason_of

Loaded = TypeVar("Loaded")

FOR_TEXTS, FOR_IMAGES = "kedge[encode]", "kedge[encode-images]"
_PROBE_SECONDS = 10


def import_library(name: str, what: str, *, install: str = FOR_TEXTS) -> Any:
    """Import the module `name`, or raise an error that says how to install it; `what` is what needs it."""
    with needing(f"{what} need", name.partition(".")[0], install=install):
        return import_module(name)


@contextmanager
def loading(model: str, kind: str) -> Iterator[None]:
    """Turn whatever a library raises while it loads `model` into one clear line; what it prints goes to stderr."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # a line for every retry would bury the error
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (KedgeError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"model {model!r}: cannot be loaded as a {kind} model ({reason_of(error)})") from error
    finally:
        logger.setLevel(level)


def load_cached_first(model: str, load: Callable[[bool], Loaded]) -> Loaded:
    """Call `load(True)`, which must use local files only, then `load(False)` if the hub is needed."""
    if Path(model).expanduser().is_dir():
        return load(True)
    if model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise InputError(f"model {model!r}: no such folder; give a local folder, or a hub name such as owner/name")
    try:
        return load(True)
    except (KedgeError, MemoryError):
        raise
    except Exception:  # not in the cache, or only partly
        require_hub(model)
    return load(False)


@contextmanager
def quiet_transformers(*, bars: bool) -> Iterator[None]:
    """Keep transformers from listing unused weights and, unless `bars`, from drawing progress bars."""
    messages = import_library("transformers", "transformers models").utils.logging
    verbosity, active = messages.get_verbosity(), messages.is_progress_bar_enabled()
    messages.set_verbosity_error()
    if not bars:
        messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(verbosity)
        if active:
            messages.enable_progress_bar()


def require_hub(model: str) -> None:
    """Check once whether the hub can be reached: the libraries themselves retry for a minute or more."""
    hub = import_library("huggingface_hub", "models from the hub").constants
    problem = "HF_HUB_OFFLINE is set" if hub.HF_HUB_OFFLINE else ""
    if not problem:
        try:
            urllib.request.urlopen(hub.ENDPOINT, timeout=_PROBE_SECONDS).close()
        except urllib.error.HTTPError:
            pass  # it answers
        except OSError as error:
            problem = " ".join(str(getattr(error, "reason", error)).split())
    if problem:
        raise InputError(
            f"model {model!r}: no such local folder, not in the local cache, and {hub.ENDPOINT} cannot be reached "
            f"({problem}); give a local folder, or download the model where there is a connection"
        )


def load_pretrained(model: str, processor: str, *, local: bool) -> tuple[Any, Any, bool]:
    """Load the preprocessor (transformers class `processor`) and the network; say whether a pooler is trained.

    Any other missing weight would be random, and is an error.
    """
    transformers = import_library("transformers", "transformers models")
    source = str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else model
    options: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    with quiet_transformers(bars=not local):
        prepared = getattr(transformers, processor).from_pretrained(source, **options)
        network, report = transformers.AutoModel.from_pretrained(source, output_loading_info=True, **options)
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise InputError(f"model {model!r}: has no weights for {missing[0]} and {len(missing) - 1} more")
    return prepared, network, not report["missing_keys"]

"""Engines by their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kedge.engines.engine import Engine
from kedge.errors import InputError

ENGINES = ("local", "ray")
"""The first is the default."""


@contextmanager
def open_engine(name: str, scratch: Path, address: str | None = None, **options: Any) -> Iterator[Engine]:
    """Open an engine that is closed when the context ends.

    `scratch` is a folder for intermediate files; `address`, and options for `ray.init`, are for Ray only.
    """
    if name not in ENGINES:
        raise InputError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    engine: Engine
    if name == "local":
        if address is not None:
            raise InputError(f"--ray {address}: is for --engine ray; add that, or omit the address")
        from kedge.engines.local_engine import LocalEngine

        engine = LocalEngine(scratch)
    else:
        from kedge.engines.ray_engine import RayEngine

        engine = RayEngine(address, **options)
    try:
        yield engine
    finally:
        engine.close()

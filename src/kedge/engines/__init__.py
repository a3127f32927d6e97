"""Engines, which process all rows batch by batch: on this machine, or on a cluster with Ray. May import spaces."""

from kedge.engines.engine import Engine
from kedge.engines.engines_by_name import ENGINES, open_engine

__all__ = ["ENGINES", "Engine", "open_engine"]

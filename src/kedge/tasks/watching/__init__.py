"""Watching an index: has the model changed (`drift`), are there several (`audit`), is it still the same (`canary`)?

May import `kedge.estimators` and everything below it, and modules of `kedge.tasks` outside folders.
"""

from kedge.tasks.watching.audit import Audit, ModelGroup, audit
from kedge.tasks.watching.canary import CANARY_TEXTS, as_canary, check_canary
from kedge.tasks.watching.drift import UNCHANGED, Drift, drift
from kedge.tasks.watching.since import Since, since

__all__ = [
    "CANARY_TEXTS",
    "UNCHANGED",
    "Audit",
    "Drift",
    "ModelGroup",
    "Since",
    "as_canary",
    "audit",
    "check_canary",
    "drift",
    "since",
]
